"""A directory of results, read and checked once for everything that is told of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.core.records import FlowRecord, Results, ResultsError, RunRecord, Settings
from experiments.report.recovery import Recovery, recovery


@dataclass(frozen=True)
class Excluded:
    """A run that is in no figure.

    Attributes
    ----------
    scheme : str
    seed : int
    why : str
    """

    scheme: str
    seed: int
    why: str


@dataclass(frozen=True)
class Collected:
    """What a directory of results holds.

    Attributes
    ----------
    settings : Settings
    runs : dict
        From scheme and seed to the flows of each valid run.
    excluded : sequence of Excluded
    shown : dict
        From each scheme to the run whose course over time is drawn: the valid one with the lowest seed.
    recoveries : dict
        From each scheme to how its valid runs got over a failure, of those that had one.
    """

    settings: Settings
    runs: dict[tuple[str, int], Sequence[FlowRecord]]
    excluded: Sequence[Excluded]
    shown: dict[str, RunRecord]
    recoveries: dict[str, list[Recovery]]

    def schemes(self) -> list[str]:
        """Those with a valid run, by name."""
        return sorted({scheme for scheme, _ in self.runs})

    def flows(self, scheme: str) -> list[FlowRecord]:
        """All flows of a scheme's valid runs."""
        return [flow for (name, _), flows in sorted(self.runs.items()) if name == scheme for flow in flows]


def collect(directory: Path) -> Collected:
    """Read a directory of results.

    Raises
    ------
    ResultsError
        If it has no results, none that is valid, or damaged ones; the text says what to do.
    """
    results = Results(directory)
    settings = results.settings()
    flows: dict[tuple[str, int], list[FlowRecord]] = {}
    try:
        for flow in results.flows():
            _check(flow, directory)
            flows.setdefault((flow.scheme, flow.seed), []).append(flow)
        empty = [file for file in sorted(directory.glob("*.jsonl")) if not file.read_text().strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(
            f"results in {directory} cannot be read ({error}): delete that file and run again"
        ) from error

    runs: dict[tuple[str, int], Sequence[FlowRecord]] = {}
    shown: dict[str, RunRecord] = {}
    recoveries: dict[str, list[Recovery]] = {}
    excluded = []
    for file in empty:
        scheme, _, number = file.stem.rpartition("-")
        excluded.append(Excluded(scheme, int(number) if number.isdecimal() else 0, "it has no flows"))
    for (scheme, seed), of_run in sorted(flows.items()):
        run = results.run(scheme, seed)
        if run.valid and all(flow.valid for flow in of_run):
            runs[scheme, seed] = of_run
            # Series and traces are large: one run's for each scheme is all that is drawn.
            shown.setdefault(scheme, run)
            if found := recovery(run):
                recoveries.setdefault(scheme, []).append(found)
        else:
            why = f"the processor was busy ({run.cpu_idle_percent:.0f}% idle): its figures show the machine"
            excluded.append(Excluded(scheme, seed, why))
    if not flows and not empty:
        raise ResultsError(f"{directory} has no complete run yet: run the experiment first")
    if not runs:
        raise ResultsError(
            f"{directory} has no valid run (the first, {excluded[0].scheme} with seed {excluded[0].seed}: {excluded[0].why}): "
            "run again in another directory, at a lower rate or with a smaller k"
        )
    return Collected(settings, runs, excluded, {scheme: _ordered(run) for scheme, run in shown.items()}, recoveries)


def _check(flow: FlowRecord, directory: Path) -> None:
    """Refuse what JSON can say and a flow cannot be."""
    numbers: list[Any] = [flow.mbit, flow.seconds, flow.start, flow.rtt_ms, flow.bytes, flow.packets, flow.reordered]
    numbers += [flow.retransmits, flow.spurious, flow.fast_retransmits, flow.timeouts, flow.size or 0, flow.seed]
    if not all(isinstance(one, int | float) and math.isfinite(one) and one >= 0 for one in numbers):
        file = directory / f"{flow.scheme}-{flow.seed}.jsonl"
        raise ResultsError(
            f"{file} is damaged (flow {flow.flow} has an impossible number): delete the file and run again"
        )


def _ordered(run: RunRecord) -> RunRecord:
    """A run with flows in the order of their numbers: JSON has them as texts, where 10 comes before 2."""
    return replace(
        run,
        cwnd=dict(sorted(run.cwnd.items(), key=lambda item: int(item[0]))),
        arrivals=dict(sorted(run.arrivals.items(), key=lambda item: int(item[0]))),
        series=dict(sorted(run.series.items(), key=lambda item: int(item[0]))),
    )
