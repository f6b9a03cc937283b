"""What all reports say of the links, second by second: losses by windows, delays by least squares. Pure.

Two windows: half a minute shows what loses half a percent or more, five minutes what loses a tenth of a percent. What half a minute
contradicts has healed, and five minutes are not waited for. Where hosts send self-probes, the last three seconds are looked at
besides, whenever reports have come.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sopa_ryu.health.elements import Elements
from sopa_ryu.health.estimate import DAY_SECONDS, MIN_HOSTS, Estimate, Suspect, estimate, named, threshold
from sopa_ryu.health.records import RECORD, Bools, Floats, Records, Window, by_moment, crossings, losses, read, without

STEPS = 40
SMOOTHING = 0.3
"""The weight of the newest estimate."""
RIDGE = 0.002
"""Of the weight of an element's probes: what paths do not tell apart is shared evenly."""
EVALUATION_SECONDS = 2
DELAY_SECONDS = 10
SHORT, LONG = (30, 1), (30, 10)
"""Slots and their seconds."""
LAST_SLOTS, LAST_MS = 12, 250
"""Of the last seconds: slots, and their milliseconds; each is one evaluation."""
MOMENT_MS = 375
"""No burst of less is in three of such slots: hosts tell moments as eighths of a second, and reports wait for a quarter of one."""
MUTED_SECONDS = 5
"""After an element has failed or come back, reports are still of the time before."""
MAX_RATE, MAX_AT_ONCE = 220.0, 1200.0
"""Probes a second of a host, with what clocks differ, and as many as it may report after some seconds without a connection."""
DEFAULT_LEAST_LOSS = 0.0005
HEALED_BY_CHANCE = 1e-4
"""A link has healed if half a minute with as few losses is less likely than this."""


class LinkDelays:
    """Delays of links, there and back, in microseconds.

    A path's delay is the sum of those of its links and of its two hosts; what probes do not tell apart, as a part that is the same
    for all, is shared by the elements concerned in equal parts. Solved by conjugate gradients on the normal equations, from the
    last solution, with a small pull towards it.
    """

    def __init__(self, elements: Elements) -> None:
        self._elements = elements
        self._size = elements.links + elements.hosts
        self._last: Floats | None = None
        self.microseconds: Floats = np.zeros(elements.links)
        self.known = np.zeros(elements.links, bool)

    def take(self, records: Records) -> None:
        """Take in the records of some seconds."""
        came = (records.mean > 0) & (records.probes > records.out + records.back + records.lost)
        if not came.any():
            return
        size, none = self._size, self._elements.links
        links = records.links[:, came]
        src, dst = records.src[came], records.dst[came]
        hosts = self._elements.links + np.stack((src, np.where(src == dst, self._elements.hosts, dst)))
        ways = np.concatenate((np.where(links == none, size, links), hosts))
        weight = (records.probes - records.out - records.back - records.lost)[came].astype(float)
        target = records.mean[came].astype(float)
        share = np.append(np.bincount(ways.ravel(), np.tile(weight, 6), size + 1)[:size], 0.0)
        start: Floats | None = self._last
        if start is None:  # all alike
            even = target / (ways < size).sum(axis=0)
            summed: Floats = np.bincount(ways.ravel(), np.tile(weight * even, 6), size + 1).astype(float)
            summed[size] = 0.0
            start = summed / np.maximum(share, 1.0)
        change = self._solved(ways, weight, target - start[ways].sum(axis=0), RIDGE * share)
        self._last = np.maximum(start + change, 0.0)
        seen = share[:none] > 0
        fresh = self._last[:none]
        smooth = np.where(self.known, self.microseconds + SMOOTHING * (fresh - self.microseconds), fresh)
        self.microseconds = np.where(seen, smooth, self.microseconds)
        self.known |= seen

    def _solved(self, ways: np.ndarray, weight: Floats, target: Floats, ridge: Floats) -> Floats:
        size = self._size

        def back(rows: Floats) -> Floats:
            found: Floats = np.bincount(ways.ravel(), np.tile(rows, 6), size + 1).astype(float)
            found[size] = 0.0
            return found

        change = np.zeros(size + 1)
        residual = back(weight * target)
        scale = 1.0 / np.maximum(back(weight) + ridge, 1e-9)
        direction = scale * residual
        before = float(residual @ direction)
        for _ in range(STEPS):
            image = back(weight * direction[ways].sum(axis=0)) + ridge * direction
            bend = float(direction @ image)
            if bend <= 1e-12 or before <= 1e-9:
                break
            change += before / bend * direction
            residual -= before / bend * image
            turned = scale * residual
            now = float(residual @ turned)
            direction = turned + now / before * direction
            before = now
        return change


class Told(NamedTuple):
    """One report."""

    host: int
    """The number of the reporting host."""
    records: bytes


class Health(NamedTuple):
    """What is known of the links at one moment."""

    loss: Floats
    """The share that each link loses, first all upwards and then all downwards; not a number where nothing was crossed."""
    delay_us: Floats
    """There and back; not a number where it is not known."""
    suspects: list[Suspect]
    background: float
    """The share that healthy links lose."""


class Observer:
    """Counts and concludes.

    ``least_loss`` is the least share lost that makes a link a suspect, ``self_probes`` tells whether hosts send such.
    """

    def __init__(self, elements: Elements, least_loss: float = DEFAULT_LEAST_LOSS, self_probes: bool = False) -> None:
        self.elements, self.least_loss, self.self_probes = elements, least_loss, self_probes
        self.forged: Counter[int] = Counter()
        self._windows = (Window(elements, *SHORT), Window(elements, *LONG))
        self._delays = LinkDelays(elements)
        self._present = np.zeros(elements.links, bool)
        for number, _ in elements.present:
            self._present[number] = True
        self._last_seconds, self._has_lost = Window(elements, LAST_SLOTS, 1), False
        alarms = 2 if self_probes else 1  # either kind of windows has half of them
        per_day = alarms * len(self._windows) * DAY_SECONDS / EVALUATION_SECONDS
        self._threshold = threshold(2 * len(elements.present), per_day)
        self._threshold_at_once = threshold(2 * len(elements.present), alarms * DAY_SECONDS * 1000 / LAST_MS)
        self._answering = np.zeros(elements.hosts, bool)
        self._muted = np.full(elements.total + 1, -1)
        self._failed = np.zeros(elements.total + 1, bool)
        self._last: list[Records] = []
        self._left = np.full(elements.hosts, float(MAX_AT_ONCE))
        self._heard = np.zeros(elements.hosts, np.int64)

    def answers(self, hosts: Bools) -> None:
        """Note which hosts answer probes: records of others are forged."""
        self._answering = hosts

    def failed(self, links: Iterable[int], second: int) -> None:
        """Note the links that have failed, all of them: what is lost there is no news, and before or after says nothing."""
        now = np.zeros(self.elements.total + 1, bool)
        for link in links:
            now[[link, link + self.elements.links]] = True
        changed = now != self._failed
        self._failed = now
        if changed.any():
            self._muted[changed] = second + MUTED_SECONDS
            for window in (*self._windows, self._last_seconds):
                window.forget(changed)

    def take(self, reports: list[Told], now: float) -> None:
        """Take in the reports until a moment, in seconds; `forged` counts records by the host that reported them."""
        second = int(now)
        reports = self._affordable(reports, second)
        if not reports:
            return
        sizes = [len(report.records) // RECORD.itemsize for report in reports]
        src = np.repeat([report.host for report in reports], sizes)
        whole = b"".join(report.records for report in reports)
        records, right = read(self.elements, self._present, self._answering, src, whole, self.self_probes)
        for host, count in zip(*np.unique(src[~right], return_counts=True), strict=True):
            self.forged[int(host)] += int(count)
        crossed = crossings(self.elements, records)
        muted = self._failed | (self._muted >= second)
        crossed[muted] = 0.0
        lost = without(losses(self.elements, records), muted)
        told_ms = int(1000 * now)
        for window in self._windows:
            window.take(second, crossed, by_moment(lost, told_ms, 1000 * window.seconds))
        if self.self_probes:
            self._last_seconds.take(told_ms // LAST_MS, crossed, by_moment(lost, told_ms, MOMENT_MS))
            self._has_lost |= len(lost.counts) > 0
        if second % DELAY_SECONDS >= DELAY_SECONDS - 2:
            self._last.append(records)

    def _affordable(self, reports: list[Told], second: int) -> list[Told]:
        """Return the reports of no more probes than their hosts can have sent; each record of others counts as forged."""
        kept = []
        for report in reports:
            host, probes = report.host, int(np.frombuffer(report.records, RECORD)["probes"].sum(dtype=np.int64))
            since = second - int(self._heard[host])
            left = min(MAX_AT_ONCE, self._left[host] + MAX_RATE * since)
            self._heard[host] = second
            if probes > left:
                self._left[host] = left
                self.forged[host] += len(report.records) // RECORD.itemsize
                continue
            self._left[host] = left - probes
            kept.append(report)
        return kept

    def at_once(self) -> list[Suspect]:
        """Return the links that the losses of the last seconds alone name, if there have been more since the last call."""
        has_lost, self._has_lost = self._has_lost, False
        lost = self._last_seconds.lost()
        if not has_lost or len(lost.counts) < MIN_HOSTS:
            return []
        return self._named(estimate(self.elements, lost, self._last_seconds.crossings, self._threshold_at_once))

    def conclude(self) -> Health:
        """Return what is known now."""
        size = self.elements.links
        if self._last:
            self._delays.take(_joined(self._last))
            self._last = []
        short, long = map(self._estimate, self._windows)
        gone = [one for one in self._named(long) if self._has_healed(one, short)]
        if gone:
            healed = np.zeros(self.elements.total + 1, bool)
            for one in gone:
                healed[self._ways(one)] = True
            self._windows[1].forget(healed)
            long = self._estimate(self._windows[1])
        suspects = {(one.link, one.down): one for one in self._named(long)}
        for one in self._named(short):  # the newer says more of how much
            known = suspects.get((one.link, one.down))
            if known is None or one.confidence >= known.confidence:
                suspects[one.link, one.down] = one
        crossed = self._windows[1].crossings[: 2 * size]
        newest = np.where(self._windows[0].crossings[: 2 * size] > 0, short.shares[: 2 * size], np.nan)
        loss = np.where(crossed > 0, long.shares[: 2 * size], newest)
        found = sorted(suspects.values(), key=lambda one: (-one.confidence, -one.loss, one.link))
        for one in found:
            loss[self._ways(one)] = one.loss
        delay = np.where(self._delays.known & (crossed[:size] > 0), self._delays.microseconds, np.nan)
        return Health(loss, delay, found, max(short.background, long.background))

    def unknown(self, health: Health) -> int:
        """Return how many links no probe has crossed in five minutes, of those that are there and have not failed."""
        size = self.elements.links
        silent = np.isnan(health.loss[:size]) & np.isnan(health.loss[size:])
        return int((silent & self._present & ~self._failed[:size]).sum())

    def _estimate(self, window: Window) -> Estimate:
        return estimate(self.elements, window.lost(), window.crossings, self._threshold)

    def _ways(self, one: Suspect) -> list[int]:
        """Return a suspect's elements: the direction, or both if the losses do not tell."""
        return [one.link + down * self.elements.links for down in ((False, True) if one.down is None else (one.down,))]

    def _has_healed(self, one: Suspect, now: Estimate) -> bool:
        """Tell whether the last half minute has had far fewer losses than the link's share says (Poisson)."""
        ways = self._ways(one)
        crossed = self._windows[0].crossings[ways]
        mean = float(crossed.sum()) * one.loss
        if not mean:
            return False
        had = range(int(np.ceil((now.shares[ways] * crossed).sum())) + 1)
        return sum(math.exp(number * math.log(mean) - mean - math.lgamma(number + 1)) for number in had) < HEALED_BY_CHANCE

    def _named(self, estimate: Estimate) -> list[Suspect]:
        return [one for one in named(estimate.suspects, self.least_loss) if not self._failed[one.link]]


def _joined(parts: list[Records]) -> Records:
    return Records(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))
