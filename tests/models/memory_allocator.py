"""An allocator in Python, for tests of the arbiter's other parts: a greedy matching of hosts, every path the first one.

It keeps the library's promises about hosts (``arbiter.h``): no host sends or receives more than its link carries, and what is
granted is taken off the demands. It knows nothing of links between switches.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from sopa_ryu.arbiter.capacities import Capacities
from sopa_ryu.arbiter.schedule import SLOTS


class Cell(NamedTuple):
    source: int
    destination: int
    slot: int
    up1: int = 0
    up2: int = 0


class MemoryAllocator:
    """Implements `sopa_ryu.arbiter.schedule.Allocator`."""

    def __init__(self, capacities: Capacities) -> None:
        self.capacities = capacities
        self.demands: Counter[tuple[int, int]] = Counter()  # cells left, by source and destination
        self.reserved: dict[int, tuple[int, int]] = {}  # of the next batch
        self.granted = 0

    def follow(self, capacities: Capacities) -> None:
        self.capacities = capacities

    def demand(self, demands: Iterable[tuple[int, int, int]]) -> None:
        self.demands |= {(source, destination): cells for source, destination, cells in demands}

    def reserve(self, host: int, sending: int, receiving: int) -> None:
        self.reserved[host] = sending, receiving

    def batch(self) -> list[Cell]:
        out = []
        room = {host: [SLOTS - min(SLOTS, used) for used in its] for host, its in self.reserved.items()}
        for slot in range(SLOTS):
            sending = {host for host, its in room.items() if its[0] <= slot}
            receiving = {host for host, its in room.items() if its[1] <= slot}
            for (source, destination), left in sorted(self.demands.items(), key=lambda its: (its[1], its[0])):
                up = self.capacities.host[source] and self.capacities.host[destination]
                if left and up and source not in sending and destination not in receiving:
                    sending.add(source)
                    receiving.add(destination)
                    self.demands[source, destination] -= 1
                    out.append(Cell(source, destination, slot))
        self.reserved.clear()
        self.granted += len(out)
        return out

    def statistics(self) -> tuple[int, int, int]:
        return 0, self.granted, 0
