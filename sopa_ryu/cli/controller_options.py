"""The options by which a command reaches a controller: its URLs, the token's file, the authorities."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from sopa_ryu.cli.client import DEFAULT_TOKEN_FILE, Controller
from sopa_ryu.runtime.option_fields import FILE, Command, urls

DEFAULT_URL = "http://127.0.0.1:8080"


def _urls(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    given = urls(ctx, param, values)
    for value in given:
        try:
            parts = urlsplit(value)
            right = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
            )
        except ValueError:
            right = False
        if not right:
            raise click.BadParameter(f"{value!r} is not a controller's URL, such as http://192.0.2.1:8080")
    return given


_URL_OPTION = click.option("--controller", "url", multiple=True, default=[DEFAULT_URL], show_default=True,
                           envvar="SOPA_CONTROLLER", show_envvar=True, metavar="URL", callback=_urls,
                           help="The controller's address. May be repeated for a cluster's controllers or relays: the first that "
                           "answers is asked, and for changes its leader.")  # fmt: skip
_TOKEN_OPTION = click.option("--token-file", envvar="SOPA_TOKEN_FILE", show_envvar=True, type=FILE, metavar="FILE",
                             help="The operator token, which drain, restore and trace require: a copy of the file token in the "
                             f"controller's --sopa-state-dir. By default {DEFAULT_TOKEN_FILE}, if readable.")  # fmt: skip
_CA_OPTION = click.option("--ca-file", envvar="SOPA_CA_FILE", show_envvar=True, type=FILE, metavar="FILE",
                          help="The authorities, in PEM, that are trusted to sign the certificate of an https URL. "
                          "The system's by default.")  # fmt: skip


def with_controller(command: Command) -> Command:
    """Add the options that locate the controller to a command, and pass the `Controller` as its first argument."""

    @functools.wraps(command)
    def connected(url: tuple[str, ...], token_file: Path | None, ca_file: Path | None, **rest: Any) -> Any:
        controller = Controller(url, token_file, ca_file)
        try:
            return command(controller, **rest)
        finally:
            controller.close()

    for option in (_CA_OPTION, _TOKEN_OPTION, _URL_OPTION):
        connected = option(connected)
    return connected  # type: ignore[return-value]
