"""What the links of a fabric carry in a slot, in cells, and how many bytes a cell has, on which path. Pure.

A cell is what a host's link carries in a slot, less a guard for what is sent without being granted (acknowledgements, first
packets, ICMP), and for slot edges that are not sharp. Links between switches carry as many cells as their rate has those of hosts
in it, at least one; what is absent, failed or drained carries none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from topologies import Clos, Failures, Host, Level, Link, Switch
from topologies.identity import FIRST_HOST, Shape

MAX_CELLS = 255
GUARD = 0.05
"""The share of a slot that is not granted."""
MIN_CELL_BYTES = 1514
"""An Ethernet frame of 1,500 bytes, without which nothing can be sent in a slot."""
MAX_CELL_BYTES = (1 << 32) - 1
"""What a grant can say; a longer slot at a higher rate is not used up."""
_BITS = 8
_NS = 1_000_000_000
_MEGA = 1_000_000


class Capacities(NamedTuple):
    """The cells that each link carries in a slot, a byte each.

    Args:
        host: Of hosts' links, in the order of addresses.
        edge_uplink: ``[(pod * edges + edge) * aggregations + up1]``.
        aggregation_uplink: ``[(pod * aggregations + up1) * cores of a group + up2]``.
    """

    shape: Shape
    host: bytes
    edge_uplink: bytes
    aggregation_uplink: bytes


def capacities(failures: Failures) -> Capacities:
    """Return the cells that the links of a fabric carry where something may have failed.

    >>> fabric = Clos(1, 2, 2, 0, 3, mbit={"host": 10, "edge": 25}, links={"e0_1-a0_0": 5})
    >>> its = capacities(Failures(fabric, {"e0_0-a0_1": "down", "h0_1_3-e0_1": "down"}))
    >>> list(its.host), list(its.edge_uplink)
    ([1, 1, 1, 1, 0, 1], [2, 0, 1, 2])
    """
    fabric = failures.tree
    return Capacities(
        fabric.shape,
        bytes(failures.alive(Link(host, fabric.edge_of(host)), fabric.edge_of(host)) for host in fabric.hosts()),
        bytes(_uplinks(failures, Level.EDGE)),
        bytes(_uplinks(failures, Level.AGGREGATION)),
    )


def host_index(fabric: Clos, host: Host) -> int:
    """Return the number of a host in the order of addresses, by which the library names it."""
    return (host.pod * fabric.edges + host.edge) * fabric.hosts_per_edge + host.number - FIRST_HOST


def host_at(fabric: Clos, index: int) -> Host:
    """Return the host of a number, as of `host_index`."""
    rack, place = divmod(index, fabric.hosts_per_edge)
    return Host(*divmod(rack, fabric.edges), place + FIRST_HOST)


def _uplinks(failures: Failures, level: Level) -> Iterator[int]:
    fabric = failures.tree
    cell = fabric.level_rate("host")
    usual = _cells(fabric.level_rate(level.name.lower()), cell)
    for switch in fabric.switches(level):
        lost = failures.lost_uplinks(switch)
        alive = failures.alive(switch)
        for index in range(fabric.uplink_count(level)):
            if not alive or index in lost:
                yield 0
            elif fabric.even:
                yield usual
            else:
                yield _cells(fabric.capacity(Link(switch, fabric.uplink(switch, index))), cell)


def _cells(rate: float, cell: float) -> int:
    # rates are decimals: 0.3 has 0.1 three times in it
    return max(1, min(MAX_CELLS, int(rate / cell + 1e-9)))


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
