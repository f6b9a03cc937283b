"""Options and error messages that several commands of ``sopa`` share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from flowrules.label import Carrier
from sopa_ryu.agent.bursts import AUTO, MAX_SEGMENTS
from sopa_ryu.agent.paths.path_table import Policy
from topologies import Clos, FatTree, TopologyError, fabric_file
from topologies.structure import Shape

Command = TypeVar("Command", bound=Callable[..., Any])


class FatTreeSize(click.ParamType[int]):
    """A size that `FatTree` accepts."""

    name = "K"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or end with a usage error."""
        with contextlib.suppress(ValueError):
            value = int(value)
        try:
            return FatTree(value).k
        except TopologyError as error:
            self.fail(str(error), param, ctx)


class FabricFile(click.ParamType[Clos]):
    """A fabric file."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Clos:
        """Return the fabric that the file describes, or end with a usage error that says what is wrong with it."""
        try:
            return value if isinstance(value, Clos) else fabric_file.load(Path(value))
        except TopologyError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete the name of a file."""
        return [CompletionItem(incomplete, type="file")]


class Segments(click.IntRange):
    """The packets of a burst that share a label: a number, or ``auto``."""

    name = "N|auto"

    def __init__(self) -> None:
        super().__init__(1, MAX_SEGMENTS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, `AUTO` for ``auto``, or end with a usage error."""
        return AUTO if value == "auto" else int(super().convert(value, param, ctx))


def urls(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of an option that may be repeated, or name several, separated by spaces, as a line of an environment file.

    >>> urls(None, None, ["http://r1:8080 http://r2:8080", "http://r1:8080"])
    ('http://r1:8080', 'http://r2:8080')
    """
    return tuple(dict.fromkeys(url for value in values for url in value.split() or [value]))


def fail(text: str) -> NoReturn:
    """End with an error message and status 1."""
    raise click.ClickException(text)


carrier_option = click.option(
    "--carrier",
    type=click.Choice([str(carrier) for carrier in Carrier]),
    default=str(Carrier.MAC),
    show_default=True,
    help="Where a packet carries its label: in the Ethernet source address, or in an IPv4 option.",
)
k_option = click.option(
    "--k", type=FatTreeSize(), default=4, show_default=True, help="Ports of every switch: even, 2 to 128."
)
fabric_file_option = click.option(
    "--fabric",
    type=FabricFile(),
    metavar="FILE",
    help="Fabric file, instead of --k: leaf-spine, oversubscribed, with absent or slower links, with gateways; "
    "sopa fabric check FILE explains it.",
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
    help="Rate of every link in Mbit/s. The default depends on the fabric and leaves this machine's processor idle time.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of everything random."
)


def policy_option(names: Sequence[str], more: str = "") -> Callable[[Command], Command]:
    """Return the option that chooses one of these policies; ``more`` is added to its help."""
    return click.option(
        "--policy",
        type=click.Choice(names),
        default="round-robin",
        show_default=True,
        help="Selects each packet's path: in turn, at random, by a hash of the flow, the path that carried the fewest bytes, or "
        "the next path after a gap in the flow (flowlet) or after a number of bytes (flowcell)." + more,
    )


def fabric_options(command: Command) -> Command:
    """Add the options of a lab's fabric."""
    return k_option(fabric_file_option(carrier_option(rate_option(command))))


def chosen_fabric(k: int, fabric: Clos | None) -> Clos:
    """Return the fabric of a command's ``--fabric``, or without it the fat-tree of ``--k``; a usage error if both are given."""
    if fabric is None:
        return FatTree(k)
    if click.get_current_context().get_parameter_source("k") is not ParameterSource.DEFAULT:
        raise click.UsageError("--k and --fabric exclude each other: a fabric file has all numbers of the fabric")
    return fabric


def labelling_options(command: Command) -> Command:
    """Add the options that decide the labels of packets, and how TCP bears reordering."""
    return policy_option([policy.option_name for policy in Policy])(threshold_option(command))


def fabric_of(body: dict[str, Any]) -> Clos:
    """Return the fabric of ``GET /sopa/v1/fabric``, without rates, gateways and absent links.

    Raises:
        TopologyError: If the answer is that of no fabric.
    """
    if body.get("k") is not None:
        return FatTree(body["k"])
    numbers = {name: body.get("hosts_per_edge" if name == "hosts" else name) for name in Shape._fields}
    return Clos.from_document(numbers)


def need_root(command: str) -> None:
    """End with an error message unless the user is root."""
    if os.geteuid() != 0:
        fail(f"{command} needs root (network namespaces, BPF, sysctls): run it with sudo")
