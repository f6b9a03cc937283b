"""All-to-all traffic in a fabric of classes: the load of each link when it is routed by weights. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from operator import mul
from typing import NamedTuple

Row = list[float]


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
        self,
        pods: list[Class],
        groups: list[Class],
        cores: list[list[Class]],
        rack_sizes: list[list[int]],
        capacity: Links,
    ) -> None:
        self._pods = [pod.size for pod in pods]
        self._groups = [float(group.size) for group in groups]
        self._cores = [[float(core.size) for core in classes] for classes in cores]
        self._racks = rack_sizes
        self._capacity = capacity
        self._pairs = [(p, q) for p in range(len(pods)) for q in range(p, len(pods))]
        # what is the same in every round
        self._between_racks = {
            (p, q): [[both_carry(one, other) for other in capacity.racks[q]] for one in capacity.racks[p]]
            for p, q in self._pairs
        }
        self._between_pods = {
            (p, q): [both_carry(*rows) for rows in zip(capacity.cores[p], capacity.cores[q], strict=True)]
            for p, q in self._pairs
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
        cores = [
            link_weights(*rows) for rows in zip(self._between_pods[p, q], factor.cores[p], factor.cores[q], strict=True)
        ]
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
