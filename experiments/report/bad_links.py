"""What a bad link costs: throughput before and after it has become bad, and the truth of what it did. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from experiments.core.records import RunRecord

SETTLED = 0.5
"""Share of the time before the link becomes bad after which connections are taken to have their rates."""


@dataclass(frozen=True)
class Effect:
    """Mean throughput of flows in Mbit/s beside a bad link, in one run or as the mean over several.

    Attributes:
        before, after: Of all flows.
        crossing_before, crossing_after: Of those with a candidate path over the bad direction.
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


def over_runs(found: Sequence[Effect]) -> Effect | None:
    """Return the means of rates and the sums of packets over several runs; None for no run."""
    if not found:
        return None
    counted = [one.packets for one in found if one.packets is not None]

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    return Effect(
        mean([one.before for one in found]),
        mean([one.after for one in found]),
        mean([one.crossing_before for one in found]),
        mean([one.crossing_after for one in found]),
        sum(one.lost for one in found),
        sum(one.corrupted for one in found),
        sum(counted) if counted else None,
    )


def _mean(run: RunRecord, flows: Collection[str], first: int, last: int) -> float:
    """Return the mean rate of flows in some intervals. Nothing is received in those that a series does not have."""
    return math.fsum(rate for flow in flows for rate in run.series[flow][first:last]) / ((last - first) * len(flows))
