"""What several commands of ``sopa`` share: options, error messages, and the lab's namespaces."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NoReturn

import click

from flowrules.label import Carrier
from sopa_ryu.agent.paths.path_table import Policy
from topologies import FatTree, TopologyError

POLICIES = tuple(policy.name.lower().replace("_", "-") for policy in Policy)


class FatTreeSize(click.ParamType[int]):
    """A size that `FatTree` takes, refused with its own words."""

    name = "K"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or a usage error."""
        with contextlib.suppress(ValueError):
            value = int(value)
        try:
            return FatTree(value).k
        except TopologyError as error:
            self.fail(str(error), param, ctx)


def fail(text: str) -> NoReturn:
    """End with an error message and status 1."""
    raise click.ClickException(text)


carrier_option = click.option(
    "--carrier",
    type=click.Choice([str(carrier) for carrier in Carrier]),
    default=str(Carrier.MAC),
    show_default=True,
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
    help="How each packet's path is chosen: in turn, at random, one per flow, the one that has carried least, or another one after "
    "a gap (flowlet) or after so many bytes (flowcell) of the flow.",
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


def need_root(command: str) -> None:
    """End with a clear message unless this is root."""
    if os.geteuid() != 0:
        fail(f"{command} needs root (network namespaces, BPF, sysctls): run it with sudo")
