"""The ``sopa`` command."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

import click

from sopa_ryu import __version__

# httpx imports its own command wherever click and rich are, a sixth of what a command of ours takes to start. None: it is absent.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

_GROUPS = {
    "Operate a fabric": {
        "status": "query",
        "failures": "query",
        "health": "health",
        "switches": "query",
        "links": "query",
        "hosts": "query",
        "agents": "query",
        "wiring": "query",
        "rules": "rules",
        "paths": "query",
        "trace": "trace",
        "watch": "watch",
        "events": "watch",
        "drain": "maintenance",
        "restore": "maintenance",
        "drains": "query",
        "cluster": "cluster",
    },
    "Set up": {
        "doctor": "doctor",
        "support": "support",
        "fabric": "fabric.command",
        "pki": "pki",
        "token": "token",
        "completion": "names",
    },
    "Run on hosts and servers": {"agent": "agent", "parser": "parser", "relay": "relay", "arbiter": "arbiter"},
}
"""The commands, as ``sopa --help`` groups them, and the module of each.

It is imported when the command is used: an agent need not load what queries need.
"""
_MODULES = {name: module for group in _GROUPS.values() for name, module in group.items()}
_TOOLS = "Learn and research"
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
        if cmd_name not in (*_OF_TOOLS, *_MODULES) and (near := get_close_matches(cmd_name, self.list_commands(ctx), 1)):
            ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]}?")
        package = "sopa-tools" if cmd_name in _OF_TOOLS else "sopa-controller"
        if cmd_name in (*_OF_TOOLS, *_MODULES) and not ctx.resilient_parsing:
            ctx.fail(f"{cmd_name} is in the Debian package {package}")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups, the others, of other packages, in the last one."""
        there = self.list_commands(ctx)
        groups = {title: [name for name in names if name in there] for title, names in _GROUPS.items()}
        groups[_TOOLS] = [name for name in there if name not in _MODULES]
        for title, names in groups.items():
            rows = [(name, command.get_short_help_str(200)) for name in names if (command := self.get_command(ctx, name))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _is_here(command: str) -> bool:
    """Return False if a package of Debian lacks the command, as that of agents lacks ``sopa relay``."""
    return find_spec(f"{__name__}.{_MODULES[command]}") is not None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sopa")
def main() -> None:
    """SOPA: packets sprayed round-robin over all paths of a fat-tree, by source routing.

    \b
    On one machine:       sopa demo, sopa lab
    The controller:       ryu-manager sopa_ryu.app --sopa-k 4
    On each host:         sopa agent --iface eth1 --controller http://192.0.2.1:8080
    From anywhere:        export SOPA_CONTROLLER=http://192.0.2.1:8080
                          sopa status
    Maintenance:          sopa drain c0_0 && sopa restore c0_0
    Tab completion:       eval "$(sopa completion bash)"

    Commands that query a controller exit with 0 if all is well, 1 on an error or without an answer, and 2 on wrong usage. They
    exit with 3 if something has failed or differs from the plan.
    """
