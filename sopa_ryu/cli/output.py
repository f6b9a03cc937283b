"""Tables for people: as wide as the terminal, or as they need to be where there is none."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_COLUMNS = 10_000
"""Without a terminal nothing is cut or wrapped: a table is as wide as what is in it."""

BAD, PENDING, GOOD = "red", "yellow", "green"


def new_table(*columns: str, right: tuple[str, ...] = (), wrap: tuple[str, ...] = ()) -> Table:
    """An empty table.

    Parameters
    ----------
    *columns : str
        Their headings.
    right : tuple of str
        Those of numbers, which are flush right.
    wrap : tuple of str
        Those of sentences, which may take several lines on a terminal that is too narrow.
    """
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column not in wrap,
                         overflow="fold")  # fmt: skip
    return table


def add(table: Table, *cells: object, style: str | None = None) -> None:
    """Add a row; a cell is shown as it is, whatever brackets it has, and None as a dash."""
    table.add_row(*(cell if isinstance(cell, Text) else Text("-" if cell is None else str(cell)) for cell in cells),
                  style=style)  # fmt: skip


def show(table: Table) -> None:
    """Print it to stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_COLUMNS)
    with console.capture() as captured:
        console.print(table)
    # rich pads every line to the table's width, and puts an empty one around
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("\n".join(line for line in lines if line) + "\n")
    console.file.flush()
