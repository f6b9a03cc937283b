"""The ``sopa`` command."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

import click

from sopa_ryu import __version__

_MODULES = {
    "agent": "agent",
    "agents": "query",
    "arbiter": "arbiter",
    "cluster": "cluster",
    "completion": "names",
    "doctor": "doctor",
    "drain": "maintenance",
    "events": "watch",
    "fabric": "fabric",
    "failures": "query",
    "parser": "parser",
    "health": "health",
    "paths": "query",
    "relay": "relay",
    "restore": "maintenance",
    "rules": "rules",
    "status": "query",
    "token": "token",
    "trace": "trace",
    "watch": "watch",
    "wiring": "query",
}
"""The module of each command. It is imported when the command is used: an agent need not load what queries need."""
_OF_TOOLS = ("demo", "experiment", "lab")


class Commands(click.Group):
    """The commands of this package, and those of other packages in the entry point group ``sopa.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*filter(_is_here, _MODULES), *(entry.name for entry in entry_points(group="sopa.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _MODULES and _is_here(cmd_name):
            own: click.Command = getattr(import_module(f"sopa_ryu.cli.{_MODULES[cmd_name]}"), cmd_name)
            return own
        for entry in entry_points(group="sopa.commands", name=cmd_name):
            found: click.Command = entry.load()
            return found
        package = "sopa-tools" if cmd_name in _OF_TOOLS else "sopa-controller"
        if cmd_name in (*_OF_TOOLS, *_MODULES) and not ctx.resilient_parsing:
            ctx.fail(f"{cmd_name} is in the Debian package {package}")
        return None


def _is_here(command: str) -> bool:
    """Return False if a package of Debian lacks the command, as that of agents lacks ``sopa relay``."""
    return find_spec(f"{__name__}.{_MODULES[command]}") is not None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sopa")
def main() -> None:
    """SOPA: packets sprayed round-robin over all paths of a fat-tree, by source routing.

    Start the controller by: ryu-manager sopa_ryu.app --sopa-k 4

    \b
    On one machine:    sopa demo                          a measured demonstration
                       sopa lab                           a fabric with a prompt
    On each host:      sopa agent --iface eth1 --controller http://192.0.2.1:8080
    Their tokens:      sopa token h0_0_2                  on the controller's machine
    For thousands:     sopa relay --cluster etcd://192.0.2.1:2379 --listen 192.0.2.4:8080
    Timeslots (CFR):   sopa arbiter --controller http://192.0.2.1:8080 --listen 192.0.2.1:9160
    From anywhere:     export SOPA_CONTROLLER=http://192.0.2.1:8080
                       sopa status                        state of the fabric
                       sopa failures, sopa wiring, sopa agents, sopa rules e0_0
                       sopa health                        links that lose packets, by probes
                       sopa watch                         changes as they happen
                       sopa events --since 1h             what has happened, by whom and why
                       sopa cluster                       of several controllers: who leads, relays, engine
                       sopa paths h0_0_2 h2_1_3           candidate paths of two hosts
                       sopa trace h0_0_2 h2_1_3           probes on these paths, by path and link
    Maintenance:       sopa drain c0_0 && sopa restore c0_0
    Set-up:            sopa doctor switch|controller|host
                       sopa fabric check FILE             what a fabric file describes
    Tab completion:    eval "$(sopa completion bash)"

    Commands that query a controller exit with 0 if all is well, 1 on an error or without an answer, 2 on wrong usage, and 3 if
    something has failed or differs from the plan.
    """
