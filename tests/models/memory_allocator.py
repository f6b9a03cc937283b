"""An allocator in Python, for tests of the arbiter's other parts: a greedy matching of hosts, the largest demands first.

It keeps the library's promises about hosts (``arbiter.h``): no host sends or receives more than its link carries, and what is
granted is taken off the demands. It knows nothing of links between switches: paths go by the number of the slot.
"""

from collections.abc import Iterable

from sopa_ryu.arbiter.allocation import Cell
from sopa_ryu.arbiter.budgets import Capacities
from sopa_ryu.arbiter.schedule import SLOTS


class MemoryAllocator:
    """Implements `sopa_ryu.arbiter.schedule.Allocator`."""

    def __init__(self, capacities: Capacities) -> None:
        self.capacities = capacities
        self.demands: dict[tuple[int, int], int] = {}  # cells left, by source and destination
        self.reserved: dict[int, tuple[int, int]] = {}  # of the next batch

    def follow(self, capacities: Capacities) -> None:
        self.capacities = capacities

    def demand(self, demands: Iterable[tuple[int, int, int]]) -> None:
        self.demands.update({(source, destination): cells for source, destination, cells in demands})

    def reserve(self, host: int, sending: int, receiving: int) -> None:
        self.reserved[host] = sending, receiving

    def batch(self) -> list[Cell]:
        out = []
        for slot in range(SLOTS):
            sending, receiving = ({host for host, used in self.reserved.items() if SLOTS - slot <= used[way]} for way in (0, 1))
            for (source, destination), left in sorted(self.demands.items(), key=lambda its: (-its[1], its[0])):
                up = self.capacities.host[source] and self.capacities.host[destination]
                if left and up and source not in sending and destination not in receiving:
                    sending.add(source)
                    receiving.add(destination)
                    self.demands[source, destination] -= 1
                    out.append(Cell(source, destination, slot, slot % 2, slot // 2 % 2))
        self.reserved.clear()
        return out

    def statistics(self) -> tuple[int, int, int]:
        return 0, 0, 0
