"""``sopa experiment``: compare schemes under a workload, on Open vSwitch or in the simulator."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from experiments import ns3, workloads
from experiments.cli.lab_isolation import MOST_MBIT, carrier_option, run_campaign
from experiments.cli.paper import paper, record, scheduler_option
from experiments.core.campaign import Campaign, count_missing
from experiments.core.records import Results, ResultsError
from experiments.emulation import lab_schemes
from experiments.schemes import Fabric, Scheme, SchemeError, named, schemes
from experiments.workloads import Scale, WorkloadError
from flowrules.label import Carrier
from sopa_ryu.cli.common import chosen_fabric, fabric_file_option, fail, k_option
from topologies import Clos
from topologies.identity import PREFIX6
from topologies.lab.links import default_rate

DEFAULT_SCHEMES = "sopa,rps,ecmp,hedera"
MIN_LAB_SECONDS = 1.0
MAX_LAB_TRANSFERS = 40_000
"""Each transfer has a source port of its own, from 20000 to 59999, across all hosts."""


@click.group()
def experiment() -> None:
    """Compare schemes under a workload, on real Open vSwitch and TCP or in ns-3.

    \b
    Examples:
      sopa experiment list
      sopa experiment run permutation --schemes sopa,rps,ecmp --seeds 5 --out results
      sopa experiment report results
    """


@experiment.command("list")
def list_all() -> None:
    """List workloads, schemes and options of the simulator."""
    out = Console(highlight=False)
    for title, found in (
        ("workload", [(one.name, one.summary) for one in workloads.WORKLOADS.values()]),
        ("scheme", [(one.name, one.summary) for one in schemes().values()]),
        ("--set NAME=VALUE", [(f"{name}={one.default}", one.description) for name, one in ns3.OPTIONS.items()]),
    ):
        table = Table(title, "", box=None, title_justify="left")
        for name, summary in found:
            table.add_row(name, summary)
        out.print(table)
    out.print(
        "A workload can also be a matrix or a trace: FILE.csv with src,dst,bytes,start. With permutation+lossy=0.1 all links "
        "between switches lose 0.1%, with +slow=25 core links into one switch have 25% of their rate. "
        "Suffixes of a scheme change its TCP:"
    )
    out.print(
        "sopa+fr=3 (fast-retransmit threshold), rps+rack=off (no RACK loss detection), sopa+adapt=off (fixed threshold), "
        "rps+sack=off (no selective acknowledgements), sopa+minrtt=300 (how long TCP remembers its shortest round trip), "
        "sopa+congestion=bbr (the lab's TCP). "
        "sopa+segments=16 lets 16 packets of a burst share a label, sopa+weights=off uses all candidate paths alike. "
        "sopa+probes=off does not probe paths, sopa+probes=on does in the simulator, too. "
        "mcs+channels=4 has fewer channels, mcs+ecn=10 switches that mark packets in queues above 10, mcs+ecn=off none that mark. "
        "dctcp+ecn-bytes=30000 marks above 30 KB. cfr+slot=4+guard=10+delay=100us+demand=socket has slots of 4 packets, a tenth of "
        "them for what needs no slot, 0.1 ms to the arbiter, where sockets tell demands."
    )


@experiment.command()
@click.argument("name")
@click.option("--backend", type=click.Choice(["lab", "ns3"]), default="lab", show_default=True,
              help="Real switches and TCP in the lab (root), or the simulator.")  # fmt: skip
@click.option("--schemes", "chosen", default=DEFAULT_SCHEMES, show_default=True, metavar="A,B",
              help="Schemes to compare. sopa experiment list shows them.")  # fmt: skip
@k_option
@fabric_file_option
@carrier_option
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, metavar="COUNT",
              help="Number of runs of each scheme.")  # fmt: skip
@click.option("--seed", "first", type=click.IntRange(0, 2**31), default=1, show_default=True, metavar="FIRST",
              help="Seed of the first run. Further runs use the following numbers.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0.1, 1_000_000), metavar="MBIT",
              help=f"Rate of every link in Mbit/s. In the simulator the default is {ns3.DEFAULT_MBIT:g}, in the lab (at most "
                   f"{MOST_MBIT}) it depends on the fabric and leaves this machine's processor idle time.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.0001, 3600), metavar="S",
              help="Sending time of a run. The default depends on the workload.")  # fmt: skip
@click.option("--queue", type=click.IntRange(1, 10_000), metavar="PACKETS", show_default=f"{ns3.DEFAULT_QUEUE}",
              help="Capacity of the queue of a link.")  # fmt: skip
@click.option("--failed-links", "failed_percent", type=click.FloatRange(0, 100, min_open=True, max_open=True), metavar="PERCENT",
              help="Share of the links between switches that have failed before the start, drawn by the seed.")  # fmt: skip
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE",
              help="Option of the simulator. sopa experiment list shows them. May be repeated.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="DIR",
              help="Directory of results. The same command continues an interrupted experiment.")  # fmt: skip
@scheduler_option
def run(
    name: str,
    backend: str,
    chosen: str,
    k: int,
    fabric: Clos | None,
    carrier: str,
    seeds: int,
    first: int,
    rate: float | None,
    seconds: float | None,
    queue: int | None,
    failed_percent: float | None,
    options: tuple[str, ...],
    out: Path,
    scheduler: str | None,
) -> None:
    """Run workload NAME, or the matrix or trace NAME.csv, with each scheme and seed, and write a report.

    Each run is written to --out when it ends: DIR/SCHEME-SEED.jsonl has one JSON object per flow. A run during which the
    processors were too busy is marked as invalid and excluded from the report. The same command repeats it.

    \b
    Examples:
      sopa experiment run permutation --seeds 5 --out results
      sopa experiment run permutation --schemes sopa+fr=3,sopa,rps,rps+rack=off --out thresholds
      sopa experiment run permutation-transfers --backend ns3 --k 8 --set spread=1ms --out simulated
      sopa experiment run permutation --backend ns3 --k 8 --failed-links 5 --schemes sopa,sopa+weights=off,ecmp --out uneven
      sopa experiment run matrix.csv --schemes sopa,ecmp --seconds 20 --out mine
    """
    simulated = backend == "ns3"
    if seconds is not None and seconds < MIN_LAB_SECONDS and not simulated:
        fail(f"--seconds {seconds:g} is too short for the lab: the minimum is {MIN_LAB_SECONDS:g}")
    if rate is not None and rate > MOST_MBIT and not simulated:
        fail(f"--rate {rate:g} is too high for the lab: the maximum is {MOST_MBIT}")
    for given, option in ((options, "--set"), (scheduler, "--scheduler")):
        if given and not simulated:
            fail(f"{option} requires the simulator: add --backend ns3")
    try:
        simulator_options = ns3.parse(options)
        workload = workloads.from_csv(Path(name)) if name.endswith(".csv") else workloads.named(name)
        wanted = [named(text.strip()) for text in chosen.split(",")]
        tree = chosen_fabric(k, fabric, str(PREFIX6) if workload.family == 6 else None)
        _check_family(workload, tree, wanted, simulated)
        share = ns3.SECONDS_SHARE if simulated else 1.0
        default_mbit = ns3.DEFAULT_MBIT if simulated else default_rate(tree)
        scale = Scale(rate or default_mbit, seconds or workload.latest + share * workload.seconds)
        simulator_options, room = ns3.sized(simulator_options, tree, scale.rate_mbit, queue)
        for scheme in wanted:
            if simulated:
                ns3.check(scheme, simulator_options)
            else:
                lab_schemes.check(scheme, Carrier(carrier), room)
        plans = {seed: workload.build(tree, seed, scale) for seed in range(first, first + seeds)}
        if failed_percent is not None:
            plans = {seed: workloads.with_failed_links(plan, tree, seed, failed_percent) for seed, plan in plans.items()}
    except (SchemeError, WorkloadError, ns3.SimulationOptionError) as error:
        fail(str(error))
    if len({scheme.name for scheme in wanted}) < len(wanted):
        fail(f"--schemes {chosen} contains a scheme twice")
    if not simulated:
        most = max(len(plan.transfers) for plan in plans.values())
        if most > MAX_LAB_TRANSFERS:
            limit = f"{most} transfers exceed the {MAX_LAB_TRANSFERS} ports of the lab"
            fail(f"{limit}: use fewer --seconds, a lower --rate or a smaller fabric")
    campaign = Campaign(Results(out), workload.name, wanted, plans, tree, scale, room, Carrier(carrier), simulator_options)
    try:
        lost = {} if failed_percent is None else {"failed_links_percent": failed_percent}
        campaign.open(backend, {"carrier": carrier, **workload.parameters, **lost})
        missing = count_missing([campaign])
    except ResultsError as error:
        fail(str(error))
    status = 0
    if missing:
        try:
            status = ns3.run_simulations([campaign], scheduler) if simulated else run_campaign(campaign)
        except ns3.SimulatorError as error:
            fail(str(error))
    if status == 0:
        _report(out)
    sys.exit(status)


def _check_family(workload: workloads.Workload, tree: Clos, schemes: list[Scheme], simulated: bool) -> None:
    if workload.family == 4:
        return
    if simulated:
        raise WorkloadError("the simulator has IPv4 only: leave out +family=6, or use the lab")
    if tree.prefix6 is None:
        raise WorkloadError("the fabric file has prefix6: none, and so no IPv6")
    if routers := [scheme.name for scheme in schemes if scheme.fabric is Fabric.ROUTERS]:
        raise SchemeError(f"{', '.join(routers)}: routers have IPv4 only: leave them out, or +family=6")


@experiment.command("report")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", default="sopa", show_default=True, help="Scheme that the others are compared with.")
def report_again(directory: Path, base: str) -> None:
    """Write tables and plots of the results in DIRECTORY to DIRECTORY/report."""
    _report(directory, base)


def _report(directory: Path, base: str = "sopa") -> None:
    from experiments.report import report

    try:
        where = report(directory, base)
    except ResultsError as error:
        fail(str(error))
    click.echo(f"tables and plots are in {where}")


experiment.add_command(paper)
experiment.add_command(record)
