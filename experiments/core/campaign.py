"""The runs of an experiment: which are missing, and how progress is reported. `emulation` and `ns3` execute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.core.records import FlowRecord, Results, RunRecord, RunSettings
from experiments.core.run import Run
from experiments.schemes import Scheme
from experiments.workloads import Plan, Scale
from flowrules.label import Carrier
from topologies import Clos, FatTree


@dataclass(frozen=True)
class Campaign:
    """The runs of one ``sopa experiment run``: a plan per seed, and the simulator's options that differ from their defaults."""

    results: Results
    workload: str
    schemes: Sequence[Scheme]
    plans: Mapping[int, Plan]
    tree: Clos
    scale: Scale
    queue_packets: int
    carrier: Carrier
    options: Mapping[str, int | str] = field(default_factory=dict)

    def missing(self) -> list[Run]:
        """Return the missing runs, scheme by scheme. Raises `ResultsError` if a file of a run is damaged."""
        return [
            Run(self.tree, plan, self.workload, scheme, seed, self.scale, self.queue_packets, self.options)
            for scheme in self.schemes
            for seed, plan in self.plans.items()
            if not self.results.has(scheme.name, seed)
        ]

    def open(self, backend: str, parameters: Mapping[str, float | str]) -> None:
        """Open the directory of results; see `Results.open`. ``parameters`` are those of the workload."""
        every = {"queue_packets": self.queue_packets, **parameters, **self.options}
        rate, seconds = self.scale.rate_mbit, self.scale.seconds
        k = self.tree.k
        fabric = None if k is not None and self.tree == FatTree(k) else self.tree.document()
        self.results.open(RunSettings(self.workload, backend, k, rate, seconds, every, fabric))

    @property
    def count(self) -> int:
        """Number of runs, complete and missing."""
        return len(self.schemes) * len(self.plans)


def count_missing(campaigns: Sequence[Campaign]) -> int:
    """Return the number of missing runs, and report how many are complete. Raises `ResultsError` if a file of a run is damaged."""
    missing, count = sum(len(one.missing()) for one in campaigns), sum(one.count for one in campaigns)
    if missing < count:
        click.echo(f"{count - missing} of {count} runs are already complete", err=True)
    return missing


def progress_bar() -> tuple[Console, Progress]:
    """Return a console on standard error for messages, and a progress bar that is shown on a terminal only."""
    say = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    return say, Progress(*columns, console=say, disable=not say.is_terminal)


def resume_hint(done: int, count: int) -> str:
    """Return the hint that is shown after an interrupted campaign."""
    return f"{done} of {count} runs are complete; run the same command again to continue"


def line(run: RunRecord, flows: Sequence[FlowRecord]) -> str:
    """Return one line of text that summarizes a run."""
    rates = [flow.mbit for flow in flows]
    mean = sum(rates) / len(rates) if rates else 0.0
    return f"{run.scheme}, seed {run.seed}: {len(flows)} flows, mean {mean:.2f} Mbit/s, minimum {min(rates, default=0.0):.2f}"
