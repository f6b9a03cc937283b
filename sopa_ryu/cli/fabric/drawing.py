"""A fabric in text: its levels, and where links are absent or have another rate, which switches have them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from topologies.fabric_summary import Summary
from topologies.identity import Level, Switch
from topologies.structure import Clos

MAX_GROUPS = 4
"""Pods that are drawn side by side; of more, the first two and the last."""
MAX_ROWS, MAX_COLUMNS = 40, 16
LABEL = 13


def drawing(summary: Summary) -> Iterator[str]:
    tree = summary.tree
    pods = _some(range(tree.pods), MAX_GROUPS)
    if tree.cores:
        groups = _some(range(tree.aggregations), MAX_GROUPS)
        yield _row("core", [_range(tree, Level.CORE, group) for group in groups])
        yield _links(tree.cores_of_group, "above each aggregation switch", summary, "aggregation")
    names = ("aggregation", "edge") if tree.cores else ("spine", "leaf")
    yield _row(names[0], [_range(tree, Level.AGGREGATION, pod) for pod in pods])
    yield _links(tree.aggregations, f"above each {'edge switch' if tree.cores else 'leaf'}", summary, "edge")
    yield _row(names[1], [_range(tree, Level.EDGE, pod) for pod in pods])
    yield _links(tree.hosts_per_edge, f"below each {'edge switch' if tree.cores else 'leaf'}", summary, "host")
    yield _row("hosts", [f"h{pod}_0_2 .. h{pod}_{tree.edges - 1}_{tree.hosts_per_edge + 1}" if pod >= 0 else "..."
                         for pod in pods])  # fmt: skip
    for level in (Level.EDGE, Level.AGGREGATION):
        yield from _matrix(summary, level)


def rate(mbit: float) -> str:
    """Format a rate for people.

    >>> rate(40000), rate(2500), rate(12.5)
    ('40 Gbit/s', '2.5 Gbit/s', '12.5 Mbit/s')
    """
    for size, unit in ((1e6, "Tbit/s"), (1e3, "Gbit/s")):
        if mbit >= size:
            return f"{mbit / size:.5g} {unit}"
    return f"{mbit:.5g} Mbit/s"


def _some(indices: range, most: int) -> list[int]:
    """Return the indices, or of many the first two, -1 for those in between, and the last."""
    return list(indices) if len(indices) <= most else [*indices[:2], -1, indices[-1]]


def _range(tree: Clos, level: Level, group: int) -> str:
    if group < 0:
        return "..."
    size = tree.group_size(level)
    first, last = (tree.name(Switch(level, group, index)) for index in (0, size - 1))
    return f"[{first}]" if size == 1 else f"[{first} {last}]" if size == 2 else f"[{first} .. {last}]"


def _row(label: str, parts: Sequence[str]) -> str:
    return f"{label:<{LABEL}}{'  '.join(parts)}"


def _links(count: int, where: str, summary: Summary, level: str) -> str:
    each = f" of {rate(summary.tree.level_rate(level))}" if level in summary.tree.mbit else ""
    plural = "s" if count > 1 else ""
    return f"{'':<{LABEL}}  |  {count} link{plural}{each} {where}"


def _matrix(summary: Summary, level: Level) -> Iterator[str]:
    """Yield a table of the uplinks of a level, if any is an exception; switches that are alike, and uplinks, share a place."""
    tree, usual = summary.tree, summary.tree.level_rate(level.name.lower())
    special: dict[Switch, dict[int, float]] = {}
    for link, mbit in summary.exceptions.items():
        if isinstance(link.lower, Switch) and link.lower.level is level:
            special.setdefault(link.lower, {})[link.upper.index] = mbit
    if not special:
        return
    by_index = {index: tuple(its.get(index) for its in special.values()) for index in range(tree.uplink_count(level))}
    columns = [list(alike) for _, alike in groupby(by_index, key=by_index.__getitem__)]
    rows = [["uplink", *(_run(str(alike[0]), str(alike[-1])) for alike in columns[:MAX_COLUMNS])]]
    for its, group in groupby(tree.switches(level), key=lambda switch: special.get(switch, {})):
        some = list(group)
        cells = (_cell(its.get(column[0]), usual) for column in columns[:MAX_COLUMNS])
        rows.append([_run(tree.name(some[0]), tree.name(some[-1])), *cells])
    widths = [max(map(len, column)) for column in zip(*rows[:MAX_ROWS], strict=True)]
    yield ""
    for name, *its_cells in rows[:MAX_ROWS]:
        shown = (f"{cell:>{width}}" for cell, width in zip(its_cells, widths[1:], strict=True))
        yield f"{name:<{widths[0]}}  {'  '.join(shown)}"
    if len(rows) > MAX_ROWS or len(columns) > MAX_COLUMNS:
        yield f"(the first {MAX_ROWS} rows and {MAX_COLUMNS} columns)"
    yield "# as the others of this level, % of them, - absent"


def _run(first: str, last: str) -> str:
    return first if first == last else f"{first}..{last}"


def _cell(mbit: float | None, usual: float) -> str:
    return "#" if mbit is None else f"{100 * mbit / usual:.3g}%" if mbit else "-"
