"""The ``sopa`` command."""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from sopa_ryu import __version__
from sopa_ryu.cli.agent import agent
from sopa_ryu.cli.completion import completion
from sopa_ryu.cli.doctor import doctor
from sopa_ryu.cli.maintenance import drain, restore
from sopa_ryu.cli.parser import parser
from sopa_ryu.cli.query import agents, failures, paths, status, wiring
from sopa_ryu.cli.rules import rules
from sopa_ryu.cli.token import token
from sopa_ryu.cli.watch import watch


class Commands(click.Group):
    """The commands of this package, and those of other packages in the entry point group ``sopa.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, sorted."""
        return sorted({*super().list_commands(ctx), *(entry.name for entry in entry_points(group="sopa.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name; a command of another package is imported only now."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group="sopa.commands", name=cmd_name):
            found: click.Command = entry.load()
            return found
        return None


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
    From anywhere:     export SOPA_CONTROLLER=http://192.0.2.1:8080
                       sopa status                        state of the fabric
                       sopa failures, sopa wiring, sopa agents, sopa rules e0_0
                       sopa watch                         changes as they happen
                       sopa paths h0_0_2 h2_1_3           candidate paths of two hosts
    Maintenance:       sopa drain c0_0 && sopa restore c0_0
    Set-up:            sopa doctor switch|controller|host
    Tab completion:    eval "$(sopa completion bash)"

    Commands that query a controller exit with 0 if all is well, 1 on an error or without an answer, 2 on wrong usage, and 3 if
    something has failed or differs from the plan.
    """


_COMMANDS = (
    agent, agents, completion, doctor, drain, failures, parser, paths, restore, rules, status, token, watch, wiring,
)  # fmt: skip
for _command in _COMMANDS:
    main.add_command(_command)
