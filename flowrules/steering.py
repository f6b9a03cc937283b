"""The uplinks of a switch from which each rack can be reached: how switches steer packets around remote failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from topologies.failures import Failures
from topologies.structure import Clos, Level, Switch
from topologies.weights import balance_of


class Steering(NamedTuple):
    """The uplinks that packets to what is below a switch may take: a rack, a pod, or None for every rack that is in no other.

    ``slots`` are the uplinks over which flows without a label are hashed: those of ``uplinks``, each as often as its weight says.
    ``inherited`` and ``inherited_slots`` are those of the pod, or of None, which would apply without this one: the switch's for
    None.
    """

    below: Switch | None
    uplinks: tuple[int, ...]
    inherited: tuple[int, ...]
    slots: tuple[int, ...]
    inherited_slots: tuple[int, ...]


def steering(tree: Clos, switch: Switch, failures: Failures | None) -> Iterator[Steering]:
    """Compress `allowed_uplinks` and `hash_slots` of a switch by longest prefix: one answer for None, then those that differ.

    A pod comes before its racks.
    """
    everyone = tree.uplinks(switch)
    if not failures and tree.even:
        yield Steering(None, everyone, everyone, everyone, everyone)
        return
    failures = failures or Failures(tree)
    allowed = allowed_uplinks(tree, switch, failures)
    slots = hash_slots(switch, failures, allowed)
    default = _commonest(allowed.values(), everyone)
    default_slots = default if slots is allowed else _commonest(slots.values(), everyone)
    yield Steering(None, default, everyone, default_slots, everyone)
    for pod, racks in groupby(allowed, key=lambda rack: rack.pod):
        # the own pod's prefix also matches what is below the switch, but such packets do not reach these tables
        inside = {rack: (allowed[rack], slots[rack]) for rack in racks}
        common = _commonest((uplinks for uplinks, _ in inside.values()), default)
        common_slots = common if slots is allowed else _commonest((its for _, its in inside.values()), default_slots)
        if (common, common_slots) != (default, default_slots):
            yield Steering(Switch(Level.AGGREGATION, pod, 0), common, default, common_slots, default_slots)
        for rack, both in inside.items():
            if both != (common, common_slots):
                yield Steering(rack, both[0], common, both[1], common_slots)


def _commonest(uplinks: Iterable[tuple[int, ...]], inherited: tuple[int, ...]) -> tuple[int, ...]:
    """Return the most frequent value; among several the inherited one, which costs no entry."""
    counted = Counter(uplinks)
    return max(counted, key=lambda one: (counted[one], one == inherited), default=inherited)


def allowed_uplinks(
    tree: Clos, switch: Switch, failures: Failures, pods: Iterable[int] | None = None
) -> dict[Switch, tuple[int, ...]]:
    """Return, for every rack that is not below an edge or aggregation switch, the uplinks that packets for it may take.

    These are the uplinks of paths without a failure; if a rack has no such path, the uplinks of paths without a hard failure.
    Each switch decides alone: for every uplink allowed here, the switch above it finds the rest of such a path among its own.
    Racks come pod by pod, of all pods or some; uplink indices ascend, and there are none if the rack cannot be reached.
    """
    leading = _from_edge if switch.level is Level.EDGE else _from_aggregation
    wanted = range(tree.pods) if pods is None else sorted(pods)
    allowed = dict(leading(tree, switch, failures, wanted))
    if failures.hard is not failures and not all(allowed.values()):
        carrying = dict(leading(tree, switch, failures.hard, wanted))
        allowed = {rack: uplinks or carrying[rack] for rack, uplinks in allowed.items()}
    return allowed


def hash_slots(switch: Switch, failures: Failures, allowed: Mapping[Switch, tuple[int, ...]]) -> Mapping[Switch, tuple[int, ...]]:
    """Return for every rack the uplinks over which flows without a label are hashed, more often the more weight their paths have.

    Every one of `allowed_uplinks` is there at least once, so that flows have another as soon as their own loses its link.
    """
    balance = balance_of(failures)
    if balance is None:
        return allowed
    places, pod = balance.places, switch.pod
    # by identity: racks that nothing distinguishes share their uplinks and their place
    keys = [(id(uplinks), id(places[rack]), rack.pod == pod) for rack, uplinks in allowed.items()]
    slots: dict[tuple[int, int, bool], tuple[int, ...]] = {}
    even = True
    for key, rack in dict(zip(keys, allowed, strict=True)).items():
        uplinks = allowed[rack]
        if switch.level is Level.EDGE:
            weights = balance.uplink_weights(switch, places[rack], key[2])
        else:
            weights = balance.cores_above(switch, rack)
        slots[key] = _in_slots(uplinks, tuple(weights[index] for index in uplinks))
        even = even and slots[key] == uplinks
    return allowed if even else {rack: slots[key] for key, rack in zip(keys, allowed, strict=True)}


MAX_SLOTS = 2048
"""Open vSwitch's limit of the list that it hashes over."""
EVEN_ENOUGH = 1 / 12
"""The error of an uplink's part of the flows, as part of the largest: hashing few flows errs more."""


@lru_cache(maxsize=1 << 14)
def _in_slots(uplinks: tuple[int, ...], weights: tuple[float, ...]) -> tuple[int, ...]:
    most = max(weights, default=0.0)
    if not most:  # no path without a failure is left: these are of paths over drained elements
        return uplinks
    parts = [weight / most for weight in weights]
    counts = [1] * len(parts)
    for times in range(1, min(round(1 / EVEN_ENOUGH), MAX_SLOTS // len(parts)) + 1):
        counts = [max(1, round(times * part)) for part in parts]
        if all(abs(count / times - part) <= EVEN_ENOUGH for count, part in zip(counts, parts, strict=True)):
            break
    return tuple(index for index, count in zip(uplinks, counts, strict=True) for _ in range(count))


def _from_edge(tree: Clos, edge: Switch, failures: Failures, pods: Sequence[int]) -> Iterator[tuple[Switch, tuple[int, ...]]]:
    # by identity: racks that no failure distinguishes share one path set, and comparing them takes longer than making them
    known: dict[int, tuple[int, ...]] = {}
    choices_from = failures.choices_from(edge, None if len(pods) == tree.pods else pods)
    for rack, choices in choices_from.items():
        if rack != edge:
            if id(choices) not in known:
                known[id(choices)] = tuple(sorted({up[0] for up in choices}))
            yield rack, known[id(choices)]


def _from_aggregation(
    tree: Clos, switch: Switch, failures: Failures, pods: Sequence[int]
) -> Iterator[tuple[Switch, tuple[int, ...]]]:
    lost = failures.lost_uplinks
    rise = tuple(i for i in tree.uplinks(switch) if i not in lost(switch))
    for pod in pods:
        if pod == switch.pod:
            continue
        racks = list(tree.switches_of(Level.EDGE, pod))
        if pod not in failures.touched_pods:
            yield from ((rack, rise) for rack in racks)
            continue
        over = lost(Switch(Level.AGGREGATION, pod, switch.index))
        into = tuple(i for i in rise if i not in over)
        yield from ((rack, into if failures.alive(rack) and switch.index not in lost(rack) else ()) for rack in racks)
