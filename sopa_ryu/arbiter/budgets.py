"""How many bytes a cell has, on which path. Pure.

A cell is what a host's link carries in a slot, less a guard for what is sent without being granted (acknowledgements, first
packets, ICMP), and for slot edges that are not sharp. `sopa_ryu.arbiter.capacities` has how many cells each link carries.
"""

from __future__ import annotations

import math

from sopa_ryu.arbiter.capacities import capacities
from topologies import Failures, Host, Level, Switch

GUARD = 0.05
"""The share of a slot that is not granted."""
MIN_CELL_BYTES = 1514
"""An Ethernet frame of 1,500 bytes, without which nothing can be sent in a slot."""
MAX_CELL_BYTES = (1 << 32) - 1
"""What a grant can say; a longer slot at a higher rate is not used up."""
_BITS = 8
_NS = 1_000_000_000
_MEGA = 1_000_000


class Budgets:
    """The budgets of a fabric with these failures.

    Args:
        host_mbit: The rate of a host's link in Mbit/s; those of other links are relative to it.
        slot_ns: The length of a slot.

    Attributes:
        capacities: The cells that each link carries, for the library.
        cell_bytes: Bytes of frames that a host's link of that rate carries in a slot, less the guard.
    """

    def __init__(self, failures: Failures, host_mbit: float, slot_ns: int) -> None:
        self.tree = failures.tree
        self.capacities = capacities(failures)
        self.cell_bytes = cell_bytes(host_mbit, slot_ns)
        self._slow: dict[tuple[Switch, int], float] = {}
        self._slow_hosts: dict[int, float] = {}
        self._find_slow()

    def _find_slow(self) -> None:
        """Note the links that are slower than hosts' links are, with the share of a cell that they carry."""
        tree, unit = self.tree, self.tree.level_rate("host")
        places = {host: index for index, host in enumerate(tree.hosts())}
        levels_slow = any(tree.level_rate(level) < unit for level in tree.link_levels)
        for link in tree.links() if levels_slow else tree.rated:
            share = tree.capacity(link) / unit
            if share >= 1:
                continue
            if isinstance(link.lower, Host):
                self._slow_hosts[places[link.lower]] = share
            else:
                index = next(its for its in tree.uplinks(link.lower) if tree.uplink(link.lower, its) == link.upper)
                self._slow[link.lower, index] = share

    def usual(self, source: int, destination: int) -> int:
        """Return the bytes of a cell from one host to another, by their numbers, where no link between switches is slow."""
        share = min(self._slow_hosts.get(source, 1.0), self._slow_hosts.get(destination, 1.0))
        return int(self.cell_bytes * share)

    def on_path(self, source: int, destination: int, up1: int, up2: int) -> int:
        """Return the bytes of a cell on a path: less where one of its links is slower than hosts' links are."""
        budget = self.usual(source, destination)
        if not self._slow:
            return budget
        share = budget / self.cell_bytes
        for end in (source, destination):
            pod, edge = divmod(end // self.tree.hosts_per_edge, self.tree.edges)
            share = min(share, self._slow.get((Switch(Level.EDGE, pod, edge), up1), 1.0))
            share = min(share, self._slow.get((Switch(Level.AGGREGATION, pod, up1), up2), 1.0))
        return int(self.cell_bytes * share)


def cell_bytes(host_mbit: float, slot_ns: int) -> int:
    """Return the bytes of a cell.

    >>> cell_bytes(4, 3_200_000)
    1520
    """
    return min(MAX_CELL_BYTES, int(host_mbit * _MEGA / _BITS * slot_ns / _NS * (1 - GUARD)))


def min_slot_ms(host_mbit: float) -> float:
    """Return the length of the shortest slot that carries a frame, in milliseconds, rounded up to a tenth.

    >>> min_slot_ms(4)
    3.2
    """
    exact = MIN_CELL_BYTES * _BITS / (host_mbit * _MEGA * (1 - GUARD)) * 1000
    return math.ceil(exact * 10 + 1e-6) / 10
