"""The uplinks of a switch from which each rack can be reached: how switches steer packets around remote failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from itertools import groupby
from typing import NamedTuple

from topologies.failures import Failures
from topologies.structure import Clos, Level, Switch


class Steering(NamedTuple):
    """The uplinks that packets for a prefix may take; None is every rack that no other prefix matches.

    ``inherited`` are the uplinks of the next shorter prefix, which would apply without this one: the switch's for None.
    """

    prefix: IPv4Network | None
    uplinks: tuple[int, ...]
    inherited: tuple[int, ...]


def steering(tree: Clos, switch: Switch, failures: Failures | None) -> Iterator[Steering]:
    """Compress `allowed_uplinks` by longest prefix: one answer for None, then one for each pod or rack that differs.

    Parameters
    ----------
    tree : Clos
    switch : Switch
        An edge or aggregation switch.
    failures : Failures or None

    Yields
    ------
    Steering
        A pod before its racks.
    """
    everyone = tree.uplinks(switch)
    if not failures and not tree.absent:
        yield Steering(None, everyone, everyone)
        return
    allowed = allowed_uplinks(tree, switch, failures or Failures(tree))
    default = _commonest(allowed.values(), everyone)
    yield Steering(None, default, everyone)
    for pod, racks in groupby(allowed, key=lambda rack: rack.pod):
        # the own pod's prefix also matches what is below the switch, but such packets do not reach these tables
        inside = {rack: allowed[rack] for rack in racks}
        common = _commonest(inside.values(), default)
        if common != default:
            yield Steering(tree.prefix(Switch(Level.AGGREGATION, pod, 0)), common, default)
        for rack, uplinks in inside.items():
            if uplinks != common:
                yield Steering(tree.prefix(rack), uplinks, common)


def _commonest(uplinks: Iterable[tuple[int, ...]], inherited: tuple[int, ...]) -> tuple[int, ...]:
    """Return the most frequent value; among several the inherited one, which costs no entry."""
    counted = Counter(uplinks)
    return max(counted, key=lambda one: (counted[one], one == inherited), default=inherited)


def allowed_uplinks(tree: Clos, switch: Switch, failures: Failures) -> dict[Switch, tuple[int, ...]]:
    """Return, for every rack that is not below a switch, the uplinks that packets for it may take.

    These are the uplinks of paths without a failure; if a rack has no such path, the uplinks of paths without a hard failure.
    Each switch decides alone: for every uplink allowed here, the switch above it finds the rest of such a path among its own.

    Parameters
    ----------
    tree : Clos
    switch : Switch
        An edge or aggregation switch.
    failures : Failures

    Returns
    -------
    dict
        From each rack's edge switch, pod by pod, to uplink indices in ascending order, none if the rack cannot be reached.
    """
    leading = _from_edge if switch.level is Level.EDGE else _from_aggregation
    allowed = dict(leading(tree, switch, failures))
    if failures.hard is not failures and not all(allowed.values()):
        carrying = dict(leading(tree, switch, failures.hard))
        allowed = {rack: uplinks or carrying[rack] for rack, uplinks in allowed.items()}
    return allowed


def _from_edge(tree: Clos, edge: Switch, failures: Failures) -> Iterator[tuple[Switch, tuple[int, ...]]]:
    # by identity: racks that no failure distinguishes share one path set, and comparing them takes longer than making them
    known: dict[int, tuple[int, ...]] = {}
    choices_from = failures.choices_from(edge)
    for rack, choices in choices_from.items():
        if rack != edge:
            if id(choices) not in known:
                known[id(choices)] = tuple(sorted({up[0] for up in choices}))
            yield rack, known[id(choices)]


def _from_aggregation(tree: Clos, switch: Switch, failures: Failures) -> Iterator[tuple[Switch, tuple[int, ...]]]:
    lost = failures.lost_uplinks
    rise = tuple(i for i in tree.uplinks(switch) if i not in lost(switch))
    for pod in range(tree.pods):
        if pod == switch.pod:
            continue
        racks = list(tree.switches_of(Level.EDGE, pod))
        if pod not in failures.touched_pods:
            yield from ((rack, rise) for rack in racks)
            continue
        over = lost(Switch(Level.AGGREGATION, pod, switch.index))
        into = tuple(i for i in rise if i not in over)
        yield from ((rack, into if failures.alive(rack) and switch.index not in lost(rack) else ()) for rack in racks)
