"""``sopa experiment``: schemes compared under one workload, on real switches or in the simulator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from experiments import workloads
from experiments.records import Results, ResultsError, Settings
from experiments.schemes import Scheme, SchemeError, named, schemes
from experiments.workloads import Scale, Workload, WorkloadError
from flowrules.word import Carrier
from sopa_ryu.cli.common import carrier_option, fail, in_isolation, k_option, need_root, rate_option
from topologies import FatTree
from topologies.lab import default_rate

DEFAULT_SCHEMES = "sopa,rps,ecmp,hedera"
OVERHEAD_SECONDS = 6.0
"""Of a run besides its traffic, for the progress bar: agents started and ended."""


@click.group()
def experiment() -> None:
    """Compare schemes under a workload, with real Open vSwitch and TCP, or in ns-3.

    \b
    Examples:
      sopa experiment list
      sopa experiment run permutation --schemes sopa,rps,ecmp --seeds 5 --out results
      sopa experiment report results
    """


@experiment.command("list")
def list_all() -> None:
    """Name every workload and scheme."""
    out = Console(highlight=False)
    for title, found in (
        ("workload", [(one.name, one.summary) for one in workloads.WORKLOADS.values()]),
        ("scheme", [(one.name, one.summary) for one in schemes().values()]),
    ):
        table = Table(title, "", box=None, title_justify="left")
        for name, summary in found:
            table.add_row(name, summary)
        out.print(table)
    out.print(
        "A workload can be a traffic matrix, too: FILE.csv with src,dst,bytes,start. A scheme's TCP can be set otherwise:"
    )
    out.print(
        "sopa+fr=3 (fast-retransmit threshold), rps+rack=off (no loss detection by time), sopa+adapt=off (a fixed threshold), "
        "rps+sack=off (no selective acknowledgements)."
    )


@experiment.command()
@click.argument("name")
@click.option("--backend", type=click.Choice(["lab", "ns3"]), default="lab", show_default=True, help="Where it runs.")
@click.option(
    "--schemes", "chosen", default=DEFAULT_SCHEMES, show_default=True, metavar="A,B", help="See sopa experiment list."
)
@k_option
@carrier_option
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, metavar="COUNT", help="Runs of each scheme."
)
@click.option("--seed", "first", type=click.IntRange(0, 2**31), default=1, show_default=True, metavar="FIRST",
              help="The first run's seed; the others' follow.")  # fmt: skip
@rate_option
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    metavar="S",
    help="How long a run sends. The default is the workload's.",
)
@click.option("--queue", type=click.IntRange(1, 10_000), default=100, show_default=True, metavar="PACKETS",
              help="What a link's queue holds.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="DIR",
              help="Where results are kept; the same command again goes on where it ended.")  # fmt: skip
def run(
    name: str,
    backend: str,
    chosen: str,
    k: int,
    carrier: str,
    seeds: int,
    first: int,
    rate: float | None,
    seconds: float | None,
    queue: int,
    out: Path,
) -> None:
    """Run workload NAME, or the traffic matrix NAME.csv, with each scheme and seed, and report.

    Every run is kept in --out as soon as it has ended: DIR/SCHEME-SEED.jsonl has one JSON object for each flow. A run for which the
    processor had no time to spare is marked as invalid and left out of the report; the same command again does it anew.

    \b
    Examples:
      sopa experiment run permutation --seeds 5 --out results
      sopa experiment run permutation --schemes sopa+fr=3,sopa,rps,rps+rack=off --out thresholds
      sopa experiment run matrix.csv --schemes sopa,ecmp --seconds 20 --out mine
    """
    try:
        workload = workloads.from_csv(Path(name)) if name.endswith(".csv") else workloads.named(name)
        wanted = [named(text.strip()) for text in chosen.split(",")]
        tree = FatTree(k)
        scale = Scale(rate or default_rate(tree), seconds or workload.seconds)
        plans = {seed: workload.build(tree, seed, scale) for seed in range(first, first + seeds)}
    except (SchemeError, WorkloadError) as error:
        fail(str(error))
    if len({scheme.name for scheme in wanted}) < len(wanted):
        fail(f"--schemes {chosen} names one twice")
    if backend == "ns3":
        fail("the ns3 backend is not there yet: take --backend lab")
    need_root("sopa experiment run")
    if Path("/run") in (out.resolve(), *out.resolve().parents):
        fail(f"{out} is in /run, which a lab has for itself: give another --out")
    settings = Settings(
        workload.name,
        backend,
        k,
        scale.rate_mbit,
        scale.seconds,
        {"queue_packets": queue, "carrier": carrier, **workload.parameters},
    )
    results = Results(out)
    try:
        results.open(settings)
    except ResultsError as error:
        fail(str(error))
    status = _run_all(results, workload, wanted, plans, tree, scale, queue, Carrier(carrier))
    if status == 0:
        _report(out)
    sys.exit(status)


@experiment.command("report")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", default="sopa", show_default=True, help="The scheme that others are compared with.")
def report_again(directory: Path, base: str) -> None:
    """Draw tables and plots from DIRECTORY, into DIRECTORY/report."""
    _report(directory, base)


def _report(directory: Path, base: str = "sopa") -> None:
    from experiments.report import report

    try:
        where = report(directory, base)
    except ResultsError as error:
        fail(str(error))
    click.echo(f"tables and plots are in {where}")


def _run_all(
    results: Results,
    workload: Workload,
    wanted: Sequence[Scheme],
    plans: dict[int, Any],
    tree: FatTree,
    scale: Scale,
    queue: int,
    carrier: Carrier,
) -> int:
    """Every run that is not there yet, scheme after scheme; one fabric serves all seeds."""
    try:
        missing = {scheme.name: [seed for seed in plans if not results.has(scheme.name, seed)] for scheme in wanted}
    except ResultsError as error:
        fail(str(error))
    count, total = sum(map(len, missing.values())), len(wanted) * len(plans)
    if count < total:
        click.echo(f"{total - count} of {total} runs are there already", err=True)
    if not count:
        return 0

    def inside() -> int:
        from experiments.emulation.connection import TransferError
        from experiments.emulation.fabric import Emulation
        from experiments.emulation.run import perform

        say = Console(stderr=True, highlight=False)
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        each = scale.seconds + OVERHEAD_SECONDS
        done = 0

        def tick(before: int, now: float) -> None:
            bar.update(task, completed=before * each + min(now, scale.seconds))

        with Progress(*columns, console=say, disable=not say.is_terminal) as bar:
            task = bar.add_task("", total=count * each)
            for scheme in wanted:
                if not missing[scheme.name]:
                    continue
                bar.update(task, description=f"{scheme.name}: starting the fabric")
                try:
                    with Emulation(tree, scheme, scale.rate_mbit, queue_packets=queue, carrier=carrier) as emulation:
                        for seed in missing[scheme.name]:
                            bar.update(task, description=f"{scheme.name}, seed {seed}", completed=done * each)
                            record, flows = perform(
                                emulation,
                                plans[seed],
                                workload.name,
                                seed,
                                partial(tick, done),
                            )
                            results.add(record, flows)
                            done += 1
                            say.print(_line(record.scheme, seed, flows, record.cpu_idle_percent, record.valid))
                except (TransferError, ResultsError) as error:
                    click.echo(f"Error: {scheme.name}: {error}. {_go_on(done, count)}", err=True)
                    return 1
                except KeyboardInterrupt:
                    click.echo(f"interrupted. {_go_on(done, count)}", err=True)
                    return 130
        return 0

    return in_isolation(inside)


def _go_on(done: int, count: int) -> str:
    return f"{done} of {count} runs are kept; the same command goes on with the others"


def _line(scheme: str, seed: int, flows: Sequence[Any], idle: float, valid: bool) -> str:
    rates = [flow.mbit for flow in flows]
    mean = sum(rates) / len(rates) if rates else 0.0
    line = f"{scheme}, seed {seed}: {len(flows)} flows, mean {mean:.2f} Mbit/s, minimum {min(rates, default=0.0):.2f}"
    line += f"; processor idle {idle:.0f}%"
    return line if valid else f"{line}: INVALID, the machine had no time to spare"
