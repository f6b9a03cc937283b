"""Options and error messages that several commands of ``sopa`` share."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from flowrules.label import Carrier
from sopa_ryu.runtime.log_pace import LogPace
from topologies import Clos, FatTree, TopologyError, fabric_file
from topologies.identity import PREFIX6
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
            return value if isinstance(value, Clos) else fabric_file.load(Path(value), str(PREFIX6))  # as a controller has it
        except TopologyError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def a_time(text: str, now: float, ahead: bool = False) -> float:
    """Return a time in seconds since 1970: so long ago, or ahead, or of this machine's clock; raises `ValueError`.

    >>> a_time("90m", 10_000.0), a_time("2h", 10_000.0, ahead=True), a_time("1764160000.5", 0.0)
    (4600.0, 17200.0, 1764160000.5)
    """
    span = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if span is not None:
        seconds = int(span[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[span[2]]
        return now + seconds if ahead else now - seconds
    if re.fullmatch(r"[0-9]{9,10}(\.[0-9]+)?", text):
        return float(text)
    today = datetime.fromtimestamp(now)
    try:
        if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}", text):
            at = datetime.combine(today, datetime.strptime(text, "%H:%M").time())
            passed = at <= today
            return (at + timedelta(days=1 if ahead and passed else 0 if ahead or passed else -1)).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 30m, 2h or 1d, 18:00, or 2026-11-27T06:00") from None


def at_clock(at: float) -> str:
    """Return a time of this machine's clock, with its date unless it is today's."""
    moment = datetime.fromtimestamp(at)
    return moment.strftime("%H:%M:%S" if moment.date() == datetime.now().date() else "%F %T")


class Time(click.ParamType[float]):
    """A time as of `a_time`."""

    name = "time"

    def __init__(self, ahead: bool = False) -> None:
        self._ahead = ahead

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it in seconds since 1970."""
        try:
            return a_time(str(value), time.time(), self._ahead)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)


def fail(text: str) -> NoReturn:
    """End with an error message and status 1."""
    raise click.ClickException(text)


k_option = click.option("--k", type=FatTreeSize(), default=4, show_default=True, help="Ports of every switch: even, 2 to 128.")
fabric_file_option = click.option(
    "--fabric",
    type=FabricFile(),
    metavar="FILE",
    help="Fabric file, instead of --k: leaf-spine, oversubscribed, with absent or slower links, with gateways. sopa fabric check "
    "FILE explains it.",
)


def chosen_fabric(k: int, fabric: Clos | None, prefix6: str | None = str(PREFIX6)) -> Clos:
    """Return the fabric of a command's ``--fabric``, or without it the fat-tree of ``--k``; a usage error if both are given."""
    if fabric is None:
        return FatTree(k, prefix6)
    if click.get_current_context().get_parameter_source("k") is not ParameterSource.DEFAULT:
        raise click.UsageError("--k and --fabric exclude each other: a fabric file has all numbers of the fabric")
    return fabric


def need_switches(carrier: str) -> None:
    """Raise a usage error for a carrier that Open vSwitch does not forward."""
    if carrier == Carrier.SRV6:
        raise click.UsageError(
            "--carrier srv6 is for routers, not for Open vSwitch; sopa lab has them, as --switches srv6, and sopa experiment, as "
            "--schemes sopa-srv6"
        )


def fabric_of(body: dict[str, Any]) -> Clos:
    """Return the fabric of ``GET /sopa/v1/fabric``, without rates, gateways and absent links; `TopologyError` if it is none."""
    prefix6 = {name: body[name] for name in ("prefix6",) if name in body}
    if body.get("k") is not None:
        return FatTree(body["k"], **prefix6)
    numbers = {name: body.get("hosts_per_edge" if name == "hosts" else name) for name in Shape._fields}
    return Clos.from_document(numbers | prefix6)


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
