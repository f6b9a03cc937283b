"""Parts of a fabric that fail together: its pods, or of a leaf-spine fabric its racks."""

from __future__ import annotations

from topologies import Clos, Host, Level, Switch


def part_count(tree: Clos) -> int:
    """Return the number of parts."""
    return tree.pods if tree.pods > 1 else tree.edges


def part_of(tree: Clos, host: Host) -> int:
    """Return the number of the part that a host is in."""
    return host.pod if tree.pods > 1 else host.edge


def part_hosts(tree: Clos, part: int) -> list[Host]:
    """Return the hosts of a part."""
    return [host for host in tree.hosts() if part_of(tree, host) == part]


def part_switches(tree: Clos, part: int) -> list[Switch]:
    """Return the switches of a part: a pod's, or the rack's edge switch."""
    if tree.pods == 1:
        return [Switch(Level.EDGE, 0, part)]
    return [switch for switch in tree.switches() if switch.level is not Level.CORE and switch.pod == part]


def top(tree: Clos) -> Level:
    """Return the level of the highest switches."""
    return Level.CORE if tree.cores else Level.AGGREGATION
