"""``sopa experiment paper``: the figures of the papers, repeated in the simulator or in the lab."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from experiments import ns3
from experiments.cli.lab_isolation import run_campaign
from experiments.core.campaign import Campaign, count_missing
from experiments.core.records import ResultsError
from experiments.suggestions import unknown
from experiments.workloads import WorkloadError
from sopa_ryu.cli.common import fail
from topologies import TopologyError

if TYPE_CHECKING:
    from experiments.paper.figures import Figure

scheduler_option = click.option(
    "--scheduler",
    metavar="tcp://HOST:PORT",
    help="Simulate on the workers of this Dask scheduler instead of this machine's processors.",
)


@click.command("paper")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="List the figures and exit.")
@click.option("--k", type=int, metavar="K", help="Size of the fabric, instead of that of the paper: an even number.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), metavar="COUNT", help="Number of runs of each scheme, instead of that of each figure."
)
@click.option("--tables", "only_tables", is_flag=True, help="Run nothing. Write tables of the runs that are complete.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("paper"), show_default=True,
              metavar="DIR", help="Directory of results. The same command continues an interrupted run.")  # fmt: skip
@scheduler_option
def paper(
    names: tuple[str, ...], listing: bool, k: int | None, seeds: int | None, only_tables: bool, out: Path, scheduler: str | None
) -> None:
    """Repeat figures of the papers in the simulator, and compare with the numbers of the papers.

    Without NAME, all figures are simulated, which takes some hours on two processors at k=24. Runs in --out or in the
    cache (~/.cache/sopa, or $SOPA_CACHE) are not simulated again. Figures lab-... run in the lab, one run after the other,
    and require an idle machine.

    \b
    Examples:
      sopa experiment paper --list
      sopa experiment paper four-flows paths
      sopa experiment paper permutation --k 8 --out small
      sopa experiment paper lab-permutation --out lab
    """
    if listing:
        _list()
        return
    from experiments.paper.figure_runs import campaigns, scaled, write
    from experiments.paper.figures import FIGURES

    try:
        default = (name for name, figure in FIGURES.items() if all(part.backend == "ns3" for part in figure.parts))
        chosen = [scaled(_named(name), k, seeds) for name in dict.fromkeys(names or default)]
        simulated, in_lab = (campaigns(chosen, out, backend) for backend in ("ns3", "lab"))
        status = 0 if only_tables else _run(simulated, in_lab, scheduler)
        if status == 0:
            write(chosen, out, Console(highlight=False).print, partial=only_tables)
            click.echo(f"tables are in {out / 'tables.md'}, data in {out / 'data'}, plots in {out}/*/report")
    except (WorkloadError, ResultsError, ns3.SimulatorError, TopologyError) as error:
        fail(str(error))
    sys.exit(status)


@click.command("record")
@click.argument("results", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="[DIR]")
@click.option("--check", is_flag=True, help="Change nothing. Name each run that is damaged or missing, and exit with 1 if any is.")
@click.option(
    "--again",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Change nothing. Simulate COUNT runs again, those of former versions of the simulator first. Name each with other values "
    "now, and exit with 1 if any has.",
)
def record(results: Path | None, check: bool, again: int | None) -> None:
    """Put the runs of DIR, the results of `paper`, into experiments/record, and make its tables and those of RESULTS.md.

    \b
    Examples:
      sopa experiment paper four-flows --out paper && sopa experiment record paper
      sopa experiment record --check
      sopa experiment record --again 50
    """
    from experiments.paper.record import RECORD, differences, load, problems, take

    if (results is not None) + check + (again is not None) != 1:
        raise click.UsageError("give either the directory of results to record, --check or --again")
    try:
        if results is not None:
            click.echo(f"{take(results)} new runs; the tables are in {RECORD / 'tables.md'}")
            return
        kept = load(RECORD)
        if again is not None:
            repeated, others = differences(kept, again)
            click.echo("\n".join([*others, f"{repeated} runs simulated again, {len(others) or 'none'} of them with other values"]))
            sys.exit(bool(others))
    except ResultsError as error:
        fail(str(error))
    found, its = list(problems(kept)), [run for runs in kept.values() for run in runs]
    for problem in found:
        click.echo(problem)
    simulators = [run.record["simulator"] for run in its if "simulator" in run.record]
    versions = len(set(simulators))
    count = f"{len(simulators)} runs by {versions} version{'s' * (versions != 1)} of the simulator"
    click.echo(f"{count}, and {len(its) - len(simulators)} in the lab: {f'{len(found)} problems' if found else 'whole'}")
    sys.exit(bool(found))


def _run(simulated: list[Campaign], in_lab: list[Campaign], scheduler: str | None) -> int:
    status = 0
    for campaign in in_lab if count_missing(in_lab) else ():
        if status == 0 and campaign.missing():
            status = run_campaign(campaign)
    return ns3.run_simulations(simulated, scheduler) if status == 0 and count_missing(simulated) else status


def _named(name: str) -> Figure:
    from experiments.paper.figures import FIGURES

    if name not in FIGURES:
        fail(unknown("figure", name, FIGURES))
    return FIGURES[name]


def _list() -> None:
    from experiments.paper.figures import FIGURES

    table = Table("name", "figure", "k", "runs", box=None)
    for one in FIGURES.values():
        runs = sum(len(part.schemes) * part.seeds for part in one.runs())
        sizes = sorted({part.k for part in one.parts if part.fabric is None})
        table.add_row(one.name, one.source, ", ".join(map(str, sizes)) or "-", str(runs))
    Console(highlight=False).print(table)
