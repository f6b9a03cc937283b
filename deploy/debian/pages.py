"""The manual page sopa(1), of what the commands say of themselves for --help: ``python pages.py VERSION >sopa.1``."""

from __future__ import annotations

import inspect
import os
import re
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import click

from sopa_ryu.cli import main


class StandIn(ModuleType):
    """A module of Mininet's, which modules of commands import, and which is not needed to build: any name in it is a class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def escaped(text: str) -> str:
    """Return text as roff prints it unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """Yield a help text as roff; click keeps the lines of a paragraph that begins with a backspace."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f".PP\n.nf\n{escaped(paragraph[2:])}\n.fi\n"
        else:
            yield f".PP\n{escaped(paragraph)}\n"


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield a command, and those below it, as roff."""
    if context.parent is not None:
        yield f".SH {escaped(context.command_path).upper()}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".PP\n\\fB{escaped(context.command_path)}\\fR {escaped(usage)}\n"
    yield from paragraphs(command.help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and not record[0].endswith("--help"):
            yield f".TP\n\\fB{escaped(record[0])}\\fR\n{escaped(record[1])}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from described(below, click.Context(below, context, name))


def page(version: str) -> Iterator[str]:
    """Yield the page as roff."""
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    yield f'.TH SOPA 1 "{date}" "SOPA {version}" "SOPA"\n'
    yield ".SH NAME\nsopa \\- agent, queries, maintenance, laboratory and experiments of SOPA\n.SH DESCRIPTION\n"
    yield from described(main, click.Context(main, info_name="sopa"))
    yield ".SH SEE ALSO\n.BR ryu\\-manager (8),\n.I /usr/share/doc/sopa\\-*/docs/operating.md\n"


if __name__ == "__main__":
    for below in ("", ".cli", ".link", ".log", ".net", ".node", ".topo", ".util"):
        sys.modules[f"mininet{below}"] = StandIn(f"mininet{below}")
    sys.stdout.writelines(page(sys.argv[1]))
