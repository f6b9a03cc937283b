"""``sopa experiment``: schemes compared under one workload, on real switches or in the simulator."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from experiments import ns3, workloads
from experiments.cli.lab_isolation import in_isolation
from experiments.cli.paper import paper
from experiments.core.campaign import Campaign, still_missing
from experiments.core.records import Results, ResultsError, Settings
from experiments.schemes import Fabric, SchemeError, named, schemes
from experiments.workloads import Scale, WorkloadError
from flowrules.label import Carrier
from sopa_ryu.cli.common import carrier_option, fail, k_option, need_root, rate_option
from topologies import FatTree
from topologies.lab.network import default_rate

DEFAULT_SCHEMES = "sopa,rps,ecmp,hedera"
MIN_LAB_SECONDS = 1.0
MAX_LAB_TRANSFERS = 40_000
"""Each has a port of its own, from 20000 to 59999, on all hosts together."""


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
    """Name every workload, every scheme, and what of the simulator can be set."""
    out = Console(highlight=False)
    for title, found in (
        ("workload", [(one.name, one.summary) for one in workloads.WORKLOADS.values()]),
        ("scheme", [(one.name, one.summary) for one in schemes().values()]),
        ("--set, with --backend ns3", [(f"{name}={one.default}", one.what) for name, one in ns3.OPTIONS.items()]),
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
    type=click.FloatRange(0.001, 3600),
    metavar="S",
    help="How long a run sends. The default is the workload's.",
)
@click.option("--queue", type=click.IntRange(1, 10_000), default=100, show_default=True, metavar="PACKETS",
              help="What a link's queue holds.")  # fmt: skip
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE",
              help="An option of the simulator; sopa experiment list names them. Can be given several times.")  # fmt: skip
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
    options: tuple[str, ...],
    out: Path,
) -> None:
    """Run workload NAME, or the traffic matrix NAME.csv, with each scheme and seed, and report.

    Every run is kept in --out as soon as it has ended: DIR/SCHEME-SEED.jsonl has one JSON object for each flow. A run for which the
    processor had no time to spare is marked as invalid and left out of the report; the same command again does it anew.

    \b
    Examples:
      sopa experiment run permutation --seeds 5 --out results
      sopa experiment run permutation --schemes sopa+fr=3,sopa,rps,rps+rack=off --out thresholds
      sopa experiment run permutation-transfers --backend ns3 --k 8 --set spread=1ms --out simulated
      sopa experiment run matrix.csv --schemes sopa,ecmp --seconds 20 --out mine
    """
    simulated = backend == "ns3"
    if seconds is not None and seconds < MIN_LAB_SECONDS and not simulated:
        fail(f"--seconds {seconds:g} is too short for the lab: give {MIN_LAB_SECONDS:g} or more")
    if options and not simulated:
        fail("--set is for the simulator: give --backend ns3")
    try:
        otherwise = ns3.parse(options)
        workload = workloads.from_csv(Path(name)) if name.endswith(".csv") else workloads.named(name)
        wanted = [named(text.strip()) for text in chosen.split(",")]
        for scheme in wanted:
            if simulated:
                ns3.check(scheme)
            elif scheme.fabric is Fabric.SIMULATOR:
                raise SchemeError(f"{scheme.name} is in the simulator only: --backend ns3")
        tree = FatTree(k)
        usual = (
            (ns3.DEFAULT_MBIT, ns3.SHARE * workload.seconds) if simulated else (default_rate(tree), workload.seconds)
        )
        scale = Scale(rate or usual[0], seconds or usual[1])
        plans = {seed: workload.build(tree, seed, scale) for seed in range(first, first + seeds)}
    except (SchemeError, WorkloadError, ns3.OptionError) as error:
        fail(str(error))
    if len({scheme.name for scheme in wanted}) < len(wanted):
        fail(f"--schemes {chosen} names one twice")
    if not simulated:
        most = max(len(plan.transfers) for plan in plans.values())
        if most > MAX_LAB_TRANSFERS:
            fail(
                f"{most} transfers are more than the lab has ports for: give fewer --seconds, a lower --rate or a smaller --k"
            )
        need_root("sopa experiment run")
        if Path("/run") in (out.resolve(), *out.resolve().parents):
            fail(f"{out} is in /run, which a lab has for itself: give another --out")
    settings = Settings(
        workload.name,
        backend,
        k,
        scale.rate_mbit,
        scale.seconds,
        {"queue_packets": queue, "carrier": carrier, **workload.parameters, **otherwise},
    )
    results = Results(out)
    campaign = Campaign(results, workload.name, wanted, plans, tree, scale, queue, Carrier(carrier), otherwise)
    try:
        results.open(settings)
        missing = still_missing([campaign])
    except ResultsError as error:
        fail(str(error))
    status = 0
    if missing:
        try:
            status = ns3.run_simulations([campaign]) if simulated else in_isolation(partial(_in_lab, campaign))
        except ns3.SimulatorError as error:
            fail(str(error))
    if status == 0:
        _report(out)
    sys.exit(status)


def _in_lab(campaign: Campaign) -> int:
    from experiments.emulation.lab_backend import run_in_lab

    return run_in_lab(campaign)


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


experiment.add_command(paper)
