"""Tables on standard output: as wide as the terminal, or as wide as their contents without one."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_COLUMNS = 10_000
"""Without a terminal nothing is cut or wrapped."""

BAD, PENDING, GOOD = "red", "yellow", "green"


def new_table(*columns: str, right: tuple[str, ...] = (), wrap: tuple[str, ...] = ()) -> Table:
    """Return an empty table.

    Args:
        *columns: The headings.
        right: The headings of numeric columns, which are aligned right.
        wrap: The headings of columns that may be wrapped on a narrow terminal.
    """
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
    """Print a table to standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_COLUMNS)
    with console.capture() as captured:
        console.print(table)
    # rich pads every line to the table's width, and adds empty lines around it
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("\n".join(line for line in lines if line) + "\n")
    console.file.flush()
