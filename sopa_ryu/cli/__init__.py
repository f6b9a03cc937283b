"""The ``sopa`` command."""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from sopa_ryu import __version__
from sopa_ryu.cli.agent import agent
from sopa_ryu.cli.lab import lab
from sopa_ryu.cli.parser import parser
from sopa_ryu.cli.query import paths, status


class Commands(click.Group):
    """This package's commands and those of packages above it, which say so by the entry point group ``sopa.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in order."""
        return sorted({*super().list_commands(ctx), *(entry.name for entry in entry_points(group="sopa.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; one of another package is imported only then."""
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
    """SOPA: packets sprayed round-robin over every path of a fat-tree, by source routing.

    The controller itself is started by: ryu-manager sopa_ryu.app --sopa-k 4
    """


for _command in (agent, lab, parser, paths, status):
    main.add_command(_command)
