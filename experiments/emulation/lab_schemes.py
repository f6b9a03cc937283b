"""Which schemes the lab can run. Pure."""

from __future__ import annotations

from experiments.schemes import Fabric, Scheme, SchemeError
from flowrules.label import Carrier


def check(scheme: Scheme, carrier: Carrier, queue_packets: int) -> None:
    """Raise `SchemeError` if the lab cannot run a scheme, with queues of so many full frames. The message says what to change."""
    if scheme.fabric is Fabric.SIMULATOR:
        raise SchemeError(f"{scheme.name} exists in the simulator only: add --backend ns3")
    if carrier is Carrier.SRV6 and scheme.fabric is not Fabric.SRV6:
        raise SchemeError(
            f"{scheme.name}: no switch of its fabric forwards SRv6: choose another --carrier, or the scheme sopa-srv6"
        )
    if scheme.channels and scheme.segments > 1:
        raise SchemeError(f"{scheme.name}: in the lab a burst of MCS is as long as TCP makes it: leave out +segments")
    if scheme.slots is not None and scheme.segments > 1:
        raise SchemeError(f"{scheme.name}: in the lab slots limit bursts: leave out +segments")
    if scheme.fabric is Fabric.SRV6 and carrier not in (Carrier.MAC, Carrier.SRV6):  # mac also without the option
        raise SchemeError(f"{scheme.name}: its routers forward SRv6 only: leave out --carrier")
    if (scheme.channels or scheme.slots is not None) and carrier not in (Carrier.MAC, Carrier.SRV6):
        raise SchemeError(f"{scheme.name} has labels in the Ethernet address only: leave out --carrier")
    if scheme.slots is not None and scheme.slots.is_simulated:
        raise SchemeError(
            f"{scheme.name}: +delay, +guard, +order, +paths and +demand are for the simulator: leave them out, or add --backend ns3"
        )
    if scheme.ecn and scheme.ecn_threshold is not None and scheme.ecn_threshold >= queue_packets:
        raise SchemeError(f"{scheme.name}: no queue of {queue_packets} packets gets so long: give a lower +ecn or a longer --queue")
