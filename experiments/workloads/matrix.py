"""Traffic matrices and traces from CSV files with the columns ``src,dst,bytes,start``."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.suggestions import unknown
from experiments.workloads.checks import first_across, need_scale, need_transfers
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos, Host

NEEDED = ("src", "dst", "bytes")
COLUMNS = (*NEEDED, "start")
LONG_NAMES = {"source": "src", "destination": "dst"}
FIRST_LINE = "the first line must be src,dst,bytes or src,dst,bytes,start"
AFTERWARDS = 10.0
"""Default time in seconds that a run in the lab continues after the start of its last transfer."""
_MAX_DIGITS = 15


@dataclass(frozen=True)
class MatrixRow:
    """One line of a file. Hosts are text here: which ones they are depends on the fabric."""

    line: int
    src: str
    dst: str
    bytes: int | None
    start: float


def from_csv(path: Path) -> Workload:
    """Return a workload, named as the file without ``.csv``, with one transfer per line of the file.

    The first line names the columns, in any order. ``src`` and ``dst``, or ``source`` and ``destination``, are names or addresses
    of hosts. ``bytes`` is the payload, or empty to send until the end of the run. ``start`` is the time after the start of the run
    in seconds; default 0. The transfers and their order do not depend on the seed. Raises `WorkloadError` if the file is unreadable
    or a line is invalid. Hosts are checked when a plan is built.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path} is not UTF-8 text: write src,dst,bytes,start as plain CSV") from error
    rows = tuple(_rows(path, text))
    if not rows:
        raise WorkloadError(f"{path} contains no transfers: write one per line, such as h0_0_2,h1_0_2,1000000,0")
    need_transfers(len(rows), str(path), "split the file")
    return Workload(
        path.stem,
        f"the traffic matrix {path.name}",
        partial(_plan, path, rows),
        seconds=AFTERWARDS,
        latest=max(row.start for row in rows),
        # A changed file is another experiment: its results need another directory.
        parameters={"matrix": path.name, "matrix_sha256": hashlib.sha256(data).hexdigest()},
    )


def _plan(path: Path, rows: Sequence[MatrixRow], tree: Clos, seed: int, scale: Scale) -> Plan:
    need_scale(scale)
    transfers = []
    for row in rows:
        where = f"{path}, line {row.line}"
        src, dst = _host(tree, row.src, where), _host(tree, row.dst, where)
        if src == dst:
            raise WorkloadError(f"{where}: {row.src} sends to itself: write two different hosts")
        if row.start >= scale.seconds:
            raise WorkloadError(
                f"{where}: start {row.start:g} is not before the end of the run at {scale.seconds:g} s: "
                "write an earlier start, or give more --seconds"
            )
        transfers.append(Transfer(src, dst, row.bytes, row.start))
    return Plan(tuple(transfers), scale.seconds, traced=first_across(tree, transfers))


def _host(tree: Clos, text: str, where: str) -> Host:
    try:
        return tree.host_by_ip(text) if text[:1].isdigit() else tree.host(text)
    except ValueError as error:  # a TopologyError or AddressValueError
        *_, last = tree.hosts()
        first = next(tree.hosts())
        raise WorkloadError(
            f"{where}: {text!r} is not a host of a {tree.title}: write a name from {tree.name(first)} to "
            f"{tree.name(last)}, or an address from {tree.ip(first)} to {tree.ip(last)}"
        ) from error


def _rows(path: Path, text: str) -> Iterator[MatrixRow]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] | None = None
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            where = f"{path}, line {reader.line_num}"
            if columns is None:
                columns = _columns(cells, where)
            elif len(cells) != len(columns):
                raise WorkloadError(f"{where}: {len(cells)} values for {len(columns)} columns: write {','.join(columns)}")
            else:
                values = dict(zip(columns, cells, strict=True))
                size, start = _bytes(values["bytes"], where), _start(values.get("start", ""), where)
                yield MatrixRow(reader.line_num, values["src"], values["dst"], size, start)
    except csv.Error as error:
        raise WorkloadError(f"{path}, line {reader.line_num}: {error}: write plain values between commas") from error
    if columns is None:
        raise WorkloadError(f"{path}, line 1: the file is empty: {FIRST_LINE}")


def _columns(cells: list[str], where: str) -> list[str]:
    cells = [LONG_NAMES.get(name, name) for name in cells]
    for name in cells:
        if name not in COLUMNS:
            raise WorkloadError(f"{where}: {unknown('column', name, COLUMNS)}")
    missing = [name for name in NEEDED if name not in cells]
    if missing:
        raise WorkloadError(f"{where}: column {missing[0]} is missing: {FIRST_LINE}")
    if len(set(cells)) < len(cells):
        raise WorkloadError(f"{where}: a column occurs twice: {FIRST_LINE}")
    return cells


def _bytes(text: str, where: str) -> int | None:
    if not text:
        return None
    # Stricter than int(), which accepts 1_000 and digits of other scripts.
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) > 0:
        return int(text)
    raise WorkloadError(f"{where}: bytes {text!r} is not a size: write a whole number from 1, or nothing to send until the end")


def _start(text: str, where: str) -> float:
    if not text:
        return 0.0
    try:
        start = float(text)
    except ValueError:
        start = math.nan
    if math.isfinite(start) and start >= 0:
        return start
    raise WorkloadError(f"{where}: start {text!r} is not a time: write seconds after the start of the run, 0 or more")
