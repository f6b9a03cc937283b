"""From which uplinks of a switch a rack can still be reached: what unlabelled packets have to know of remote failures."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.failures import Failures
from topologies.fattree import FatTree, Level, Link, Switch


def allowed_uplinks(tree: FatTree, switch: Switch, failures: Failures) -> dict[Switch, tuple[int, ...]]:
    """For every rack that is not below a switch, the uplinks from which some way to its hosts is without failure.

    Parameters
    ----------
    tree : FatTree
    switch : Switch
        An edge or aggregation switch.
    failures : Failures

    Returns
    -------
    dict
        From each rack's edge switch to uplink indices in ascending order, none if the rack cannot be reached. The cost is
        that of what the failures touch.
    """
    return dict(
        _from_edge(switch, failures) if switch.level is Level.EDGE else _from_aggregation(tree, switch, failures)
    )


def _from_edge(edge: Switch, failures: Failures) -> Iterator[tuple[Switch, tuple[int, ...]]]:
    known: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
    for rack, choices in failures.choices_from(edge).items():
        if rack != edge:
            if choices not in known:
                known[choices] = tuple(sorted({up[0] for up in choices}))
            yield rack, known[choices]


def _from_aggregation(tree: FatTree, switch: Switch, failures: Failures) -> Iterator[tuple[Switch, tuple[int, ...]]]:
    above = [tree.uplink(switch, i) for i in range(tree.half)]
    rise = tuple(i for i, core in enumerate(above) if failures.alive(core, Link(switch, core)))
    for pod in range(tree.k):
        if pod == switch.pod:
            continue
        racks = [Switch(Level.EDGE, pod, index) for index in range(tree.half)]
        if pod not in failures.touched_pods:
            yield from ((rack, rise) for rack in racks)
            continue
        over = Switch(Level.AGGREGATION, pod, switch.index)
        into = tuple(i for i in rise if failures.alive(over, Link(over, above[i])))
        yield from ((rack, into if failures.alive(rack, Link(rack, over)) else ()) for rack in racks)
