"""Commands that run in the namespaces of a lab: their common options, and the rate of its links."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from experiments.core.campaign import Campaign
from experiments.emulation.published import HOST, PORT, Published, PublishError, listening, seen_from_outside
from sopa_ryu.agent.agent_options import POLICIES, AgentOptions
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.cli.common import fabric_file_option, fail, k_option, need_root
from sopa_ryu.runtime.option_fields import Command, option_of
from topologies import Clos
from topologies.lab.datapath import DatapathKind, NoDatapathError, choose
from topologies.lab.links import HOPS, bfd_interval_ms, calibrated_rate, default_rate

AUTO = "auto"

datapath_option = click.option(
    "--datapath",
    type=click.Choice([AUTO, *(each.value for each in DatapathKind)]),
    default=AUTO,
    show_default=True,
    help="What forwards packets: the kernel's datapath of Open vSwitch, or its own in user space. By default the kernel's, if its "
    "module openvswitch is loaded or can be.",
)

controllers_option = click.option(
    "--controllers",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    help="Controllers of the fabric. With more than one they are a cluster on three nodes of etcd, and two relays serve agents. "
    "Each is in a network namespace of its own (docs/cluster.md).",
)


publish_option = click.option(
    "--publish",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"Port at {HOST} of this machine for the page and REST. 0: none. By default {PORT}, or a free one if that is taken.",
)
MOST_MBIT = 10_000
rate_option = click.option(
    "--rate",
    type=click.FloatRange(0.1, MOST_MBIT),
    metavar="MBIT",
    help="Rate of every link in Mbit/s. The default depends on the fabric and leaves this machine's processor idle time.",
)
carrier_option, spray_option, threshold_option, seed_option = (
    option_of(AgentOptions, name) for name in ("carrier", "spray", "fr_threshold", "seed")
)


def policy_option(*others: str, more: str = "") -> Callable[[Command], Command]:
    """Return the option that chooses a policy of labels, or one of others; ``more`` is added to its help."""
    names = [*(policy.option_name for policy in Policy), *others]
    return option_of(AgentOptions, "policy", type=click.Choice(names), help=POLICIES + more)


def fabric_options(command: Command) -> Command:
    """Add the options of a lab's fabric."""
    return k_option(fabric_file_option(carrier_option(rate_option(command))))


def chosen_datapath(option: str) -> DatapathKind:
    """Return the datapath of the option, or end with an error message if this kernel lacks it."""
    try:
        return choose(None if option == AUTO else DatapathKind(option))
    except NoDatapathError as error:
        fail(str(error))


def run_campaign(campaign: Campaign) -> int:
    """Run what is missing of an experiment in namespaces of its own, and return its status. Exits with an error without root."""
    need_root("sopa experiment")
    out = campaign.results.directory
    if Path("/run") in (out.resolve(), *out.resolve().parents):
        fail(f"{out} is in /run, which a lab replaces by its own: give another --out")

    def inside() -> int:
        from experiments.emulation.lab_run import run_in_lab

        return run_in_lab(campaign)

    return in_isolation(inside)


def in_isolation(main_inside: Callable[[], int]) -> int:
    """Run a function in namespaces of its own and return its status. Lab errors become error messages of the command."""
    from experiments.emulation.processes import ProcessError
    from topologies.lab.batch_net import LabError
    from topologies.lab.isolation import IsolationError, MissingCommandError, isolated
    from topologies.lab.private_ovs import OvsError

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


def publish_socket(port: int | None) -> socket.socket | None:
    """Return the socket at which a lab is published, or end with an error message. Call it outside of the namespaces."""
    try:
        return listening(port)
    except PublishError as error:
        fail(str(error))


@contextmanager
def published(listener: socket.socket | None, target: Callable[[], str], token: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Publish a lab's page and REST, and say how to reach them from another shell."""
    if listener is None:
        yield
        return
    with Published(listener, target) as its:
        say(f"page at {its.url}/; in another shell:")
        where = "" if its.url.endswith(f":{PORT}") else f"SOPA_CONTROLLER={its.url} "
        say(f"  export {where}SOPA_TOKEN_FILE={seen_from_outside(token)}; sopa status")
        yield


class Rate(NamedTuple):
    """The links of a lab: their rate in Mbit/s, BFD's interval in ms, and the reason for the rate, for the operator."""

    mbit: float
    bfd_ms: int
    why: str


def given_rate(tree: Clos, mbit: float) -> Rate:
    """Return the links of a lab whose rate the operator gives."""
    return Rate(mbit, bfd_interval_ms(tree), "as given")


def default_links(tree: Clos) -> Rate:
    """Return the links of a lab that is not measured before."""
    return Rate(default_rate(tree), bfd_interval_ms(tree), "the same on every machine; --rate sets another")


def measured_rate(tree: Clos, datapath: DatapathKind) -> Rate:
    """Measure for about a second, inside `isolation.isolated`, and return the links of a lab that leave the machine idle time."""
    from topologies.lab.calibration import seconds_per_packet  # Mininet takes long to import

    seconds, processors = seconds_per_packet(datapath), len(os.sched_getaffinity(0))
    mbit = calibrated_rate(tree, seconds, datapath is DatapathKind.KERNEL, processors)
    why = (
        f"a packet takes {1e6 * seconds:.0f} us of processor time on {HOPS} switches here ({datapath} datapath, "
        f"{processors} processors), and {tree.host_count} hosts send; --rate sets another"
    )
    return Rate(mbit, bfd_interval_ms(tree, seconds), why)
