"""An experiment's runs: which are to be done, and what is said of each. Whoever does them is in `emulation` or `ns3`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.core.records import FlowRecord, Results, RunRecord
from experiments.schemes import Scheme
from experiments.workloads import Plan, Scale
from flowrules.label import Carrier
from topologies import FatTree


@dataclass(frozen=True)
class Campaign:
    """What one ``sopa experiment run`` is to do.

    Attributes
    ----------
    results : Results
    workload : str
    schemes : sequence of Scheme
    plans : mapping
        From each seed to what happens.
    tree : FatTree
    scale : Scale
    queue_packets : int
    carrier : Carrier
    options : mapping
        What of the simulator is set otherwise.
    """

    results: Results
    workload: str
    schemes: Sequence[Scheme]
    plans: Mapping[int, Plan]
    tree: FatTree
    scale: Scale
    queue_packets: int
    carrier: Carrier
    options: Mapping[str, int | str] = field(default_factory=dict)

    def missing(self) -> list[tuple[Scheme, int]]:
        """Schemes and seeds whose runs are not there yet, scheme after scheme.

        Raises
        ------
        ResultsError
            If one is there and damaged.
        """
        return [
            (scheme, seed) for scheme in self.schemes for seed in self.plans if not self.results.has(scheme.name, seed)
        ]

    @property
    def count(self) -> int:
        """All runs, done and missing."""
        return len(self.schemes) * len(self.plans)


def still_missing(campaigns: Sequence[Campaign]) -> int:
    """How many runs are to be done; says how many are there already.

    Raises
    ------
    ResultsError
        If one is there and damaged.
    """
    missing, count = sum(len(one.missing()) for one in campaigns), sum(one.count for one in campaigns)
    if missing < count:
        click.echo(f"{count - missing} of {count} runs are there already", err=True)
    return missing


def progress_bar() -> tuple[Console, Progress]:
    """Where runs are told of, on standard error, and a bar that is there on a terminal only."""
    say = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    return say, Progress(*columns, console=say, disable=not say.is_terminal)


def kept(done: int, count: int) -> str:
    """What to do after an end before the end."""
    return f"{done} of {count} runs are kept; the same command goes on with the others"


def line(run: RunRecord, flows: Sequence[FlowRecord]) -> str:
    """What a run came to."""
    rates = [flow.mbit for flow in flows]
    mean = sum(rates) / len(rates) if rates else 0.0
    return f"{run.scheme}, seed {run.seed}: {len(flows)} flows, mean {mean:.2f} Mbit/s, minimum {min(rates, default=0.0):.2f}"
