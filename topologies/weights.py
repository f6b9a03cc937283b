"""The weights of candidate paths, and the order in which packets take paths of different weight. Pure.

Controller, agents, rules and simulator compute weights by these functions alone. While the fabric is even and nothing has failed,
all candidate paths of a pair have the same weight, and nothing is computed.
"""

from __future__ import annotations

from bisect import insort
from functools import lru_cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from topologies.balance import Balance
from topologies.failures import Failures
from topologies.structure import Clos, Host, Switch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Choices = tuple[tuple[int, ...], ...]
Weights = tuple[float, ...]

PRECISION = 0.01
"""The error of a share after rounding, as part of the largest share of the pair."""
MAX_SEQUENCE = 1 << 12
"""The longest sequence, in packets, unless there are more paths: weights of more than 80 paths are rounded to what has room."""
_EXACT = 1e-9
_GROWTH = 1.03


def weights_from(failures: Failures, edge: Switch, pods: Iterable[int] | None = None) -> dict[Switch, Weights]:
    """Compute the weights of the candidate paths from one rack to every rack, or those of some pods; they sum to 1.

    Their order is that of `Failures.choices_from`. Racks that nothing distinguishes share one tuple.
    """
    return weigh(failures, edge, failures.choices_from(edge, pods))


def weigh(failures: Failures, edge: Switch, choices_from: Mapping[Switch, Choices]) -> dict[Switch, Weights]:
    """Return the weights of the candidate paths from one rack to some racks, which `Failures.choices_from` has given."""
    balance = balance_of(failures)
    if balance is None:
        return {rack: _equal(len(choices)) for rack, choices in choices_from.items()}
    weights: dict[Switch, Weights] = {}
    known: dict[tuple[int, int, bool], Weights] = {}
    places, pod = balance.places, edge.pod
    for rack, choices in choices_from.items():
        # by identity: racks that no failure distinguishes share one tuple
        key = id(choices), id(places[rack]), rack.pod == pod
        if key not in known:
            known[key] = _between(balance, edge, rack, choices)
        weights[rack] = known[key]
    return weights


def weights(failures: Failures, src: Host, dst: Host) -> Weights:
    """Return the weights of the candidate paths between two hosts, in the order of the usable paths of `Failures.split`.

    A leaf-spine fabric whose second spine has half the rate:

    >>> rates = {f"e0_{leaf}-a0_1": 5000 for leaf in range(4)}
    >>> fabric = Clos(1, 4, 2, 0, 8, mbit={"edge": 10000}, links=rates)
    >>> weights(Failures(fabric), Host(0, 0, 2), Host(0, 1, 2))
    (0.6666666666666666, 0.3333333333333333)
    >>> sequence(((0,), (1,)), _)
    ((0,), (1,), (0,))
    """
    usable = tuple(path.up for path in failures.split(src, dst)[0])
    return weights_of(failures, src, dst, usable)


def weights_of(failures: Failures, src: Host, dst: Host, usable: Choices) -> Weights:
    """Return the weights of two hosts' usable candidate paths, given by their uplink indices."""
    balance = balance_of(failures)
    if balance is None:
        return _equal(len(usable))
    return _between(balance, failures.tree.edge_of(src), failures.tree.edge_of(dst), usable)


def balance_of(failures: Failures) -> Balance | None:
    """Return the factors of the links' loads; None where all candidate paths of a pair have the same weight."""
    tree = failures.tree
    if tree.even and not failures:
        return None
    return _balance(tree, frozenset(failures))


def factors_of(failures: Failures) -> Balance:
    """Return the factors of the links' loads, also where all of them are 1."""
    return _balance(failures.tree, frozenset(failures))


@lru_cache(maxsize=4)
def _balance(tree: Clos, failed: frozenset[str]) -> Balance:
    return Balance(Failures(tree, dict.fromkeys(failed, "")))


@lru_cache
def _equal(count: int) -> Weights:
    return (1 / count,) * count if count else ()


def _between(balance: Balance, src: Switch, dst: Switch, choices: Choices) -> Weights:
    if len(choices) < 2:
        return _equal(len(choices))
    racks = balance.groups_between(balance.place(src), balance.place(dst))
    if src.pod == dst.pod:
        return rounded(tuple(racks[up[0]] for up in choices))
    cores = balance.cores_between(src, dst)
    return rounded(tuple(racks[j] * cores[j][i] for j, i in choices))


@lru_cache(maxsize=1 << 9)
def rounded(raw: Weights) -> Weights:
    """Return weights as shares of a sequence of bounded length, each with an error of at most `PRECISION` of the largest share."""
    counts = _counts(raw)
    length = sum(counts)
    return tuple(count / length for count in counts)


def _counts(raw: Sequence[float]) -> list[int]:
    """Return how often each path occurs: the most frequent one as seldom as the precision allows."""
    room = max(1, MAX_SEQUENCE // len(raw))
    # a whole turn of the most frequent path is the error that cannot be avoided
    return _multiples(raw, room, max(PRECISION, 1 / room)) or [1] * len(raw)


def _multiples(raw: Sequence[float], room: int, precision: float) -> list[int] | None:
    """Return the smallest numbers in proportion to ``raw``, at most ``room``; None if none is near enough."""
    most = max(raw)
    parts = {weight: weight / most for weight in raw}
    for times in range(1, room + 1):
        if all(abs(_whole(times * part) - times * part) <= times * precision for part in parts.values()):
            counted = {weight: _whole(times * part) for weight, part in parts.items()}
            return [counted[weight] for weight in raw]
    return None


def _whole(number: float) -> int:
    """Round, but down if the number would grow by much: a slow link must not get a multiple of what it can take."""
    near = round(number)
    return near if near <= _GROWTH * number else int(number)


def sequence(choices: Choices, weights: Weights) -> Choices:
    """Return the order in which packets take paths of these weights in turn: each choice as often as its weight says.

    Every stretch of the sequence, which repeats, is as even as it can be: in any window of packets each path occurs at most 2 times
    more or less often than its share. The aggregation switch changes from packet to packet as far as that allows. Equal weights
    give the round-robin order of ``choices``; others at most `MAX_SEQUENCE` packets, unless there are more choices.

    References:
        Baruah, Cohen, Plaxton, Varvel: Proportionate Progress: A Notion of Fairness in Resource Allocation. Algorithmica 15 (1996).
        Whack-a-Mole: arXiv 2509.18519 sprays by weight in the same spirit.

    >>> sequence(((0, 0), (1, 0), (1, 1)), (0.5, 0.25, 0.25))
    ((0, 0), (1, 0), (0, 0), (1, 1))
    """
    if not weights or weights.count(weights[0]) == len(weights):
        return choices
    return _sequence(choices, weights)


@lru_cache(maxsize=1 << 8)
def _sequence(choices: Choices, weights: Weights) -> Choices:
    counts = _multiples(weights, MAX_SEQUENCE, _EXACT) or _counts(weights)
    return tuple(choices[index] for index in _in_turn(counts, [up[:1] for up in choices]))


def _in_turn(counts: list[int], switches: list[tuple[int, ...]]) -> list[int]:
    """Return the index of each slot, each turn within the slots that an even flow of its share touches.

    The earliest deadline first meets all deadlines, so that after any number of slots no index is ahead or behind by a whole turn.
    A later one with another aggregation switch than the slot before is preferred while it lets all others meet theirs.
    """
    length = sum(counts)
    turns = [0] * len(counts)
    due = [0] * (length + 1)
    """How many turns must be taken before each slot, and later ones not."""
    for count in counts:
        for turn in range(count):
            due[_deadline(turn, count, length)] += 1
    coming = [(0, index) for index, count in enumerate(counts) if count]
    ready: list[tuple[int, int]] = []
    slots: list[int] = []
    for now in range(length):
        while coming and coming[0][0] <= now:
            index = heappop(coming)[1]
            insort(ready, (_deadline(turns[index], counts[index], length), index))
        at = _other_switch(ready, switches, switches[slots[-1]], due, now) if slots else 0
        deadline, index = ready.pop(at)
        due[deadline] -= 1
        slots.append(index)
        turns[index] += 1
        if turns[index] < counts[index]:
            heappush(coming, (turns[index] * length // counts[index], index))
    return slots


def _deadline(turn: int, count: int, length: int) -> int:
    """Return the slot before which a turn must be taken, one of ``count`` in ``length`` slots."""
    return -(-(turn + 1) * length // count)


def _other_switch(
    ready: list[tuple[int, int]], switches: list[tuple[int, ...]], last: tuple[int, ...], due: list[int], now: int
) -> int:
    """Return the place of the first ready turn of another aggregation switch, or of the first of all if that would be too late."""
    left, slot = 0, now
    for place, (deadline, index) in enumerate(ready):
        # the turns due until then, which all come later, need a slot each
        while slot + 1 < deadline:
            slot += 1
            left += due[slot]
            if left >= slot - now:
                return 0
        if switches[index] != last:
            return place
    return 0
