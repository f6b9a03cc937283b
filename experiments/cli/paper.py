"""``sopa experiment paper``: the papers' figures and numbers, and what the simulator finds."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from experiments import ns3
from experiments.core.campaign import Campaign, still_missing
from experiments.core.records import ResultsError
from experiments.paper.figure import Figure
from experiments.paper.figures import FIGURES
from experiments.workloads import WorkloadError
from sopa_ryu.cli.common import fail
from topologies import TopologyError


@click.command("paper")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="Name every figure, and end.")
@click.option("--k", type=int, metavar="K", help="Another fabric than the paper's: an even number.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    metavar="COUNT",
    help="Runs of each scheme, instead of what each figure has.",
)
@click.option("--tables", "only_tables", is_flag=True, help="Simulate nothing: tell of what is there already.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("paper"), show_default=True,
              metavar="DIR", help="Where results are kept; the same command again goes on where it ended.")  # fmt: skip
def paper(
    names: tuple[str, ...], listing: bool, k: int | None, seeds: int | None, only_tables: bool, out: Path
) -> None:
    """The papers' figures and numbers in the simulator, beside what the papers have.

    Without a NAME all of them; at k=24 that takes two processors some hours. Results that are there are not simulated again:
    neither those in --out, nor those in the cache (~/.cache/sopa, or what SOPA_CACHE names).

    \b
    Examples:
      sopa experiment paper --list
      sopa experiment paper four-flows paths
      sopa experiment paper permutation --k 8 --out small
    """
    if listing:
        _list()
        return
    from experiments.paper.figure_runs import campaigns, scaled, write

    try:
        chosen = [scaled(_named(name), k, seeds) for name in dict.fromkeys(names or FIGURES)]
        status = 0 if only_tables else _simulate(campaigns(chosen, out))
        if status == 0:
            write(chosen, out, Console(highlight=False).print, partial=only_tables)
            click.echo(f"tables are in {out / 'tables.md'}, data in {out / 'data'}, plots in {out}/*/report")
    except (WorkloadError, ResultsError, ns3.SimulatorError, TopologyError) as error:
        fail(str(error))
    sys.exit(status)


def _simulate(runs: list[Campaign]) -> int:
    return ns3.run_simulations(runs) if still_missing(runs) else 0


def _named(name: str) -> Figure:
    if name not in FIGURES:
        near = difflib.get_close_matches(name, FIGURES, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        fail(f"there is no figure {name!r}: {meant}there are {', '.join(FIGURES)}")
    return FIGURES[name]


def _list() -> None:
    table = Table("name", "what", "k", "runs", box=None)
    for one in FIGURES.values():
        runs = sum(len(part.schemes) * part.seeds for part in one.runs())
        sizes = sorted({part.k for part in one.parts})
        table.add_row(one.name, one.source, ", ".join(map(str, sizes)), str(runs))
    Console(highlight=False).print(table)
