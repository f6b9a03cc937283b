"""Settings of congestion-free routing: slots, and the arbiter that gives them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MAX_SLOT = 64
"""Packets."""
MAX_DELAY_NS = 1_000_000
MAX_GUARD = 50
ORDERS = ("min-max-min", "alternating", "smallest")
PATHS = ("colouring", "next-fit-ga")
DEMANDS = ("flow", "socket", "packet")
SLOT_SETTINGS = ("slot", "delay", "guard", "order", "paths", "demand")
SLOT_HELP = (
    f"+slot=PACKETS (1 to {MAX_SLOT}) with cfr, and in the simulator +delay=TIME (0us to 1ms), +guard=PERCENT (0 to {MAX_GUARD}), "
    f"+order={'|'.join(ORDERS)}, +paths={'|'.join(PATHS)} and +demand={'|'.join(DEMANDS)}"
)
_TIME = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(ns|us|ms)")
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


@dataclass(frozen=True)
class Slots:
    """Slots of `cfr` and their arbiter.

    Attributes:
        packets: Packets of the full size that a host sends in a slot. None: 1 in the simulator, in the lab what a machine keeps
            up with.
        delay_ns: Time from a host to the arbiter, and from the arbiter to a host.
        guard_percent: Share of a slot for packets that need none: acknowledgements, and what opens and closes connections.
        order: In which order demands get slots: one of `ORDERS`.
        paths: How paths are found: one of `PATHS`.
        demand: What the arbiter learns of: the size of a flow when it begins, what an application has passed to its socket, or
            packets that TCP would send now.
    """

    packets: int | None = None
    delay_ns: int = 10_000
    guard_percent: int = 4
    order: str = ORDERS[0]
    paths: str = PATHS[0]
    demand: str = DEMANDS[0]

    @property
    def is_simulated(self) -> bool:
        """True if it has settings that real hosts and the real arbiter do not have."""
        return self != Slots(self.packets)

    def changed(self, name: str, value: str) -> Slots | None:
        """Return these settings with one of them changed; None if the value is invalid."""
        number = int(value) if value.isascii() and value.isdecimal() and len(value) < 4 else -1
        if name == "slot" and 1 <= number <= MAX_SLOT:
            return replace(self, packets=number)
        if name == "guard" and 0 <= number <= MAX_GUARD:
            return replace(self, guard_percent=number)
        if name == "delay" and (found := _TIME.fullmatch(value)):
            delay = round(float(found[1]) * _UNITS[found[2]])
            return replace(self, delay_ns=delay) if delay <= MAX_DELAY_NS else None
        if name == "order" and value in ORDERS:
            return replace(self, order=value)
        if name == "paths" and value in PATHS:
            return replace(self, paths=value)
        if name == "demand" and value in DEMANDS:
            return replace(self, demand=value)
        return None
