"""``sopa lab``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.console import Console

from experiments.cli.lab_isolation import in_isolation
from sopa_ryu.cli.common import (
    carrier_option,
    k_option,
    need_root,
    policy_option,
    rate_option,
    seed_option,
    threshold_option,
)
from topologies import FatTree


@click.command()
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
      sh sopa parser status --iface e0_0-eth1       with --carrier option: what that port has seen
      link a0_0 c0_1 down                           cut a link; up again: link a0_0 c0_1 up
      sh sopa status                                what the controller says
      sh sopa paths h0_0_2 h2_0_2                   the candidate paths of a pair
      sh sopa drain c0_0                            out for maintenance; back: sh sopa restore c0_0
      sh sopa rules e0_0                            what a switch should hold, beside what it holds
      sh ovs-ofctl -O OpenFlow13 dump-flows e0_0    a switch's entries
    """
    from mininet.cli import CLI

    from experiments.emulation.sopa_lab import SopaLab
    from flowrules.label import Carrier
    from topologies.lab.network import default_rate

    need_root("sopa lab")
    tree = FatTree(k)
    console = Console(stderr=True, highlight=False)
    mbit = None if no_limit else rate or default_rate(tree)
    options = [f"--policy={policy}", f"--fr-threshold={fr_threshold}", f"--seed={seed}"]

    def inside() -> int:
        its = SopaLab(
            tree,
            mbit,
            say=console.print,
            agents=not no_agents,
            agent_options=options,
            carrier=Carrier(carrier),
        )
        # for sopa as it is typed at the prompt: sh sopa drain c0_0, or h0_0_2 sopa status (there Mininet makes addresses of names)
        os.environ |= {"SOPA_CONTROLLER": its.url, "SOPA_TOKEN_FILE": str(its.controller.token_file)}
        with its:
            console.print(
                f"k={k}: {tree.switch_count} switches and {tree.host_count} hosts at "
                f"{f'{mbit:g} Mbit/s' if mbit else 'full speed'}, carrier {carrier}; "
                f"controller at {its.url}; logs in {its.directory}"
            )
            CLI(its.lab.net, script=str(script.resolve()) if script else None)
        return 0

    sys.exit(in_isolation(inside))
