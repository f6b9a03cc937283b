"""How commands print: answers as text or JSON, with the exit status; tables, without a terminal as wide as their contents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NoReturn

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sopa_ryu.cli.client import Body, shown

NOT_RIGHT = 3
"""Exit status: the controller has answered, and something has failed or differs from the plan."""
PIPED_COLUMNS = 10_000
"""Without a terminal nothing is cut or wrapped."""

BAD, PENDING, GOOD = "red", "yellow", "green"

json_option = click.option("--json", "as_json", is_flag=True, help="Print the controller's answer as JSON.")


def new_table(*columns: str, right: tuple[str, ...] = (), wrap: tuple[str, ...] = ()) -> Table:
    """Return an empty table; ``right`` names numeric columns, ``wrap`` those that may be wrapped on a narrow terminal."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column not in wrap,
                         overflow="fold")  # fmt: skip
    return table


def add(table: Table, *cells: object, style: str | None = None) -> None:
    """Add a row; brackets in cells have no special meaning, and None is shown as a dash."""
    table.add_row(*(cell if isinstance(cell, Text) else Text("-" if cell is None else str(cell)) for cell in cells),
                  style=style)  # fmt: skip


def show(table: Table) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_COLUMNS)
    with console.capture() as captured:
        console.print(table)
    # rich pads every line to the table's width, and adds empty lines around it
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("\n".join(line for line in lines if line) + "\n")
    console.file.flush()


def print_json(body: Body) -> None:
    click.echo(json.dumps(body))


def present(body: Body, as_json: bool, wrong: object, show_text: Callable[[Body], object]) -> NoReturn:
    """Print an answer, as JSON or by ``show_text``, and end: with status `NOT_RIGHT` if ``wrong`` is true or not empty."""
    if as_json:
        print_json(body)
    else:
        show_text(shown(body))
    sys.exit(NOT_RIGHT if wrong else 0)
