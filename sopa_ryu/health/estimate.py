"""Which links and hosts explain the losses, and how certain that is. Pure.

The model: each element loses a share of what crosses it, and the losses of a way are Poisson, with the sum of its elements'
shares as mean. Everything loses a little: `background`, found from what nothing else explains. On top of it as few elements as
possible lose more: greedily those that explain most, then fitted together by expectation maximization, and kept only if the
losses are `threshold` times more likely with them than without. That is the sparse choice of 007 (NSDI 2018) and NetBouncer
(NSDI 2019) with a likelihood in place of votes and of regularized least squares, which are no measure of certainty at the few
losses that half a minute has.

A likelihood ratio of c has a probability of at most 1/c where an element is as good as the others (Markov): the threshold for a
rate of false alarms is the number of elements, times evaluations, divided by the rate, whatever the number of losses.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sopa_ryu.health.elements import Elements
from sopa_ryu.health.records import COLUMNS, Bools, Floats, Ints, Losses

LINK_FLOOR, HOST_FLOOR = 1e-6, 2e-6
"""The least shares that are taken for background: hosts lose more than links do."""
FALSE_ALARMS = 0.1
"""A day."""
HOST_PRIOR = math.log(100.0)
"""Hosts lose probes that much more often than links do: they are busy, or end."""
DAY_SECONDS = 86_400.0
ROUNDS = 12
"""Of explaining; each may find several elements."""
MAX_EXPLAINING = 512
SCORING_STEPS, FITTING_STEPS, BACKGROUND_STEPS = 8, 24, 6
EXTRA = 5.0
"""By how much, logarithmically, losses have to be likelier for one more bad link."""
MAX_SIDE = 4
"""More links at one switch are not bad all at once by chance."""
ALMOST_SURE = 0.95
MAX_SHARE = 20.0
"""A share of 1 loses all; losses are more than crossings only where slots do not fit."""


class Suspect(NamedTuple):
    """A link that loses more than the background."""

    link: int
    """Its number."""
    down: bool | None
    """The direction; None if the losses do not tell."""
    loss: float
    """The share lost."""
    confidence: float
    """The probability that it is this link and no other."""
    hosts: int
    """So many have reported losses."""


class Estimate(NamedTuple):
    """What the losses of a window say."""

    shares: Floats
    """Of each element, the share lost."""
    suspects: list[Suspect]
    """The most certain first."""
    background: float
    """The share that healthy links lose."""


def threshold(directed: int, evaluations: float) -> float:
    """Return the logarithm of the likelihood ratio from which one of the directed links explains losses, by evaluations a day."""
    return math.log(max(2.0, directed * evaluations / FALSE_ALARMS))


class _Fit:
    """Shares of all elements, and the rows of losses that they explain."""

    def __init__(self, elements: Elements, lost: Losses, crossings: Floats) -> None:
        self.total = elements.total
        self.directed = elements.directed
        self.ways, self.counts = lost.ways, lost.counts
        self.flat = lost.ways.ravel()
        self.spread = np.repeat(lost.counts, COLUMNS)
        self.crossings = np.where(crossings > 0, crossings, np.inf)
        self.crossings[self.total] = np.inf
        self.floor = np.full(self.total + 1, LINK_FLOOR)
        self.floor[self.directed :] = HOST_FLOOR
        self.floor[self.total] = 0.0
        self.shares = self.floor.copy()
        self.active: list[int] = []

    def rates(self) -> Floats:
        """Return the expected losses of each row for each crossing."""
        rates: Floats = self.shares[self.ways].sum(axis=1)
        return rates

    def scores(self, rates: Floats) -> tuple[Floats, Floats]:
        """Return by how much each element would make the losses more likely, logarithmically, and its share then."""
        base = np.repeat(rates, COLUMNS)
        found = np.bincount(self.flat, self.spread, self.total + 1)
        share = np.where(np.isfinite(self.crossings), found / self.crossings, 0.0)
        for _ in range(SCORING_STEPS):
            of = share[self.flat]
            share = np.bincount(self.flat, self.spread * of / (base + of), self.total + 1) / self.crossings
        gain = np.bincount(self.flat, self.spread * np.log1p(share[self.flat] / base), self.total + 1)
        crossed = np.where(np.isfinite(self.crossings), self.crossings, 0.0)
        score = np.where(share > 0, gain - share * crossed, 0.0)
        score[self.directed : self.total] += np.where(share[self.directed : self.total] > 0, HOST_PRIOR, 0.0)
        score[self.total] = 0.0
        return score, share

    def fit(self, steps: int = FITTING_STEPS) -> None:
        """Fit the shares of the active elements together."""
        if not self.active:
            return
        active = np.array(self.active)
        rows = np.isin(self.flat, active)
        of, row = self.flat[rows], np.repeat(np.arange(len(self.counts)), COLUMNS)[rows]
        for _ in range(steps):
            part = self.shares[of] * (self.counts / self.rates())[row]
            new = np.bincount(of, part, self.total + 1)[active] / self.crossings[active]
            self.shares[active] = np.clip(new, self.floor[active], MAX_SHARE)

    def losing(self, element: int) -> float:
        """Return how much less likely the losses are if an active element is as good as the others, logarithmically."""
        rows = (self.ways == element).any(axis=1)
        rates = self.shares[self.ways[rows]].sum(axis=1)
        more = self.shares[element] - self.floor[element]
        gain: float = float((self.counts[rows] * np.log(rates / np.maximum(rates - more, 1e-12))).sum())
        return gain - float(self.crossings[element] * more)

    def likelihood(self) -> float:
        """Return the logarithm of the likelihood of the losses, but for a constant."""
        active = np.array(self.active, np.int64)
        more = float((self.crossings[active] * (self.shares[active] - self.floor[active])).sum())
        return float((self.counts * np.log(np.maximum(self.rates(), 1e-12))).sum()) - more

    def tried(self, active: list[int]) -> tuple[float, Floats]:
        """Return the likelihood with other active elements, and the shares then; nothing changes."""
        before = self.active, self.shares
        self.active, self.shares = list(active), self.floor.copy()
        new = np.array(active, np.int64)
        found = np.bincount(self.flat, self.spread, self.total + 1)[new] / self.crossings[new]
        self.shares[new] = np.maximum(found, self.floor[new])
        self.fit(2 * FITTING_STEPS)
        result = self.likelihood(), self.shares
        self.active, self.shares = before
        return result

    def simplify(self, least: float) -> None:
        """Of the two directions of a link keep one, if the losses are as likely with it alone: no direction is known of them."""
        size = self.directed // 2
        for element in [one for one in self.active if one < size and one + size in self.active]:
            tries = {one: self.tried([other for other in self.active if other != one]) for one in (element, element + size)}
            gone = max(tries, key=lambda one: tries[one][0])
            if self.likelihood() - tries[gone][0] < least:
                self.active.remove(gone)
                self.shares = tries[gone][1]

    def choose_sides(self, sides: list[tuple[list[int], list[int]]]) -> dict[int, float]:
        """Where all links of one side of a switch are active, take those of the other if they are likelier.

        Return, of each element whose other side is nearly as likely, the probability that it is this side.
        """
        certain: dict[int, float] = {}
        for one, other in [*sides, *(side[::-1] for side in sides)]:
            others = [element for element in other if element not in self.active]
            if not one or not others or not set(one) <= set(self.active):
                continue
            found, shares = self.tried([element for element in self.active if element not in one] + others)
            better = found - self.likelihood() - EXTRA * (len(others) - len(one))
            if better > 0:
                self.active = [element for element in self.active if element not in one] + others
                self.shares = shares
            for element in others if better > 0 else one:
                certain[element] = 1.0 / (1.0 + math.exp(-min(abs(better), 50.0)))
        return certain

    def drop(self, element: int) -> None:
        self.active.remove(element)
        self.shares[element] = self.floor[element]

    def prune(self, least: float) -> None:
        """Drop what is not needed beside the others, one at a time; beside a background that explains what those did."""
        dropped = -1
        while dropped:
            dropped = 0
            while self.active:
                worth = {element: self.losing(element) for element in self.active}
                worst = min(worth, key=worth.__getitem__)
                if worth[worst] >= least:
                    break
                self.drop(worst)
                self.fit(FITTING_STEPS // 2)
                dropped += 1
            if dropped:
                self.raise_background()
                self.fit(FITTING_STEPS // 2)

    def raise_background(self) -> None:
        """Take for background what no active element explains."""
        if not len(self.counts):
            return
        others = np.ones(self.total + 1, bool)
        others[self.active] = False
        for _ in range(BACKGROUND_STEPS):
            self._step_background(others)

    def _step_background(self, others: Bools) -> None:
        per_row = self.counts / self.rates()
        inactive = np.where(others, self.shares, 0.0)
        for first, last, floor in ((0, self.directed, LINK_FLOOR), (self.directed, self.total, HOST_FLOOR)):
            part = np.zeros(self.total + 1)
            part[first:last] = inactive[first:last]
            explained = float((per_row * part[self.ways].sum(axis=1)).sum())
            crossed = self.crossings[first:last]
            total = float(crossed[np.isfinite(crossed)].sum())
            self.floor[first:last] = max(floor, explained / total if total else 0.0)
        self.shares[others] = self.floor[others]


def estimate(elements: Elements, lost: Losses, crossings: Floats, least: float) -> Estimate:
    """Say which links lose more than others.

    ``crossings`` are those of each element in the same time, ``least`` is a likelihood ratio's logarithm as of `threshold`.
    """
    fit = _Fit(elements, lost, crossings)
    if not len(lost.counts):
        return Estimate(np.zeros(elements.total), [], LINK_FLOOR)
    for _ in range(ROUNDS):
        score, share = fit.scores(fit.rates())
        score[fit.active] = 0.0
        best = fit.ways[np.arange(len(fit.counts)), score[fit.ways].argmax(axis=1)]
        won = np.bincount(best, fit.counts, elements.total + 1)
        seen = np.bincount(fit.flat, fit.spread, elements.total + 1)
        chosen = np.flatnonzero((score >= least) & (won >= 0.5 * seen))
        chosen = chosen[np.argsort(-score[chosen])][: max(0, MAX_EXPLAINING - len(fit.active))]
        if not len(chosen):
            break
        fit.active += chosen.tolist()
        fit.shares[chosen] = np.minimum(share[chosen], MAX_SHARE)
        fit.fit()
        fit.raise_background()
        fit.prune(least)
    fit.fit()
    fit.simplify(least)
    certain = fit.choose_sides(_sides(elements, fit))
    links = [element for element in fit.active if element < fit.directed]
    suspects = [
        found._replace(confidence=min(found.confidence, certain.get(element, 1.0)))
        for element in links
        if _is_said_by_several(elements, fit, lost, element, least) and (found := _suspect(fit, lost, element))
    ]
    per_row = np.repeat(fit.counts / fit.rates(), COLUMNS)
    losing = np.bincount(fit.flat, per_row * fit.shares[fit.flat], elements.total + 1) / fit.crossings
    suspects.sort(key=lambda one: (-one.confidence, -one.loss, one.link))
    return Estimate(np.minimum(losing[: elements.total], 1.0), suspects, float(fit.floor[0]))


def _sides(elements: Elements, fit: _Fit) -> list[tuple[list[int], list[int]]]:
    """Return the links below and above each aggregation switch that has active ones, by direction, as far as they are crossed."""
    tree, size, cores = elements.tree, elements.links, elements.tree.cores_of_group
    switches = set()
    for element in fit.active:
        if element < fit.directed:
            link, down = element % size, element >= size
            if link < elements.lower:
                switches.add((link // tree.aggregations // tree.edges, link % tree.aggregations, down))
            else:
                switches.add((*divmod((link - elements.lower) // cores, tree.aggregations), down))
    found = []
    for pod, j, down in sorted(switches):
        below = [(pod * tree.edges + edge) * tree.aggregations + j for edge in range(tree.edges)]
        above = [elements.lower + (pod * tree.aggregations + j) * cores + i for i in range(cores)]
        sides = [[link + size * down for link in side if np.isfinite(fit.crossings[link])] for side in (below, above)]
        if min(map(len, sides)) <= MAX_SIDE:
            found.append((sides[0], sides[1]))
    return found


def _is_said_by_several(elements: Elements, fit: _Fit, lost: Losses, element: int, least: float) -> bool:
    """Tell whether losses name an element, too, if who reports most of them had reported no more than the next.

    That is a host at a link to a rack, and a rack above: what one alone says decides nothing. Nor does one burst: the same has to
    hold if the two moments with most losses had no more than the third.
    """
    rows = np.flatnonzero((fit.ways == element).any(axis=1))
    size = 1 if element % elements.links < elements.lower else elements.tree.hosts_per_edge
    return all(
        _names(fit, element, rows, _levelled(fit.counts[rows], key, most), least)
        for key, most in ((lost.hosts[rows] // size, 1), (lost.slots[rows], 2))
    )


def _levelled(counts: Floats, key: Ints, most: int) -> Floats:
    """Return counts of which those with so many keys that have most are made no more than those with the next one."""
    _, of = np.unique(key, return_inverse=True)
    sums = np.bincount(of, counts)
    next_one = np.sort(sums)[-1 - most] if len(sums) > most else 0.0
    return counts * np.minimum(1.0, next_one / sums)[of]


def _names(fit: _Fit, element: int, rows: Ints, counts: Floats, least: float) -> bool:
    """Tell whether so many losses of some rows would name an element."""
    base = fit.shares[fit.ways[rows]].sum(axis=1) - (fit.shares[element] - fit.floor[element])
    share = counts.sum() / fit.crossings[element]
    for _ in range(FITTING_STEPS):
        share = float((counts * share / (base + share)).sum()) / fit.crossings[element]
    return bool((counts * np.log1p(share / base)).sum() - share * fit.crossings[element] >= least)


def _suspect(fit: _Fit, lost: Losses, element: int) -> Suspect | None:
    """Return an active link direction with its certainty; None if too few hosts speak for it."""
    size = fit.directed // 2
    rates = fit.rates()
    rows = (fit.ways == element).any(axis=1)
    mine = rows & (fit.shares[element] >= 0.5 * rates)
    by_host = np.sort(np.bincount(lost.hosts[mine], fit.counts[mine]))[::-1]
    hosts = int((by_host > 0).sum())
    if hosts < MIN_HOSTS or by_host[2:].sum() < OTHERS * by_host.sum():
        return None
    without = rates - np.where(rows, fit.shares[element] - fit.floor[element], 0.0)
    score, _ = fit.scores(np.maximum(without, 1e-12))
    others = [other for other in fit.active if other != element]
    score[others] = 0.0
    score = np.exp(np.clip(score[np.unique(fit.ways[rows])] - score[element], -700, 50))
    where = np.unique(fit.ways[rows])
    certain = 1.0 / float(score[where != fit.total].sum())
    reverse = (element + size) % fit.directed
    both = certain * (1.0 + float(score[where == reverse].sum()))
    down: bool | None = element >= size
    if certain < ALMOST_SURE <= both:
        down = None
    share = min(1.0, float(fit.shares[element]))
    return Suspect(element % size, down, share, min(1.0, both if down is None else certain), hosts)


MIN_HOSTS = 3
"""So many hosts at least have to report losses of a link."""
OTHERS = 0.1
"""Without the two hosts that report most, at least such a part has to be left: two liars are not enough."""


def named(found: list[Suspect], least_loss: float) -> list[Suspect]:
    """Return those that are certain enough to be named, and lose so much."""
    return [one for one in found if one.confidence >= ALMOST_SURE and one.loss >= least_loss]
