"""What the links of a fabric carry in a slot, in cells, for the arbiter's library. Pure.

A cell is what a host's link carries in a slot. Links between switches carry as many as their rate has those of hosts in it, at
least one; what is absent, failed or drained carries none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from topologies import Clos, Failures, Host, Level, Link
from topologies.identity import FIRST_HOST, Shape

MAX_CELLS = 255


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
