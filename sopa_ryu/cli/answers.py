"""How commands print a controller's answer, as text or JSON, and the exit status that follows from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from sopa_ryu.cli.client import Body

NOT_RIGHT = 3
"""Exit status: the controller has answered, and something has failed or differs from the plan."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print the controller's answer as JSON.")


def print_json(body: Body) -> None:
    """Print an answer as one line of JSON."""
    click.echo(json.dumps(body))


def present(body: Body, as_json: bool, wrong: object, show_text: Callable[[Body], object]) -> NoReturn:
    """Print an answer, and end with the exit status.

    Args:
        as_json: Print it as JSON, instead of by ``show_text``.
        wrong: True, or not empty, if something has failed or differs from the plan: the exit status is `NOT_RIGHT`.
        show_text: Prints the answer for a reader.
    """
    (print_json if as_json else show_text)(body)
    sys.exit(NOT_RIGHT if wrong else 0)
