"""How much of its share of uniform traffic each link can take: factors of the links that failures or rates distinguish. Pure.

A path's weight is a product: of the capacity of the racks' links on it, of that of the pods' links to core switches, and of a
factor of each of these links. All factors are 1 first. Then, in each of a few rounds, all-to-all traffic is routed by the weights,
and the factors of the most loaded links fall (the multiplicative weights method: Arora, Hazan, Kale, Theory of Computing 8, 2012).
Of all weights that maximise the least bandwidth, those nearest to the first ones have this form: the factors are exponentials of
the links' prices in the linear program.

Pods, racks, core switches and their groups that nothing distinguishes are one class each, so that the cost depends on what is
uneven or has failed, and not on the size of the fabric. Nothing but sums, products and quotients in a fixed order is computed:
every machine gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from math import fsum
from operator import mul
from typing import NamedTuple

from topologies.failures import Failures
from topologies.structure import Host, Level, Link, Switch

Row = list[float]
ROUNDS = 24
BUDGET = 200_000
"""Terms of all rounds together, each less than half a microsecond: larger fabrics with many failures have fewer rounds, or none."""
GOOD = 0.95
"""The first weights are kept if their least bandwidth is that part of the best round's: they suit other traffic, too."""
ENOUGH = 0.96
"""Otherwise the first round is taken that reaches that part of the best one: later ones are less even."""
_FIRST_STEP, _LARGER, _SMALLER, _TOO_FAR, _MOMENTUM = 0.15, 1.2, 0.5, 0.97, 0.4

Place = tuple[int, int]
"""The class of a rack: the class of its pod, and its own in that pod."""


class Class(NamedTuple):
    """Members that nothing distinguishes: the first one's index, and how many there are."""

    first: int
    size: int


class Links(NamedTuple):
    """A number for each link: of each rack class' links by group class, and of each pod class' by group and core class."""

    racks: list[list[Row]]
    cores: list[list[Row]]


class Traffic:
    """All-to-all traffic of 1 between each pair of racks, routed by weights."""

    def __init__(
        self, pods: list[Class], groups: list[Class], cores: list[list[Class]], rack_sizes: list[list[int]], capacity: Links
    ) -> None:
        self._pods = [pod.size for pod in pods]
        self._groups = [float(group.size) for group in groups]
        self._cores = [[float(core.size) for core in classes] for classes in cores]
        self._racks = rack_sizes
        self._capacity = capacity
        self._pairs = [(p, q) for p in range(len(pods)) for q in range(p, len(pods))]
        # what is the same in every round
        self._between_racks = {
            (p, q): [[both_carry(one, other) for other in capacity.racks[q]] for one in capacity.racks[p]] for p, q in self._pairs
        }
        self._between_pods = {
            (p, q): [both_carry(*rows) for rows in zip(capacity.cores[p], capacity.cores[q], strict=True)] for p, q in self._pairs
        }

    def load(self, factor: Links) -> Links:
        """Return the load of each link, the same in both directions."""
        load = map_rows(lambda row: [0.0] * len(row), self._capacity)
        for p, q in self._pairs:
            if p == q:
                self._within(p, factor, load)
            if p != q or self._pods[p] > 1:
                self._between(p, q, factor, load)
        return load

    def bound(self, load: Links) -> float:
        """Return a bandwidth that no weights exceed, from the load that some weights make."""
        bounds = [
            fsum(map(mul, self._groups, capacity)) / all_
            for rows in zip(self._capacity.racks, load.racks, strict=True)
            for capacity, loads in zip(*rows, strict=True)
            if (all_ := fsum(map(mul, self._groups, loads)))
        ]
        for capacities, loads_of_pod in zip(self._capacity.cores, load.cores, strict=True):
            if all_ := self._sum(loads_of_pod):
                bounds.append(self._sum(capacities) / all_)
        return min(bounds)

    def _sum(self, rows: list[Row]) -> float:
        """Return the sum of a pod's links to core switches."""
        inner = (fsum(map(mul, *both)) for both in zip(self._cores, rows, strict=True))
        return fsum(map(mul, self._groups, inner))

    def _within(self, p: int, factor: Links, load: Links) -> None:
        """Add the traffic between the racks of a pod of a class."""
        sizes, factors, loads = self._racks[p], factor.racks[p], load.racks[p]
        for r, capacities in enumerate(self._between_racks[p, p]):
            for s in range(r, len(sizes)):
                shares = self._shares(link_weights(capacities[s], factors[r], factors[s]))
                if shares:
                    loads[r] = _plus(loads[r], shares, sizes[s] - (r == s))
                    if r != s:
                        loads[s] = _plus(loads[s], shares, sizes[r])

    def _between(self, p: int, q: int, factor: Links, load: Links) -> None:
        """Add the traffic between the pods of two classes, or of one."""
        cores = [link_weights(*rows) for rows in zip(self._between_pods[p, q], factor.cores[p], factor.cores[q], strict=True)]
        through = [fsum(map(mul, *both)) for both in zip(self._cores, cores, strict=True)]
        # how many pods of the other class there are for one of each; within a class each pair of racks comes twice
        others_of_p, others_of_q = (self._pods[q], self._pods[p]) if p != q else (self._pods[p] - 1, 0)
        racks_p, racks_q = load.racks[p], load.racks[q]
        passing = [0.0] * len(through)
        for r, capacities in enumerate(self._between_racks[p, q]):
            for s, capacity in enumerate(capacities):
                weights = link_weights(capacity, factor.racks[p][r], factor.racks[q][s])
                shares = self._shares(list(map(mul, weights, through)))
                if shares:
                    n_r, n_s = self._racks[p][r], self._racks[q][s]
                    racks_p[r] = _plus(racks_p[r], shares, n_s * others_of_p)
                    if others_of_q:
                        racks_q[s] = _plus(racks_q[s], shares, n_r * others_of_q)
                    passing = _plus(passing, shares, n_r * n_s)
        for at, (here, whole) in enumerate(zip(passing, through, strict=True)):
            if whole:
                load.cores[p][at] = _plus(load.cores[p][at], cores[at], here / whole * others_of_p)
                if others_of_q:
                    load.cores[q][at] = _plus(load.cores[q][at], cores[at], here / whole * others_of_q)

    def _shares(self, weights: Row) -> Row | None:
        whole = fsum(map(mul, weights, self._groups))
        return [weight / whole for weight in weights] if whole else None


def map_rows(function: Callable[..., Row], *links: Links) -> Links:
    """Apply a function to the rows of links."""
    return Links(*([list(map(function, *of)) for of in zip(*parts, strict=True)] for parts in zip(*links, strict=True)))


def both_carry(one: Row, other: Row) -> Row:
    """Return what two links in a row carry, for each pair."""
    return list(map(min, one, other))


def link_weights(capacities: Row, one: Row, other: Row) -> Row:
    """Return the weights of two links in a row: what both carry, times the factor of each."""
    return [c * f * g for c, f, g in zip(capacities, one, other, strict=True)]


def _plus(row: Row, more: Row, times: float) -> Row:
    return [a + times * b for a, b in zip(row, more, strict=True)]


def divided(loads: Row, capacities: Row) -> Row:
    """Return the use of links: their loads as parts of their capacities, 0 where there is none."""
    return [load / capacity if capacity else 0.0 for load, capacity in zip(loads, capacities, strict=True)]


def largest(links: Links) -> float:
    """Return the largest number of all links; 0 if there is no link."""
    return max((number for part in links for rows in part for row in rows for number in row), default=0.0)


class Balance:
    """The classes of a fabric with failures, the links' capacities and their factors.

    ``least`` is the bandwidth of each pair of racks before the first and after each further round, if all pairs send as much;
    for tests.
    """

    def __init__(self, failures: Failures, rounds: int = ROUNDS) -> None:
        self._failures = failures
        self._tree = tree = failures.tree
        pods, cores = _distinguished(failures)
        self._groups, self._group_of = _classes(tree.aggregations, set(cores))
        self._pods, self._pod_of = _classes(tree.pods, pods)
        of_groups = [_classes(tree.cores_of_group, cores.get(group.first, set())) for group in self._groups]
        self._cores = [classes for classes, _ in of_groups]
        self._core_of = [of for _, of in of_groups]
        self._rack_sizes: list[list[int]] = []
        self._rack_of: list[list[int]] = []
        self._rated = {link.lower for link in tree.rated}
        self._capacity = Links([], [])
        for pod in self._pods:
            self._sort_racks(pod.first, pod.first in pods)
            above = (Switch(Level.AGGREGATION, pod.first, group.first) for group in self._groups)
            self._capacity.cores.append([self._above(*both) for both in zip(above, self._cores, strict=True)])
        self._factor = map_rows(lambda capacity: [1.0] * len(capacity), self._capacity)
        self._uplink_weights: dict[tuple[Place, Place, bool], Row] = {}
        self.least: list[float] = []
        self.rounds = min(rounds, BUDGET // max(1, self.terms))
        if self.rounds:
            self._balance()

    def _above(self, switch: Switch, uppers: list[Class]) -> Row:
        """Return the capacity of a switch's links to the first members of classes, 0 where there is none."""
        if not self._failures.alive(switch):
            return [0.0] * len(uppers)
        tree, lost = self._tree, self._failures.lost_uplinks(switch)
        row = [tree.level_rate(switch.level.name.lower())] * len(uppers)
        if lost or switch in self._rated:
            for at, upper in enumerate(uppers):
                row[at] = 0.0 if upper.first in lost else tree.capacity(Link(switch, tree.uplink(switch, upper.first)))
        return row

    def _sort_racks(self, pod: int, distinguished: bool) -> None:
        racks = list(self._tree.switches_of(Level.EDGE, pod))
        known: dict[tuple[float, ...], int] = {}
        if distinguished:
            of = [known.setdefault(tuple(self._above(rack, self._groups)), len(known)) for rack in racks]
        else:
            known[tuple(self._above(racks[0], self._groups))] = 0
            of = [0] * len(racks)
        self._rack_of.append(of)
        self._rack_sizes.append([of.count(number) for number in range(len(known))])
        self._capacity.racks.append([list(row) for row in known])

    @property
    def terms(self) -> int:
        """The number of terms of the sums of one round."""
        racks = sum(map(len, self._rack_sizes))
        return racks * racks * len(self._groups) + len(self._pods) ** 2 * sum(map(len, self._cores))

    # -- weights --------------------------------------------------------------------------------------------------------

    def place(self, rack: Switch) -> Place:
        pod = self._pod_of[rack.pod]
        return pod, self._rack_of[pod][rack.index]

    @cached_property
    def places(self) -> dict[Switch, Place]:
        """The class of each rack; two racks of a class have one object."""
        known: dict[Place, Place] = {}
        places = ((rack, self.place(rack)) for rack in self._tree.switches(Level.EDGE))
        return {rack: known.setdefault(place, place) for rack, place in places}

    def groups_between(self, one: Place, other: Place) -> Row:
        """Return, for each aggregation switch of a pod, the weight of the links of two racks to it."""
        (p, r), (q, s) = one, other
        capacity, factor = self._capacity.racks, self._factor.racks
        by_class = link_weights(both_carry(capacity[p][r], capacity[q][s]), factor[p][r], factor[q][s])
        return [by_class[group] for group in self._group_of]

    def cores_between(self, one: Switch, other: Switch) -> list[Row]:
        """Return, for each aggregation switch of a pod, the weights of its core switches' links to the pods of two racks."""
        return self._cores_between(self._pod_of[one.pod], self._pod_of[other.pod])

    def cores_above(self, switch: Switch, other: Switch) -> Row:
        """Return the weights of the core switches above an aggregation switch, towards the pod of a rack."""
        group = self._group_of[switch.index]
        return self._cores_of_group(self._pod_of[switch.pod], self._pod_of[other.pod], group)

    def above(self, switch: Switch) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the capacities and the factors of the uplinks of an edge or aggregation switch: all weights follow from them."""
        p = self._pod_of[switch.pod]
        if switch.level is Level.EDGE:
            number, of = self._rack_of[p][switch.index], self._group_of
            capacity, factor = self._capacity.racks[p][number], self._factor.racks[p][number]
        else:
            number = self._group_of[switch.index]
            capacity, factor, of = self._capacity.cores[p][number], self._factor.cores[p][number], self._core_of[number]
        return tuple([capacity[at] for at in of]), tuple([factor[at] for at in of])

    def _cores_between(self, p: int, q: int) -> list[Row]:
        by_class = [self._cores_of_group(p, q, group) for group in range(len(self._groups))]
        return [by_class[group] for group in self._group_of]

    def _cores_of_group(self, p: int, q: int, group: int) -> Row:
        capacity, factor = self._capacity.cores, self._factor.cores
        weights = link_weights(both_carry(capacity[p][group], capacity[q][group]), factor[p][group], factor[q][group])
        return [weights[core] for core in self._core_of[group]]

    def uplink_weights(self, rack: Switch, other: Place, within: bool) -> Row:
        """Return the weights of a rack's uplinks to a rack of a class, ``within`` its pod or not: those of the paths by each."""
        one = self.place(rack)
        key = one, other, within
        if key not in self._uplink_weights:
            weights = self.groups_between(one, other)
            if not within:
                cores = self._cores_between(one[0], other[0])
                weights = [weight * fsum(through) for weight, through in zip(weights, cores, strict=True)]
            self._uplink_weights[key] = weights
        return self._uplink_weights[key]

    # -- rounds ---------------------------------------------------------------------------------------------------------

    def _balance(self) -> None:
        traffic = Traffic(self._pods, self._groups, self._cores, self._rack_sizes, self._capacity)
        factor, push = self._factor, map_rows(lambda row: [0.0] * len(row), self._capacity)
        good = factor, push
        factors, step, best, bound = [], _FIRST_STEP, 0.0, 0.0
        for turn in range(self.rounds + 1):
            load = traffic.load(factor)
            use = map_rows(divided, load, self._capacity)
            most = largest(use)
            if not most:  # no pair of racks has a path
                return
            least = 1 / most
            factors.append(factor)
            self.least.append(least)
            # the sum of a switch's loads is the same for all weights, and its links cannot carry more than all their capacity
            bound = bound or traffic.bound(load)
            if least >= (ENOUGH if turn else GOOD) * bound:
                break
            if least < _TOO_FAR * best:
                step *= _SMALLER
            else:
                step *= _LARGER
                good = factor, map_rows(lambda before, used, most=most: _pushed(before, used, most), push, use)
            best = max(best, least)
            push = good[1]
            factor = map_rows(lambda before, pushed, step=step: _lowered(before, pushed, step), *good)
        best = max(self.least)
        if self.least[0] < GOOD * best:
            self._factor = next(one for one, least in zip(factors, self.least, strict=True) if least >= ENOUGH * best)


def _pushed(before: Row, uses: Row, most: float) -> Row:
    """Return how strongly factors are lowered: by the twelfth power of a link's use, and less by that of the rounds before."""
    pushes = []
    for push, use in zip(before, uses, strict=True):
        part = use / most
        cube = part * part * part
        sixth = cube * cube
        pushes.append(_MOMENTUM * push + sixth * sixth)
    return pushes


def _lowered(factors: Row, pushes: Row, step: float) -> Row:
    # an exponential without a library whose last bit may differ
    return [f / (1 + step * p * (1 + step * p / 2)) for f, p in zip(factors, pushes, strict=True)]


def _classes(count: int, single: Iterable[int]) -> tuple[list[Class], list[int]]:
    """Return the classes of ``count`` members, of which some are alone in theirs, and the class of each member."""
    alone = sorted(single)
    classes = [Class(index, 1) for index in alone]
    of = [len(alone)] * count
    for number, index in enumerate(alone):
        of[index] = number
    if len(alone) < count:
        classes.append(Class(of.index(len(alone)), count - len(alone)))
    return classes, of


def _distinguished(failures: Failures) -> tuple[set[int], dict[int, set[int]]]:
    """Return the pods and, by aggregation index, the core switches at which a link is failed, absent or of a rate of its own."""
    elements = {*failures.tree.absent, *failures.tree.rated, *failures.elements}
    pods: set[int] = set()
    cores: dict[int, set[int]] = {}
    for element in elements:
        for node in element if isinstance(element, Link) else (element,):
            if isinstance(node, Host):
                break
            if node.level is Level.CORE:
                cores.setdefault(node.pod, set()).add(node.index)
                continue
            pods.add(node.pod)
            if node.level is Level.AGGREGATION:
                cores.setdefault(node.index, set())
    return pods, cores
