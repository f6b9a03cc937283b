"""Commands that run in the namespaces of a lab, and their common options."""

from __future__ import annotations

from collections.abc import Callable

import click

from sopa_ryu.agent.agent_options import POLICIES, AgentOptions
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.cli.common import fabric_file_option, fail, k_option
from sopa_ryu.runtime.option_fields import Command, option_of
from topologies.lab.datapath import Datapath, NoDatapathError, choose

AUTO = "auto"

datapath_option = click.option(
    "--datapath",
    type=click.Choice([AUTO, *(each.value for each in Datapath)]),
    default=AUTO,
    show_default=True,
    help="What forwards packets: the kernel's datapath of Open vSwitch, or its own in user space; by default the kernel's if its "
    "module openvswitch is loaded or can be.",
)

controllers_option = click.option(
    "--controllers",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    help="Controllers of the fabric. With more than one they are a cluster on three nodes of etcd, and two relays serve agents, "
    "each in a network namespace of its own (docs/cluster.md).",
)


rate_option = click.option(
    "--rate",
    type=click.FloatRange(0.1, 10_000),
    metavar="MBIT",
    help="Rate of every link in Mbit/s. The default depends on the fabric and leaves this machine's processor idle time.",
)
carrier_option, threshold_option, seed_option = (
    option_of(AgentOptions, name) for name in ("carrier", "fr_threshold", "seed")
)


def policy_option(*others: str, more: str = "") -> Callable[[Command], Command]:
    """Return the option that chooses a policy of labels, or one of others; ``more`` is added to its help."""
    names = [*(policy.option_name for policy in Policy), *others]
    return option_of(AgentOptions, "policy", type=click.Choice(names), help=POLICIES + more)


def fabric_options(command: Command) -> Command:
    """Add the options of a lab's fabric."""
    return k_option(fabric_file_option(carrier_option(rate_option(command))))


def chosen_datapath(option: str) -> Datapath:
    """Return the datapath of the option, or end with an error message if this kernel lacks it."""
    try:
        return choose(None if option == AUTO else Datapath(option))
    except NoDatapathError as error:
        fail(str(error))


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
