"""``sopa parser``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sopa_ryu.cli.client import Controller, with_controller
from sopa_ryu.cli.common import chosen_fabric, fabric_file_option, fail, k_option, log_to_stderr, need_root
from sopa_ryu.cli.output import add, new_table, show
from topologies import Clos

if TYPE_CHECKING:
    from sopa_ryu.agent.kernel.netns import Interface

Result = TypeVar("Result")

_interfaces = click.option(
    "--iface",
    "interfaces",
    required=True,
    multiple=True,
    metavar="IF[@NETNS]",
    help="Interface of an edge switch towards a host. May be repeated. eth1@/run/netns/NAME is one in another network namespace.",
)


@click.group()
def parser() -> None:
    """Read labels at an edge switch's ports towards hosts (--carrier option, --carrier id).

    The parser is a small XDP program at the switch's ports towards hosts. It copies the label of a packet into the Ethernet
    source address, where the switch's flow entries match it. It clears an address that a host has written as a label. It stays
    attached when the switch restarts, until it is detached or the machine restarts.

    With --carrier id a host writes one label for a burst, and its port gives each packet of the burst the next candidate path.
    That takes a process that follows the controller: sopa parser follow.

    \b
    Examples:
      sopa parser attach --iface e0_0-eth1 --iface e0_0-eth2
      sopa parser status --iface e0_0-eth1
      sopa parser detach --iface e0_0-eth1 --iface e0_0-eth2
    """


@parser.command()
@_interfaces
@click.option(
    "--mode",
    type=click.Choice(["auto", "native", "generic"]),
    default="auto",
    show_default=True,
    help="native: in the driver. generic: behind it, slower, on every interface. auto: native where the driver can.",
)
def attach(interfaces: tuple[str, ...], mode: str) -> None:
    """Attach the parser. An attached one is replaced without a gap."""
    need_root("sopa parser")
    from sopa_ryu.agent.label import edge_parser

    wanted = None if mode == "auto" else edge_parser.Mode(mode)

    def each(interface: Interface) -> None:
        click.echo(f"{interface.name}: attached, {edge_parser.attach(interface, wanted)} mode")

    _for_all(interfaces, each)


@parser.command()
@_interfaces
def detach(interfaces: tuple[str, ...]) -> None:
    """Remove the parser."""
    need_root("sopa parser")
    from sopa_ryu.agent.label import edge_parser

    def each(interface: Interface) -> None:
        click.echo(f"{interface.name}: {'detached' if edge_parser.detach(interface) else 'there was none'}")

    _for_all(interfaces, each)


@parser.command()
@_interfaces
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, by interface.")
def status(interfaces: tuple[str, ...], as_json: bool) -> None:
    """Show the mode and the packet counters of each parser. The exit status is 1 if one is missing."""
    need_root("sopa parser")
    from sopa_ryu.agent.label import edge_parser

    found = dict(zip(interfaces, _for_all(interfaces, edge_parser.status), strict=True))
    if as_json:
        click.echo(json.dumps({name: _object(state) for name, state in found.items()}, indent=1))
    else:
        missing = tuple(seen.name.lower() for seen in edge_parser.Finding)
        for names in dict.fromkeys(tuple(state.counters) if state else missing for state in found.values()):
            table = new_table("interface", "mode", *names, right=names)
            for name, state in found.items():
                if (tuple(state.counters) if state else missing) == names:
                    counts = [state.counters[seen] for seen in names] if state else [None] * len(names)
                    add(table, name, (state.mode or "several") if state else "none", *counts)
            show(table)
    sys.exit(0 if all(found.values()) else 1)


@parser.command()
@fabric_file_option
@k_option
@click.option(
    "--edge",
    "edges",
    required=True,
    multiple=True,
    metavar="NAME=IF[@NETNS][,IF...]",
    help="An edge switch, and its interfaces towards hosts. May be repeated.",
)
@with_controller
def follow(controller: Controller, k: int, fabric: Clos | None, edges: tuple[str, ...]) -> None:
    """Spread the packets of bursts over the candidate paths, as the controller excludes and weights them (--carrier id).

    It asks the controller for failures once a second until a signal ends it, and frees the ports then. Switches steer labels of
    paths that fail in between. After 30 s without a controller, or if it is killed, switches hash the flows whose bursts ask to
    be spread. They are counted as outdated.

    \b
    Examples:
      sopa parser follow --k 4 --controller http://192.0.2.1:8080 --edge e0_0=e0_0-eth1,e0_0-eth2
    """
    need_root("sopa parser")
    from sopa_ryu.cli.spreading import spread

    log_to_stderr()
    sys.exit(spread(controller, chosen_fabric(k, fabric), edges))


def _object(status: Any) -> dict[str, Any] | None:
    return None if status is None else {"program": status.identifier, "mode": status.mode, **status.counters}


def _for_all(texts: Sequence[str], each: Callable[[Interface], Result]) -> list[Result]:
    """Return the results of all interfaces; a failing one does not keep the others from being tried."""
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.netns import Interface, NetnsError

    results: list[Result] = []
    problems: list[str] = []
    for text in dict.fromkeys(texts):
        try:
            results.append(each(Interface.parse(text)))
        except (BpfError, NetnsError, ValueError) as error:
            problems.append(str(error))
    if problems:
        fail("\n".join(problems))
    return results
