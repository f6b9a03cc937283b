"""Reads and checks a directory of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.core.records import FlowRecord, Results, ResultsError, RunRecord, RunSettings
from experiments.report.faults import Effect, Recovery, effect, recovery
from topologies import Clos


@dataclass(frozen=True)
class ExcludedRun:
    """A run that is excluded from the report."""

    scheme: str
    seed: int
    why: str


@dataclass(frozen=True)
class Collected:
    """The contents of a directory of results: the valid runs, by scheme and seed.

    Attributes:
        shown: From each scheme to the run that is drawn over time: the valid run with the lowest seed.
        recoveries, effects: By scheme, of runs with a failure, and of runs with a bad link.
        collectives: Completion times in seconds, of the whole and of each of several jobs; None of what was not complete in time.
    """

    settings: RunSettings
    runs: dict[tuple[str, int], Sequence[FlowRecord]]
    excluded: Sequence[ExcludedRun]
    shown: dict[str, RunRecord]
    recoveries: dict[str, list[Recovery]]
    effects: dict[str, list[Effect]]
    collectives: dict[tuple[str, int], tuple[float | None, ...]]

    def schemes(self) -> list[str]:
        """Return the schemes with a valid run, by name."""
        return sorted({scheme for scheme, _ in self.runs})

    def flows(self, scheme: str) -> list[FlowRecord]:
        """Return all flows of the valid runs of a scheme."""
        return [flow for (name, _), flows in sorted(self.runs.items()) if name == scheme for flow in flows]


def collect(directory: Path) -> Collected:
    """Read a directory of results.

    Raises `ResultsError` if they are missing, damaged or all invalid. The message says what to do.
    """
    results = Results(directory)
    settings = results.settings()
    tree = settings.tree()
    flows: dict[tuple[str, int], list[FlowRecord]] = {}
    try:
        for flow in results.flows():
            _check(flow, tree, directory)
            flows.setdefault((flow.scheme, flow.seed), []).append(flow)
        empty = [file for file in sorted(directory.glob("*.jsonl")) if not file.read_text().strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"results in {directory} cannot be read ({error}): delete that file and run again") from error

    runs: dict[tuple[str, int], Sequence[FlowRecord]] = {}
    shown: dict[str, RunRecord] = {}
    recoveries: dict[str, list[Recovery]] = {}
    effects: dict[str, list[Effect]] = {}
    collectives: dict[tuple[str, int], tuple[float | None, ...]] = {}
    excluded = []
    for file in empty:
        scheme, _, number = file.stem.rpartition("-")
        excluded.append(ExcludedRun(scheme, int(number) if number.isdecimal() else 0, "it has no flows"))
    for (scheme, seed), of_run in sorted(flows.items()):
        run = results.run(scheme, seed)
        if run.valid and all(flow.valid for flow in of_run):
            runs[scheme, seed] = of_run
            # Series and traces are large; one run per scheme is drawn.
            shown.setdefault(scheme, run)
            if run.collective:
                collectives[scheme, seed] = (run.collective["seconds"], *run.collective.get("jobs", ()))
            if found := recovery(run):
                recoveries.setdefault(scheme, []).append(found)
            if cost := effect(run):
                effects.setdefault(scheme, []).append(cost)
        else:
            why = f"the processors were busy ({run.cpu_idle_percent:.0f}% idle)"
            excluded.append(ExcludedRun(scheme, seed, why))
    if not flows and not empty:
        raise ResultsError(f"{directory} has no complete run yet: run the experiment first")
    if not runs:
        raise ResultsError(
            f"{directory} has no valid run (the first, {excluded[0].scheme} with seed {excluded[0].seed}: {excluded[0].why}): "
            "the same command repeats it; at a lower rate or with a smaller fabric, choose another directory"
        )
    drawn = {scheme: _ordered(run) for scheme, run in shown.items()}
    return Collected(settings, runs, excluded, drawn, recoveries, effects, collectives)


def _check(flow: FlowRecord, tree: Clos, directory: Path) -> None:
    """Raise `ResultsError` for numbers that JSON can express but a flow cannot have, and for hosts that are not there."""
    numbers: list[Any] = [flow.mbit, flow.seconds, flow.start, flow.rtt_ms, flow.bytes, flow.packets, flow.reordered]
    numbers += [flow.retransmits, flow.spurious, flow.fast_retransmits, flow.timeouts, flow.size or 0, flow.seed]
    try:
        possible = all(isinstance(one, int | float) and math.isfinite(one) and one >= 0 for one in numbers)
        possible = possible and tree.host(flow.src) != tree.host(flow.dst)
    except (ValueError, TypeError):  # a TopologyError, or no text
        possible = False
    if not possible:
        file = directory / f"{flow.scheme}-{flow.seed}.jsonl"
        raise ResultsError(f"{file} is damaged (flow {flow.flow} has an impossible value): delete the file and run again")


def _ordered(run: RunRecord) -> RunRecord:
    """Return a run with flows in numerical order: JSON has their numbers as text, in which 10 precedes 2."""
    return replace(
        run,
        cwnd=dict(sorted(run.cwnd.items(), key=lambda item: int(item[0]))),
        arrivals=dict(sorted(run.arrivals.items(), key=lambda item: int(item[0]))),
        series=dict(sorted(run.series.items(), key=lambda item: int(item[0]))),
    )
