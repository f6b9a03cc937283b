"""Measures of one run from the throughput of its flows over time, in short intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.core.records import RunRecord

START_SHARE = 0.1
"""Of the time in which all flows send, at its beginning: slow start."""
FULL = 0.9
"""Share of its later rate at which a flow is back."""
LATER = 1 / 3
"""Share of the time after a failure, at its end, in which the rate is final."""
ROUNDING = 1e-6
"""Of the number of intervals before a failure."""
WINDOW = 3
"""Intervals in which a flow has to have that rate on average."""


def of_series(run: RunRecord) -> dict[str, float]:
    """Return measures of a run with series; without them, none.

    Returns:
        While all flows send, after slow start: ``steady_minimum`` and ``steady_maximum`` (Mbit/s of a flow, its mean over
        time), ``steady_spread`` (their difference, in percent of the mean). With a failure instead ``before`` and ``after``
        (Mbit/s of the first flow), ``least`` (in an interval after the failure), ``back_ms``: from the failure until the next
        intervals have 90% of the later rate; all of the rest if that is below half of the rate before.
    """
    if not run.series or not run.series_ms:
        return {}
    failures = [float(second) for second, _ in run.events if second > 0]
    if failures:
        return _of_failure(next(iter(run.series.values())), run.series_ms, 1000 * min(failures))
    length = min(map(len, run.series.values())) - 1  # in the last interval a flow ends
    begin = math.ceil(START_SHARE * length)
    if length - begin < 1:
        return {}
    means = [math.fsum(series[begin:length]) / (length - begin) for series in run.series.values()]
    mean = math.fsum(means) / len(means)
    return {
        "steady_minimum": min(means),
        "steady_maximum": max(means),
        "steady_spread": 100 * (max(means) - min(means)) / mean if mean else 0.0,
    }


def _of_failure(series: Sequence[float], each_ms: float, failed_ms: float) -> dict[str, float]:
    first = int(failed_ms / each_ms + ROUNDING)
    before, after = series[first // 2 : first], series[first:-1]
    if len(after) < 2 * WINDOW or not before:
        return {}
    before_mean = math.fsum(before) / len(before)
    tail = after[-max(WINDOW, int(len(after) * LATER)) :]
    later = math.fsum(tail) / len(tail)
    places = range(len(after) - WINDOW + 1)
    fast = [place for place in places if math.fsum(after[place : place + WINDOW]) >= FULL * later * WINDOW]
    # The packets on their way when the link fails still arrive: what counts is what follows the first interval below.
    slow = next((place for place, rate in enumerate(after) if rate < FULL * later), 0)
    back = next((place for place in fast if place >= slow), len(after)) if later > before_mean / 2 else len(after)
    return {
        "before": before_mean,
        "after": later,
        "least": min(after),
        "back_ms": back * each_ms,
    }
