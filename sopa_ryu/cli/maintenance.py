"""``sopa drain`` and ``sopa restore``: exclude links and switches from the candidate paths, and include them again."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from sopa_ryu.cli.client import Body, Controller, Refused, shown, with_controller
from sopa_ryu.cli.common import Time, fail
from sopa_ryu.cli.names import drained, elements
from sopa_ryu.cli.output import NOT_RIGHT, json_option, print_json
from sopa_ryu.cli.query import show_impact

WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.1

_names_of_all = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=elements)
_names_of_drained = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=drained)
_wait = click.option("--wait", type=click.FloatRange(0), default=WAIT_SECONDS, show_default=True, metavar="SECONDS",
                     help="Time to wait until the change is in force everywhere. 0: do not wait.")  # fmt: skip


@click.command()
@_names_of_all
@click.option("--reason", metavar="TEXT", help="Why, for those who find it drained.")
@click.option("--until", type=Time(ahead=True), metavar="TIME",
              help="When the drain ends by itself: in 30m, 2h or 1d, at 18:00, or 2026-11-27T06:00.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change nothing: show what the fabric would be left with.")
@_wait
@with_controller
@json_option
def drain(
    controller: Controller,
    names: tuple[str, ...],
    reason: str | None,
    until: float | None,
    dry_run: bool,
    wait: float,
    as_json: bool,
) -> None:
    """Exclude links or switches from the candidate paths, for maintenance.

    The command ends when the change is in force at every agent and switch. From then on no packet takes a drained element, except
    packets that have no other path: a drain never disconnects a rack. Drains survive a restart of the controller. sopa failures
    lists them. This command requires the operator token.

    \b
    Examples:
      sopa drain c0_0                        a switch
      sopa drain c0_0 --dry-run              what would be left?
      sopa drain c0_0 --reason "fan, ticket 4711" --until 2h
      sopa drain e0_0-a0_1 a0_0-c0_1         two links
      sudo sopa drain c0_0                   on the controller's host, where root can read the token
      sopa restore c0_0                      include it again

    \b
    Exit status:
      0   done, and in force everywhere
      1   not done for every name: no answer, no token, no such link or switch
      2   wrong usage
      3   done, but an agent or switch has not confirmed it in time (--dry-run: a pair of racks would lose its last path)
    """
    if dry_run:
        show_impact(controller, names, as_json)
    _change(controller, "PUT", names, "drained", wait, as_json, reason=reason, until=None if until is None else f"{until:.0f}")


@click.command()
@_names_of_drained
@_wait
@with_controller
@json_option
def restore(controller: Controller, names: tuple[str, ...], wait: float, as_json: bool) -> None:
    """Restore drained links or switches.

    An element that has failed meanwhile remains excluded until it heals. This command requires the operator token.

    \b
    Examples:
      sopa restore c0_0
      sopa failures --json | jq -r '.failures[] | select(.reason == "drained").name' | xargs sopa restore

    \b
    Exit status:
      0   done, and in force everywhere
      1   not done for every name: no answer, no token, no such link or switch
      2   wrong usage
      3   done, but an agent or switch has not confirmed it in time
    """
    _change(controller, "DELETE", names, "back in use", wait, as_json)


def _change(
    controller: Controller, method: str, names: Sequence[str], done: str, wait: float, as_json: bool, **params: object
) -> None:
    """Change every name, even after one was rejected; report all errors at the end."""
    problems: list[str] = []
    body: Body | None = None
    for name in dict.fromkeys(names):
        try:
            body = controller.change(method, "/drains", name, **params)
        except Refused as error:
            if error.status == 401:  # the token is the same for the other names
                raise
            problems.append(error.message)
        else:
            if not as_json:
                click.echo(shown(f"{controller.aliases.own(name)}: {done}"))
    confirmed = True
    if body is not None:
        confirmed = not wait or _in_force(controller, body["version"], wait, as_json)
        if as_json:
            print_json(controller.listing("/drains", "drains"))
    if problems:
        fail("\n".join(problems))
    sys.exit(0 if confirmed else NOT_RIGHT)


def _in_force(controller: Controller, version: int, seconds: float, quiet: bool) -> bool:
    """Wait until a version, or a later one, is in force at all agents and switches."""
    has_switches = not controller.get("/fabric").get("no_switches")
    deadline = time.monotonic() + seconds
    while True:
        changes = [change for change in controller.get("/changes")["changes"] if change["version"] >= version]
        behind = controller.get("/agents", limit=1)["behind"]
        installed = not has_switches or not changes or any(change["installed_ms"] is not None for change in changes)
        if installed and not behind:
            if not quiet:
                where = "all agents and switches" if has_switches else "all agents"
                click.echo(f"version {version}: in force at {where}{_after(changes, version)}")
            return True
        if time.monotonic() > deadline:
            late = [f"{behind} agents (sopa agents)"] if behind else []
            late += [] if installed else ["a switch (see the controller's log)"]
            click.echo(f"version {version}: not in force after {seconds:g} s at {' and '.join(late)}", err=True)
            return False
        time.sleep(LOOK_SECONDS)


def _after(changes: Sequence[Body], version: int) -> str:
    this = next((change for change in changes if change["version"] == version), {})
    times = [this[what] for what in ("acknowledged_ms", "installed_ms") if this.get(what) is not None]
    return f", {max(times):.0f} ms after the request" if times else ""
