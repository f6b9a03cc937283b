"""Options and error messages that several commands of ``sopa`` share."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from sopa_ryu.runtime.log_pace import LogPace
from topologies import Clos, FatTree, TopologyError, fabric_file
from topologies.structure import Shape


class FatTreeSize(click.ParamType[int]):
    """A size that `FatTree` accepts."""

    name = "K"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        with contextlib.suppress(ValueError):
            value = int(value)
        try:
            return FatTree(value).k
        except TopologyError as error:
            self.fail(str(error), param, ctx)


class FabricFile(click.ParamType[Clos]):
    """A fabric file."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Clos:
        try:
            return value if isinstance(value, Clos) else fabric_file.load(Path(value))
        except TopologyError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def fail(text: str) -> NoReturn:
    """End with an error message and status 1."""
    raise click.ClickException(text)


k_option = click.option("--k", type=FatTreeSize(), default=4, show_default=True, help="Ports of every switch: even, 2 to 128.")
fabric_file_option = click.option(
    "--fabric",
    type=FabricFile(),
    metavar="FILE",
    help="Fabric file, instead of --k: leaf-spine, oversubscribed, with absent or slower links, with gateways; "
    "sopa fabric check FILE explains it.",
)


def chosen_fabric(k: int, fabric: Clos | None) -> Clos:
    """Return the fabric of a command's ``--fabric``, or without it the fat-tree of ``--k``; a usage error if both are given."""
    if fabric is None:
        return FatTree(k)
    if click.get_current_context().get_parameter_source("k") is not ParameterSource.DEFAULT:
        raise click.UsageError("--k and --fabric exclude each other: a fabric file has all numbers of the fabric")
    return fabric


def fabric_of(body: dict[str, Any]) -> Clos:
    """Return the fabric of ``GET /sopa/v1/fabric``, without rates, gateways and absent links; `TopologyError` if it is none."""
    if body.get("k") is not None:
        return FatTree(body["k"])
    numbers = {name: body.get("hosts_per_edge" if name == "hosts" else name) for name in Shape._fields}
    return Clos.from_document(numbers)


def need_root(command: str) -> None:
    if os.geteuid() != 0:
        fail(f"{command} needs root (network namespaces, BPF, sysctls): run it with sudo")


def log_to_stderr() -> None:
    """Write log lines with their time to standard error, for a terminal or the journal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LogPace())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])
    for library in ("websockets", "httpx"):  # a line for each connection, and for each request
        logging.getLogger(library).setLevel(logging.WARNING)
