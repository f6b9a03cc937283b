"""Figures of the papers: their runs, and the measure for each number of the papers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from topologies import Clos, FatTree


@dataclass(frozen=True)
class Part:
    """Runs of one workload in one fabric, as of one ``sopa experiment run --backend ns3``.

    Attributes:
        name: Name of its directory.
        k: Size of the fat-tree; 0 of another fabric.
        seconds: Scale of the workload; see `Scale.seconds`.
        options: Options of the simulator, ``NAME=VALUE``.
        fabric: The fabric if it is not the fat-tree of size `k`.
        rate_mbit: Rate of hosts' links.
        queue_packets: Capacity of the queue of a link in packets.
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

    @property
    def tree(self) -> Clos:
        """The fabric."""
        return self.fabric or FatTree(self.k)


@dataclass(frozen=True)
class Row:
    """A row of a table: one number of a paper, or a measure without one.

    Attributes:
        part, scheme: The runs.
        measure: Name in `measures.measure`; the table has the mean over seeds.
        paper: Number in the paper, if any.
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
    """A plot of one measure over all parts, as the MCS paper has completion times: the height of a bar is the longest, its
    hatched part the mean.

    Attributes:
        across: Title of the axis of the groups.
        groups: From the label of each group of bars to the name of its part.
        schemes: A bar each in every group.
        measure: Height of the hatched part.
        most: Height of the whole bar; None for `measure`.
        title: Of the axis of both.
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
    """Further options of the simulator for all parts of a figure.

    Attributes:
        name: Suffix of the directories of its parts; empty for the first one.
        title: Title of its column.
        options: ``NAME=VALUE``.
    """

    name: str
    title: str
    options: tuple[str, ...] = ()

    def of(self, part: Part) -> Part:
        """Return a part with these options added."""
        name = f"{part.name}-{self.name}" if self.name else part.name
        return replace(part, name=name, options=(*self.options, *part.options))


@dataclass(frozen=True)
class Figure:
    """A figure, an example or a section of a paper.

    Attributes:
        name: Name on the command line.
        source: Its place in the paper.
        variants: Each has all parts, and a column in the table.
        notes: What the paper leaves open, and the choices made.
        bars: A plot of all parts together, besides the report of each.
    """

    name: str
    source: str
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()
    bars: Bars | None = None

    def runs(self) -> Iterator[Part]:
        """Yield every part in each variant."""
        for variant in self.variants:
            yield from map(variant.of, self.parts)


@dataclass(frozen=True)
class TableCell:
    """The measured value of a row in one variant.

    Attributes:
        here: Mean over seeds.
        spread: Half width of the 95% interval; None for one seed.
    """

    here: float
    spread: float | None
    seeds: int


@dataclass(frozen=True)
class RunData:
    """The data that are kept of a run: enough for every table, without its traces.

    Attributes:
        measures: Measures by name; see `measures.measure`.
        mbit: Throughput of each flow in the order of the plan, with one decimal.
        record: Command, options, digest of the program, and packet-hops.
    """

    scheme: str
    seed: int
    measures: Mapping[str, float]
    mbit: tuple[float, ...]
    record: Mapping[str, object] = field(default_factory=dict)
