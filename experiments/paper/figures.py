"""Figures of the four papers, and tables of the lab, from ``figures.yaml``: runs, and a measure for each number. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from topologies import Clos, FatTree


@dataclass(frozen=True)
class FigurePart:
    """Runs of one workload in one fabric, as of one ``sopa experiment run``; the name is that of its directory.

    Attributes:
        seconds: Scale of the workload; see `Scale.seconds`.
        options: Options of the simulator, ``NAME=VALUE``.
        fabric: The fabric if it is not the fat-tree of size `k`, which is 0 then.
        rate_mbit: Rate of hosts' links.
        failed_links: Percentage of the links between switches that have failed before the start.
        queue_packets: Capacity of the queue of a link in packets.
        backend: ``ns3`` or ``lab``.
    """

    name: str
    workload: str
    k: int
    schemes: tuple[str, ...]
    seconds: float
    seeds: int = 1
    options: tuple[str, ...] = ()
    fabric: Clos | None = None
    rate_mbit: float = 1000.0
    queue_packets: int = 100
    backend: str = "ns3"
    failed_links: float | None = None

    @property
    def tree(self) -> Clos:
        """The fabric."""
        return self.fabric or FatTree(self.k)


@dataclass(frozen=True)
class FigureRow:
    """A row of a table: one number of a paper, or a measure without one, of the runs of a part with a scheme.

    Attributes:
        measure: Name in `measures.measure`; the table has the mean over seeds.
        over: Scheme by whose measure that of `scheme` is divided, seed by seed.
    """

    title: str
    part: str
    scheme: str
    measure: str
    paper: float | None = None
    over: str | None = None


@dataclass(frozen=True)
class Bars:
    """A plot of one measure over all parts, as the MCS paper has completion times: hatched the mean, the whole height the longest.

    Attributes:
        across, title: Titles of the axis of the groups, and of that of both measures.
        groups: From the label of each group of bars, one for each scheme, to the name of its part.
        most: Height of the whole bar; None for `measure`.
    """

    across: str
    groups: Mapping[str, str]
    schemes: tuple[str, ...]
    measure: str = "completion_mean"
    most: str | None = "completion_most"
    title: str = "completion time (ms)"
    caption: str = "Hatched: mean; whole height: the longest."


@dataclass(frozen=True)
class Variant:
    """Further options of the simulator for all parts of a figure, ``NAME=VALUE``, and the title of their column.

    The name is the suffix of the directories of its parts; empty for the first one.
    """

    name: str
    title: str
    options: tuple[str, ...] = ()

    def of(self, part: FigurePart) -> FigurePart:
        """Return a part with these options added."""
        name = f"{part.name}-{self.name}" if self.name else part.name
        return replace(part, name=name, options=(*self.options, *part.options))


@dataclass(frozen=True)
class Figure:
    """A figure, an example or a section of a paper, by its name on the command line and its place in the paper.

    Attributes:
        variants: Each has all parts, and a column in the table.
        notes: What the paper leaves open, and the choices made.
        bars: A plot of all parts together, besides the report of each.
        columns: Titles of measures, if the table has a line for each scheme: `column_row` is the title of the row in each cell.
    """

    name: str
    source: str
    parts: tuple[FigurePart, ...]
    rows: tuple[FigureRow, ...]
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()
    bars: Bars | None = None
    columns: tuple[str, ...] = ()

    def runs(self) -> Iterator[FigurePart]:
        """Yield every part in each variant."""
        for variant in self.variants:
            yield from map(variant.of, self.parts)


@dataclass(frozen=True)
class TableCell:
    """The measured value of a row in one variant: mean over seeds, and half width of the 95% interval; None for one seed."""

    here: float
    spread: float | None
    seeds: int


@dataclass(frozen=True)
class RunData:
    """The data that are kept of a run: enough for every table, without its traces.

    Attributes:
        measures: By name; see `measures.measure`.
        mbit: Throughput of each flow in the order of the plan, with one decimal, or three on links below 100 Mbit/s. Of more than
            20 flows it has every fifth percentile, 0 to 100, and nothing of the steps of a collective operation.
        record: Command and options; the simulator's digest and packet-hops, or the machine and the idle share of its processors.
    """

    scheme: str
    seed: int
    measures: Mapping[str, float]
    mbit: tuple[float, ...]
    record: Mapping[str, object] = field(default_factory=dict)


FILE = Path(__file__).with_name("figures.yaml")

Values = dict[str, Any]
"""What the names in braces stand for."""


def column_row(scheme: str, column: str) -> str:
    """Return the title of the row that is a scheme's cell in a column."""
    return f"{scheme}, {column}"


def _read(text: str) -> Mapping[str, Figure]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {one["name"]: _figure(one) for one in yaml.load(text, loader)["figures"]}


def _figure(one: Values) -> Figure:
    parts = tuple(_part(spec, values) for spec in one["parts"] for values in _each(spec, {}))
    variants = tuple(Variant(**{**variant, "options": _flat(variant.get("options", ()))}) for variant in one["variants"])
    rows = [row for spec in one.get("rows", ()) for row in _rows(spec, parts[0].name, {})]
    columns, by_name = one.get("columns", ()), {part.name: part for part in parts}
    for scheme, (title, measure, *part) in product(parts[0].schemes, columns):
        its = by_name[part[0]] if part else parts[0]
        if scheme in its.schemes:
            rows.append(FigureRow(column_row(scheme, title), its.name, scheme, measure))
    bars = _bars(**one["bars"]) if "bars" in one else None
    titles = tuple(column[0] for column in columns)
    return Figure(one["name"], one["source"], parts, tuple(rows), variants, tuple(one.get("notes", ())), bars, titles)


def _part(spec: Values, values: Values) -> FigurePart:
    fields = _filled({name: value for name, value in spec.items() if name != "for"}, values)
    fabric = Clos(**fields["fabric"]) if "fabric" in fields else None
    options = _flat([_filled(one, values) for one in _flat(fields.get("options", ()))])
    return FigurePart(**{**fields, "schemes": _named(fields["schemes"]), "options": options, "fabric": fabric})


def _rows(spec: Any, part: str, values: Values) -> Iterator[FigureRow]:
    if isinstance(spec, list):
        title, scheme, measure, *numbers = (_filled(cell, values) for cell in spec)
        yield FigureRow(title, part, scheme, measure, *numbers)
        return
    for further in _each(spec, values):
        for one in spec["rows"]:
            yield from _rows(one, _filled(spec["part"], further) if "part" in spec else part, further)


def _bars(groups: Values, schemes: list[str], **fields: Any) -> Bars:
    by_label = {str(_filled(groups["label"], values)): _filled(groups["part"], values) for values in _each(groups, {})}
    return Bars(groups=by_label, schemes=tuple(schemes), **fields)


def _each(spec: Values, values: Values) -> Iterator[Values]:
    """Yield the values with those of each combination in ``for``."""
    names = [name.split(", ") for name in spec.get("for", {})]
    choices = (_named(choice) for choice in spec.get("for", {}).values())
    for chosen in product(*choices):
        further = dict(values)
        for several, value in zip(names, chosen, strict=True):
            further |= zip(several, value, strict=True) if len(several) > 1 else {several[0]: value}
        yield further


def _named(values: list[Any]) -> tuple[Any, ...]:
    """Return a list's values, with the names that ``for`` makes in the place of it."""
    return tuple(
        one
        for value in values
        for one in ([_filled(value["name"], each) for each in _each(value, {})] if isinstance(value, dict) else [value])
    )


def _filled(value: Any, values: Values) -> Any:
    """Return a value with the names in braces replaced; what is such a name as a whole keeps its type."""
    if isinstance(value, dict):
        return {name: _filled(one, values) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    if value[:1] == "{" and value[1:-1] in values:
        return values[value[1:-1]]
    return value.format_map(values)


def _flat(options: Any) -> tuple[str, ...]:
    return tuple(one for each in options for one in (_flat(each) if isinstance(each, list) else (each,)))


FIGURES: Mapping[str, Figure] = _read(FILE.read_text())
"""All figures by name; those with the longest runs are last."""
