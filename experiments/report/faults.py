"""What a fault costs, from throughput in short intervals: recovery of flows after a failure, and what a bad link leaves. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from experiments.core.records import RunRecord

FULL = 0.9
"""Share of the later rate of a flow. A higher one could not be distinguished from the variation of TCP."""
WINDOW_SECONDS = 1.0
LATER = 1 / 3
"""Share of the time after the failure, at its end, in which the rate is considered final."""


@dataclass(frozen=True)
class Recovery:
    """The recovery of the flows of one run, in seconds. Flows without traffic at the end are excluded.

    Attributes:
        silence: Longest time in which any flow received nothing.
        mean, longest: Over all flows: from the failure until the rate over the next second is at least 90% of the later rate.
    """

    flows: int
    silence: float
    mean: float
    longest: float


@dataclass(frozen=True)
class Recoveries:
    """The recoveries of all runs of a scheme: means over runs, and as ``worst`` maxima."""

    runs: int
    silence: float
    worst_silence: float
    mean: float
    longest: float
    worst: float


def recovery(run: RunRecord) -> Recovery | None:
    """Return the recovery of the flows of a run; None without a failure, or if the run ended with it."""
    if run.failed_at is None or not run.series_ms:
        return None
    seconds = run.series_ms / 1000
    first = math.ceil(run.failed_at / seconds)
    length = max(map(len, run.series.values()), default=0)
    window = round(WINDOW_SECONDS / seconds)
    if length - first <= 3 * window:
        return None
    silences, times = [], []
    for series in run.series.values():
        after = [*series, *[0.0] * (length - len(series))][first:]
        tail = after[-int(len(after) * LATER) :]
        later = math.fsum(tail) / len(tail)
        if later > 0:
            silences.append(_longest_silence(after) * seconds)
            times.append(_until(after, FULL * later, window) * seconds)
    if not times:
        return None
    return Recovery(len(times), max(silences), math.fsum(times) / len(times), max(times))


def recoveries(found: Sequence[Recovery]) -> Recoveries | None:
    """Return the summary of several runs; None for no run."""
    if not found:
        return None
    count = len(found)
    return Recoveries(
        count,
        math.fsum(one.silence for one in found) / count,
        max(one.silence for one in found),
        math.fsum(one.mean for one in found) / count,
        math.fsum(one.longest for one in found) / count,
        max(one.longest for one in found),
    )


def _longest_silence(series: Sequence[float]) -> int:
    longest = now = 0
    for rate in series:
        now = now + 1 if rate == 0 else 0
        longest = max(longest, now)
    return longest


def _until(series: Sequence[float], rate: float, window: int) -> int:
    """Return the number of intervals until the next ``window`` intervals reach a mean rate; all if they never do."""
    sums = [0.0, *accumulate(series)]
    starts = range(len(series) - window + 1)
    return next((start for start in starts if sums[start + window] - sums[start] >= rate * window), len(series))


SETTLED = 0.5
"""Share of the time before the link becomes bad after which connections are taken to have their rates."""


@dataclass(frozen=True)
class Effect:
    """Mean throughput of flows in Mbit/s beside a bad link, in one run or as the mean over several.

    Attributes:
        crossing_before, crossing_after: Of the flows with a candidate path over the bad direction.
        lost, corrupted: Packets that the link lost, or flipped a bit in, until the end.
        packets: Those that it was given meanwhile; None where nothing counts them.
    """

    before: float
    after: float
    crossing_before: float
    crossing_after: float
    lost: int
    corrupted: int
    packets: int | None

    @property
    def ratio(self) -> float:
        """Share of the throughput that is left."""
        return self.after / self.before if self.before else 0.0

    @property
    def crossing_ratio(self) -> float:
        """Share of the throughput that is left to flows that may cross the link."""
        return self.crossing_after / self.crossing_before if self.crossing_before else 0.0


def effect(run: RunRecord) -> Effect | None:
    """Return what the bad links of a run cost; None without one, or without throughput over time on both sides of it."""
    if not run.bad or not run.series_ms or not run.series:
        return None
    at = min(one["at"] for one in run.bad) / (run.series_ms / 1000)
    length = max(map(len, run.series.values())) - 1  # the last interval is not whole
    first, last = math.ceil(SETTLED * at), math.floor(at)
    if last <= first or length <= math.ceil(at):
        return None
    crossing = {str(number) for one in run.bad for number in one["transfers"]} & run.series.keys()
    if not crossing:
        return None
    spans = ((first, last), (math.ceil(at), length))
    before, after = (_mean(run, run.series.keys(), *span) for span in spans)
    crossing_before, crossing_after = (_mean(run, crossing, *span) for span in spans)
    counted = [one["packets"] for one in run.bad if one["packets"] is not None]
    lost, corrupted = (sum(one[name] for one in run.bad) for name in ("lost", "corrupted"))
    return Effect(before, after, crossing_before, crossing_after, lost, corrupted, sum(counted) if counted else None)


def effects(found: Sequence[Effect]) -> Effect | None:
    """Return the means of rates and the sums of packets over several runs; None for no run."""
    if not found:
        return None
    counted = [one.packets for one in found if one.packets is not None]
    rates = ("before", "after", "crossing_before", "crossing_after")
    return Effect(
        **{name: math.fsum(getattr(one, name) for one in found) / len(found) for name in rates},
        lost=sum(one.lost for one in found),
        corrupted=sum(one.corrupted for one in found),
        packets=sum(counted) if counted else None,
    )


def _mean(run: RunRecord, flows: Collection[str], first: int, last: int) -> float:
    """Return the mean rate of flows in some intervals. Nothing is received in those that a series does not have."""
    return math.fsum(rate for flow in flows for rate in run.series[flow][first:last]) / ((last - first) * len(flows))
