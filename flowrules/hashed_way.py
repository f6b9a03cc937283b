"""Which way the switches send a flow without a label: by the hashes of `flowrules.upward`, computed. Pure."""

from __future__ import annotations

from typing import NamedTuple

from flowrules.steering import allowed_uplinks, hash_slots
from flowrules.vswitch_hash import FiveTuple, chosen
from topologies.failures import Failures
from topologies.structure import Clos, Host, Level, Switch


class HashedWay(NamedTuple):
    """The way of a flow that the switches hash.

    Attributes:
        up: The uplinks that it takes, as of a path; None if a switch on the way has no uplink left and drops it.
        reachable: All ways that some flow between these hosts may take.
    """

    up: tuple[int, ...] | None
    reachable: tuple[tuple[int, ...], ...]


def hashed_way(failures: Failures, src: Host, dst: Host, flow: FiveTuple) -> HashedWay:
    """Return the way of a flow from one host to another, once all switches have the rules for these failures.

    Until then a switch may send it elsewhere: around a port that has just lost its link.

    >>> from ipaddress import IPv4Address
    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> flow = FiveTuple(IPv4Address("10.0.0.2"), IPv4Address("10.2.1.3"), 6, 40000, 5201)
    >>> hashed_way(Failures(tree), tree.host("h0_0_2"), tree.host("h2_1_3"), flow).up
    (1, 0)
    """
    tree = failures.tree
    edge, rack = tree.edge_of(src), tree.edge_of(dst)
    if edge == rack:
        return HashedWay((), ((),))
    first = _slots(failures, edge, rack)
    if edge.pod == rack.pod:
        up1 = _uplink(tree, edge, first, flow)
        return HashedWay(None if up1 is None else (up1,), tuple((up,) for up in sorted(set(first))))
    above = {up: _slots(failures, Switch(Level.AGGREGATION, edge.pod, up), rack) for up in sorted(set(first))}
    reachable = tuple((one, two) for one, slots in above.items() for two in sorted(set(slots)))
    up1 = _uplink(tree, edge, first, flow)
    if up1 is None:
        return HashedWay(None, reachable)
    up2 = _uplink(tree, Switch(Level.AGGREGATION, edge.pod, up1), above[up1], flow)
    return HashedWay(None if up2 is None else (up1, up2), reachable)


def _slots(failures: Failures, switch: Switch, rack: Switch) -> tuple[int, ...]:
    """Return the uplinks over which a switch hashes flows for a rack, by weight."""
    tree = failures.tree
    if not failures and tree.even:
        return tree.uplinks(switch)
    allowed = allowed_uplinks(tree, switch, failures, pods=(rack.pod,))
    return hash_slots(switch, failures, allowed)[rack]


def _uplink(tree: Clos, switch: Switch, slots: tuple[int, ...], flow: FiveTuple) -> int | None:
    """Return the uplink that a switch sends a flow to."""
    ports = tuple(tree.uplink_port(switch.level, index) for index in slots)
    port = chosen(flow, ports, basis=switch.level)
    return None if port is None else slots[ports.index(port)]
