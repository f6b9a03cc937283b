"""``sopa demo``: permutation traffic over a whole fabric, and link failures under that traffic."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from experiments.cli.lab_isolation import (
    chosen_datapath,
    controllers_option,
    datapath_option,
    fabric_options,
    given_rate,
    in_isolation,
    measured_rate,
    policy_option,
    publish_option,
    publish_socket,
    published,
    seed_option,
    spray_option,
    threshold_option,
)
from experiments.workloads import WorkloadError, inter_pod_permutation
from flowrules.label import Carrier
from sopa_ryu.cli.common import chosen_fabric, fail, need_root, need_switches
from topologies import Clos

if TYPE_CHECKING:
    from experiments.emulation.sopa_lab import SopaLab


@click.command()
@fabric_options
@click.option("--duration", type=click.IntRange(2, 3600), default=10, show_default=True, metavar="S",
              help="Time for which the flows send, in seconds.")  # fmt: skip
@seed_option
@datapath_option
@policy_option()
@spray_option
@threshold_option
@controllers_option
@click.option("--ipv6", is_flag=True, help="Send the flows by IPv6. The same ones by IPv4 come first, to compare.")
@click.option("--keep", is_flag=True, help="When all is measured, keep the fabric with its page until Ctrl-C.")
@publish_option
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
              help="Also write all results to FILE.")  # fmt: skip
def demo(
    k: int,
    fabric: Clos | None,
    carrier: str,
    rate: float | None,
    duration: int,
    seed: int,
    datapath: str,
    policy: str,
    spray: str,
    fr_threshold: int,
    controllers: int,
    ipv6: bool,
    keep: bool,
    publish: int | None,
    json_file: Path | None,
) -> None:
    """Run TCP between pods (racks, if leaf-spine) over real Open vSwitch, and fail links under that traffic.

    The command starts a fabric with controller and agents in namespaces of its own, and runs a seeded permutation of TCP flows.
    It shows the throughput of each flow and the packets of each core switch. Then it takes one link to a core switch down under
    the same traffic and up again. It shows when the failure is detected, in force and over, and the throughput meanwhile. Finally
    another link silently drops packets. Nothing remains on the machine.

    With --controllers 3 the controllers are a cluster. Instead of the silent link, the leader is killed while a second link fails.

    \b
    Compare:
      sopa demo --k 4
      sopa demo --k 4 --policy hash           one path per flow, like ECMP
      sopa demo --k 4 --policy random --fr-threshold 3
      sopa demo --k 4 --carrier option        the path in the IPv4 header, as in the paper
      sopa demo --fabric FILE                 a fabric that is no fat-tree, as leaf-spine
      sopa demo --ipv6                        by IPv6, beside the same flows by IPv4
      sopa demo --controllers 3               three controllers, of which the leader is killed
      sopa demo --keep                        afterwards the page, at http://127.0.0.1:8080/
    """
    need_root("sopa demo")
    tree = chosen_fabric(k, fabric)
    need_switches(carrier)
    if ipv6 and carrier == Carrier.OPTION.value:
        raise click.UsageError("--carrier option is a header option of IPv4: choose another carrier for --ipv6")
    if ipv6 and tree.prefix6 is None:
        raise click.UsageError("the fabric file has prefix6: none, and so no IPv6")
    if json_file is not None and not json_file.resolve().parent.is_dir():
        raise click.BadParameter(f"folder {json_file.resolve().parent} does not exist", param_hint="--json")
    forwarding = chosen_datapath(datapath)
    from experiments.cli.demo_run import Demo, goodput
    from experiments.emulation.cluster_watch import NotSeenError, links_of_one_pod, streams
    from experiments.emulation.traffic.transfers import TransferError

    try:
        pairs = inter_pod_permutation(tree, seed)
        if controllers > 1:
            streams(tree, links_of_one_pod(tree, seed)[0])
    except (WorkloadError, NotSeenError) as error:
        fail(str(error))

    listener = publish_socket(publish) if keep else None

    def inside() -> int:
        out, progress = Console(), Console(stderr=True, highlight=False)
        say = partial(progress.print, soft_wrap=True)
        links = measured_rate(tree, forwarding) if rate is None else given_rate(tree, rate)
        progress.print(f"{links.mbit:g} Mbit/s links: {links.why}", soft_wrap=True)
        settings: dict[str, Any] = {
            "k": tree.k,
            "carrier": carrier,
            "rate_mbit": links.mbit,
            "rate_why": links.why,
            "duration": duration,
        }
        if controllers > 1:
            settings["controllers"] = controllers
        settings |= {"seed": seed, "policy": policy, "spray": spray, "fr_threshold": fr_threshold, "datapath": forwarding}
        if fabric is not None:
            settings["fabric"] = fabric.document()
        settings["goodput_mbit"] = goodput(links.mbit, Carrier(carrier))
        if ipv6:
            settings["ipv6"] = True

        def kept(lab: SopaLab) -> None:
            with published(listener, lambda: lab.url, lab.rest.token_file, say), contextlib.suppress(KeyboardInterrupt):
                say("the fabric stays until Ctrl-C")
                signal.pause()

        try:
            report = Demo(tree, pairs, links, settings, out, progress).run(kept if keep else None)
        except (TransferError, NotSeenError) as error:
            click.echo(f"Error: {error}", err=True)
            return 1
        if json_file is not None:
            try:
                json_file.write_text(json.dumps(report, indent=1) + "\n")
            except OSError as error:
                click.echo(f"Error: cannot write {json_file}: {error.strerror}", err=True)
                return 1
        return 0

    sys.exit(in_isolation(inside))
