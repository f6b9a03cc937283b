"""The ``sopa`` command."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import click
import httpx
from rich.console import Console
from rich.table import Table

from sopa_ryu import __version__
from topologies import FatTree, TopologyError

CONTROLLER = "http://127.0.0.1:8080"
POLICIES = ("round-robin", "random", "hash")


class FatTreeSize(click.ParamType[int]):
    """A size that `FatTree` takes, refused with its own words."""

    name = "K"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a usage error."""
        try:
            return FatTree(int(value)).k
        except TopologyError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"k must be an even number from 2 to 128, not {value!r}", param, ctx)


class Commands(click.Group):
    """This module's commands and those of packages above it, which say so by the entry point group ``sopa.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in order."""
        return sorted({*super().list_commands(ctx), *(entry.name for entry in entry_points(group="sopa.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; one of another package is imported only then."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group="sopa.commands", name=cmd_name):
            found: click.Command = entry.load()
            return found
        return None


def fail(text: str) -> NoReturn:
    """End with an error message and status 1."""
    raise click.ClickException(text)


def refuse_option_carrier(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Accept the ``mac`` carrier only: the other is named by the interface but not built."""
    if value == "option":
        raise click.BadParameter("the IPv4 option carrier is not built yet; use --carrier mac")
    return value


carrier_option = click.option(
    "--carrier",
    type=click.Choice(["mac", "option"]),
    default="mac",
    show_default=True,
    callback=refuse_option_carrier,
    help="Where a packet carries its path: the sender's Ethernet source address, or an IPv4 option.",
)
k_option = click.option(
    "--k", type=FatTreeSize(), default=4, show_default=True, help="Ports of every switch: even, 2 to 128."
)
policy_option = click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="round-robin",
    show_default=True,
    help="How each packet's path is chosen: in turn, at random, or one per flow.",
)
threshold_option = click.option(
    "--fr-threshold",
    type=click.IntRange(1, 300),
    default=10,
    show_default=True,
    help="TCP's fast-retransmit threshold, net.ipv4.tcp_reordering, in packets.",
)
rate_option = click.option(
    "--rate",
    type=click.FloatRange(0.1, 10_000),
    metavar="MBIT",
    help="Rate of every link in Mbit/s. The default follows from k, so that this machine's processor keeps idle time.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Decides everything random."
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sopa")
def main() -> None:
    """SOPA: packets sprayed round-robin over every path of a fat-tree, by source routing.

    The controller itself is started by: ryu-manager sopa_ryu.app --sopa-k 4
    """


@main.command()
@click.option(
    "--iface",
    "interfaces",
    required=True,
    multiple=True,
    metavar="IF[@NETNS]",
    help="The interface towards the fabric; may be repeated. eth0@/run/netns/NAME is one in another network namespace.",
)
@click.option("--controller", required=True, metavar="URL", help="Where the controller is: http://192.0.2.1:8080")
@carrier_option
@policy_option
@threshold_option
@seed_option
@click.option("--flows", type=click.IntRange(1, 1 << 24), default=65536, show_default=True,
              help="How many flows' positions are kept for each interface.")  # fmt: skip
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), default="/run/sopa", show_default=True,
              help="Where the host's own settings are kept until they are put back.")  # fmt: skip
def agent(
    interfaces: tuple[str, ...],
    controller: str,
    carrier: str,
    policy: str,
    fr_threshold: int,
    seed: int,
    flows: int,
    state_dir: Path,
) -> None:
    """Label this host's packets with their path, until SIGTERM or Ctrl-C.

    It takes the fabric's state from the controller, computes the candidate paths to every destination, and has a program at
    the interface's tc egress write the next one into every packet. It raises TCP's fast-retransmit threshold and keeps TCP
    from handing over bursts; both are put back when it ends, and after a kill at its next start. Without a controller, or
    without a path, packets go out unlabelled, and the switches hash them per flow.

    \b
    Example:
      sopa agent --iface eth1 --controller http://192.0.2.1:8080
    """
    from sopa_ryu.agent.daemon import AgentError, Interface, Options, run_agents
    from sopa_ryu.agent.libbpf import BpfError
    from sopa_ryu.agent.netns import NetnsError
    from sopa_ryu.agent.settings import SettingsError
    from sopa_ryu.agent.tagger import Policy

    log_to_stderr()
    need_root("sopa agent")
    options = Options(controller, Policy.named(policy), fr_threshold, seed, flows, state_dir)
    try:
        status = run_agents([Interface.parse(text) for text in interfaces], options)
    except (AgentError, BpfError, NetnsError, SettingsError, ValueError) as error:
        fail(str(error))
    sys.exit(status)


@main.command()
@k_option
@carrier_option
@rate_option
@click.option("--no-limit", is_flag=True, help="No rate limit on the links at all.")
@policy_option
@threshold_option
@seed_option
@click.option(
    "--no-agents", is_flag=True, help="Start no agents: packets go unlabelled, hashed per flow by the switches."
)
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="Run the Mininet commands in FILE instead of giving a prompt.",
)
def lab(
    k: int,
    carrier: str,
    rate: float | None,
    no_limit: bool,
    policy: str,
    fr_threshold: int,
    seed: int,
    no_agents: bool,
    script: Path | None,
) -> None:
    """The fabric on this machine, with controller and agents, at a Mininet prompt.

    It runs in network, mount and process namespaces of its own, with an Open vSwitch of its own: the machine's interfaces are
    not touched, several labs run side by side, and nothing is left when it ends.

    \b
    At the prompt:
      h0_0_2 ping -c 3 h2_0_2                       traffic (hosts are hPOD_EDGE_NUMBER, 10.POD.EDGE.NUMBER)
      h0_0_2 tcpdump -c 8 -ne -i h0_0_2-eth0 ip     the words 02:53:9e:04:UP1:UP2 on the wire
      link a0_0 c0_1 down                           cut a link; up again: link a0_0 c0_1 up
      sh sopa status                                what the controller says
      sh sopa paths 10.0.0.2 10.2.0.2               the candidate paths of a pair
      sh ovs-ofctl -O OpenFlow13 dump-flows e0_0    a switch's entries
    """
    from mininet.cli import CLI

    from sopa_ryu.lab import SopaLab
    from topologies.lab import default_rate

    need_root("sopa lab")
    tree = FatTree(k)
    console = Console(stderr=True, highlight=False)
    mbit = None if no_limit else rate or default_rate(tree)
    options = [f"--policy={policy}", f"--fr-threshold={fr_threshold}", f"--seed={seed}"]

    def inside() -> int:
        with SopaLab(tree, mbit, say=console.print, agents=not no_agents, agent_options=options) as its:
            console.print(
                f"k={k}: {tree.switch_count} switches and {tree.host_count} hosts at "
                f"{f'{mbit:g} Mbit/s' if mbit else 'full speed'}; controller at {its.url}; logs in {its.directory}"
            )
            CLI(its.lab.net, script=str(script.resolve()) if script else None)
        return 0

    sys.exit(in_isolation(inside))


@main.command()
@click.option("--controller", default=CONTROLLER, show_default=True, metavar="URL", help="Where the controller is.")
@click.option("--json", "as_json", is_flag=True, help="The controller's answer as it is.")
def status(controller: str, as_json: bool) -> None:
    """What the controller holds and what has failed.

    The exit status is 0 if every switch is connected and nothing has failed, 3 if not, and 1 without an answer.
    """
    body = ask(controller, "/fabric")
    if as_json:
        click.echo(json.dumps(body))
    else:
        total = sum(body["switches"].values())
        click.echo(f"fat-tree      k={body['k']}, {total} switches, {body['hosts']} hosts")
        click.echo(f"connected     {body['connected']} of {total} switches")
        click.echo(f"version       {body['version']}")
        failures = [f"{failure['kind']} {failure['name']} {failure['reason']}" for failure in body["failures"]]
        click.echo(f"failures      {', '.join(failures) or 'none'}")
        if body["missing"]:
            click.echo(f"not here      {', '.join(body['missing'])}")
        for rejected in body["rejected"]:
            click.echo(f"left alone    {rejected['dpid']}: {rejected['reason']}")
    healthy = not (body["failures"] or body["missing"] or body["rejected"])
    sys.exit(0 if healthy else 3)


@main.command()
@click.argument("src")
@click.argument("dst")
@click.option("--controller", default=CONTROLLER, show_default=True, metavar="URL", help="Where the controller is.")
@click.option("--json", "as_json", is_flag=True, help="The controller's answer as it is.")
def paths(src: str, dst: str, controller: str, as_json: bool) -> None:
    """The candidate paths between two hosts, by their addresses, in the order in which packets take them.

    \b
    Example:
      sopa paths 10.0.0.2 10.2.0.2
    """
    body = ask(controller, "/paths", src=src, dst=dst)
    if as_json:
        click.echo(json.dumps(body))
        return
    title = (
        f"{src} to {dst}: {body['kind']}, {len(body['candidates'])} of {body['total']} paths, version {body['version']}"
    )
    table = Table("turn", "up", "option word", "way", title=title, title_justify="left")
    for turn, path in enumerate(body["candidates"]):
        table.add_row(str(turn), ", ".join(map(str, path["up"])) or "-", path["option"], " ".join(path["hops"]))
    for path in body["excluded"]:
        table.add_row("-", ", ".join(map(str, path["up"])) or "-", "", f"excluded: {path['reason']}")
    Console(highlight=False).print(table)


def ask(controller: str, path: str, **params: str) -> Any:
    """The controller's answer to a GET below ``/sopa/v1``; ends the command with a clear message if there is none."""
    url = f"{controller.rstrip('/')}/sopa/v1{path}"
    try:
        response = httpx.get(url, params=params, timeout=10, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fail(f"no answer from {url}: {error}. Is the controller running there? (--controller URL)")
    try:
        body = response.json()
    except ValueError:
        fail(f"{url} is not a SOPA controller: it answers {response.status_code} {response.reason_phrase}")
    if response.status_code != 200:
        fail(str(body.get("detail", response.reason_phrase)))
    return body


def need_root(command: str) -> None:
    """End with a clear message unless this is root."""
    import os

    if os.geteuid() != 0:
        fail(f"{command} needs root (network namespaces, BPF, sysctls): run it with sudo")


def in_isolation(main_inside: Callable[[], int]) -> int:
    """Run a function in a lab's namespaces; what it cannot work with becomes the command's error message."""
    from sopa_ryu.process import ProcessError
    from topologies.batch_net import LabError
    from topologies.hermetic import IsolationError, MissingCommandError, isolated
    from topologies.private_ovs import OvsError

    def guarded() -> int:
        try:
            return main_inside()
        except (LabError, MissingCommandError, OvsError, ProcessError) as error:
            click.echo(f"Error: {error}", err=True)
            return 1

    try:
        return isolated(guarded)
    except IsolationError as error:
        fail(str(error))


def log_to_stderr() -> None:
    """Log lines with their time, for a terminal or the journal."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("websockets").setLevel(logging.WARNING)


if __name__ == "__main__":
    main(prog_name="sopa")
