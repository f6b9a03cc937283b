"""How flows get over a failure, from what arrived in short intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from experiments.core.records import RunRecord

FULL = 0.9
"""Of a flow's later rate: less than TCP's own ups and downs would never be told from them."""
WINDOW_SECONDS = 1.0
LATER = 1 / 3
"""Of the time after the failure: its last part, in which nothing changes any more."""


@dataclass(frozen=True)
class Recovery:
    """How one run's flows got over a failure, in seconds; those that get nothing later are not among them.

    Attributes
    ----------
    flows : int
    silence : float
        The longest time in which any of them got nothing.
    mean, longest : float
        From the failure until a flow's rate over the next second is at least 90% of what it is later: over all flows, and of the
        one that takes longest.
    """

    flows: int
    silence: float
    mean: float
    longest: float


@dataclass(frozen=True)
class Recoveries:
    """The same over a scheme's runs.

    Attributes
    ----------
    runs : int
    silence, mean, longest : float
        Mean over runs.
    worst_silence, worst : float
        Of all runs.
    """

    runs: int
    silence: float
    worst_silence: float
    mean: float
    longest: float
    worst: float


def recovery(run: RunRecord) -> Recovery | None:
    """How a run's flows got over its failure; None if it had none, or ended with it."""
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
    """The same over several runs; None for no run."""
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
    """How many intervals pass until the next ``window`` ones reach a mean rate; all of them if none do."""
    sums = [0.0, *accumulate(series)]
    starts = range(len(series) - window + 1)
    return next((start for start in starts if sums[start + window] - sums[start] >= rate * window), len(series))
