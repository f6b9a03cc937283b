"""Recovery of flows after a failure, computed from throughput in short intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
        mean, longest: Time from the failure until the rate of a flow over the next second is at least 90% of its later rate:
            mean and maximum over all flows.
    """

    flows: int
    silence: float
    mean: float
    longest: float


@dataclass(frozen=True)
class Recoveries:
    """The recoveries of all runs of a scheme.

    Attributes:
        silence, mean, longest: Means over runs.
        worst_silence, worst: Maxima over runs.
    """

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


def over_runs(found: Sequence[Recovery]) -> Recoveries | None:
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
