"""The summary of a directory of results by scheme."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from experiments.core.records import FlowRecord, RunSettings
from experiments.report.collect import Collected, ExcludedRun
from experiments.report.faults import Effect, Recoveries, effects, recoveries
from experiments.report.statistics import (
    PACKET_BYTES,
    Completion,
    Distribution,
    Interval,
    LossStatistics,
    RatioStatistics,
    Slowdown,
    completion,
    distribution,
    fairness,
    ideal_seconds,
    losses,
    mean_interval,
    ratio,
    slowdown,
)


@dataclass(frozen=True)
class Collective:
    """Completion times of a collective operation in seconds, of the runs in which it was complete in time.

    Attributes:
        job: The number of one of several jobs; 0 for the whole.
    """

    job: int
    runs: int
    completed: int
    mean: float | None
    longest: float | None
    interval: Interval | None
    ratio: RatioStatistics | None


@dataclass(frozen=True)
class SchemeSummary:
    """One scheme, over all flows of its valid runs.

    Attributes:
        mbit, kinds: Throughput of flows in Mbit/s, and that by kind of flow.
        interval: Of the mean of the means of runs; None for one run.
        ratio: To the mean of the base scheme.
        fairness: Mean of the Jain indices of runs: only concurrent flows share capacity.
        completion: Completion times by kind of transfer with a size.
        slowdown: Slowdown by kind of transfer with a size.
        collectives: Of the whole operation, and of each of several jobs.
    """

    scheme: str
    seeds: tuple[int, ...]
    invalid_share: float
    mbit: Distribution
    interval: Interval | None
    ratio: RatioStatistics | None
    fairness: float | None
    losses: LossStatistics
    kinds: dict[str, Distribution]
    completion: dict[str, Completion]
    slowdown: dict[str, Slowdown]
    recoveries: Recoveries | None
    bad_link: Effect | None = None
    collectives: tuple[Collective, ...] = ()


@dataclass(frozen=True)
class RunSummary:
    """All schemes of a directory: the base scheme, which the others are compared with, then these by descending mean."""

    settings: RunSettings
    base: str
    schemes: Sequence[SchemeSummary]
    excluded: Sequence[ExcludedRun]
    notes: Sequence[str]


def summarize(collected: Collected, base: str = "sopa") -> RunSummary:
    """Summarize results, compared with the base scheme, or with the best scheme if the base has no valid run."""
    means: dict[str, dict[int, float]] = {scheme: {} for scheme in collected.schemes()}
    for (scheme, seed), flows in collected.runs.items():
        means[scheme][seed] = _mean([flow.mbit for flow in flows])
    totals = {scheme: _mean([flow.mbit for flow in collected.flows(scheme)]) for scheme in means}
    order = sorted(means, key=lambda scheme: (-totals[scheme], scheme))
    notes = [
        f"excluded: {one.scheme} with seed {one.seed}: {one.why}"
        for one in sorted(collected.excluded, key=lambda one: (one.scheme, one.seed))
    ]
    if base not in means:
        notes.append(f"no valid run of {base}: compared with {order[0]}, which has the best mean")
        base = order[0]
    seeds = {scheme: tuple(sorted(of_scheme)) for scheme, of_scheme in means.items()}
    if len(set(seeds.values())) > 1:
        notes.append("schemes ran with different seeds: ratios use the seeds in common with the base")
    order.sort(key=lambda scheme: scheme != base)
    schemes = [
        replace(
            _of_scheme(collected, scheme, means[scheme], ratio(means[scheme], means[base])),
            collectives=tuple(_collectives(collected, scheme, base)),
        )
        for scheme in order
    ]
    late = sum(one.count - one.completed for scheme in schemes for one in scheme.completion.values())
    if late:
        notes.append(f"{late} transfers did not end in time: they count in the median and 99th percentile, but not in the mean")
    return RunSummary(collected.settings, base, schemes, collected.excluded, notes)


def _of_scheme(collected: Collected, scheme: str, means: dict[int, float], against: RatioStatistics | None) -> SchemeSummary:
    flows = collected.flows(scheme)
    invalid = sum(one.scheme == scheme for one in collected.excluded)
    runs = [[flow.mbit for flow in collected.runs[scheme, seed]] for seed in sorted(means)]
    sized = _by_kind([flow for flow in flows if flow.size is not None])
    options = collected.shown[scheme].options
    packet, delay = int(options.get("packet_bytes", PACKET_BYTES)), options.get("link_delay_ns", 0) / 1e9
    ideal = partial(ideal_seconds, tree=collected.settings.tree(), packet=packet, delay=delay)
    indices = [index for index in map(fairness, runs) if index is not None]
    return SchemeSummary(
        scheme,
        tuple(sorted(means)),
        invalid / (invalid + len(means)),
        distribution([flow.mbit for flow in flows]),
        mean_interval([means[seed] for seed in sorted(means)]),
        against,
        _mean(indices) if indices else None,
        losses(flows),
        {kind: distribution([flow.mbit for flow in of_kind]) for kind, of_kind in _by_kind(flows).items()},
        {kind: completion(of_kind) for kind, of_kind in sized.items()},
        {kind: slowdown(of_kind, ideal) for kind, of_kind in sized.items()},
        recoveries(collected.recoveries.get(scheme, ())),
        effects(collected.effects.get(scheme, ())),
    )


def _collectives(collected: Collected, scheme: str, base: str) -> Iterator[Collective]:
    runs = [times for (name, _), times in collected.collectives.items() if name == scheme]
    for job in range(max(map(len, runs), default=0)):
        times = _times(collected, scheme, job)
        each = list(times.values())
        yield Collective(
            job,
            len(runs),
            len(each),
            _mean(each) if each else None,
            max(each, default=None),
            mean_interval(each),
            ratio(times, _times(collected, base, job)),
        )


def _times(collected: Collected, scheme: str, job: int) -> dict[int, float]:
    of_scheme = {seed: times[job] for (name, seed), times in sorted(collected.collectives.items()) if name == scheme}
    return {seed: time for seed, time in of_scheme.items() if time is not None}


def _by_kind(flows: Sequence[FlowRecord]) -> dict[str, list[FlowRecord]]:
    kinds = sorted({flow.kind for flow in flows})
    return {kind: [flow for flow in flows if flow.kind == kind] for kind in kinds}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
