"""What the papers' figures and numbers are made of here: runs, and which of their measures belongs beside which number. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Part:
    """Runs of one workload, in one fabric: what one ``sopa experiment run --backend ns3`` does.

    Attributes
    ----------
    name : str
        Of its directory.
    workload : str
    k : int
    schemes : tuple of str
    seconds : float
        The time that decides the workload's sizes.
    seeds : int
    options : tuple of str
        The simulator's, ``NAME=VALUE``.
    """

    name: str
    workload: str
    k: int
    schemes: tuple[str, ...]
    seconds: float
    seeds: int = 1
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One number.

    Attributes
    ----------
    title : str
    part, scheme : str
        Which runs.
    measure : str
        Which of `measures.measure`'s; the mean over seeds is told.
    paper : float or None
        The paper's number; None where it has none.
    """

    title: str
    part: str
    scheme: str
    measure: str
    paper: float | None = None


@dataclass(frozen=True)
class Variant:
    """What else is set in the simulator, for all parts of a figure.

    Attributes
    ----------
    name : str
        At the end of its parts' directories; empty for the first one.
    title : str
        Of its column.
    options : tuple of str
        ``NAME=VALUE``.
    """

    name: str
    title: str
    options: tuple[str, ...] = ()

    def of(self, part: Part) -> Part:
        """A part with these options, too."""
        name = f"{part.name}-{self.name}" if self.name else part.name
        return replace(part, name=name, options=(*self.options, *part.options))


@dataclass(frozen=True)
class Figure:
    """A figure, an example or a section of a paper.

    Attributes
    ----------
    name : str
        On the command line.
    source : str
        Where the paper has it.
    parts : tuple of Part
    rows : tuple of Row
    variants : tuple of Variant
        Each has every part, and a column in the table.
    notes : tuple of str
        What the paper leaves unsaid, and what was chosen.
    """

    name: str
    source: str
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()

    def runs(self) -> Iterator[Part]:
        """Every part in each variant."""
        for variant in self.variants:
            yield from map(variant.of, self.parts)


@dataclass(frozen=True)
class TableCell:
    """What was measured for a row.

    Attributes
    ----------
    here : float
        The mean over seeds.
    spread : float or None
        Half of the 95% interval; None for one seed.
    seeds : int
    """

    here: float
    spread: float | None
    seeds: int


@dataclass(frozen=True)
class RunData:
    """What is kept of a run when all of it would be too much: enough for every table.

    Attributes
    ----------
    scheme : str
    seed : int
    measures : mapping
        By name; see `measures.measure`.
    mbit : tuple of float
        Each flow's throughput, in the order of the plan; with one decimal.
    record : mapping
        Command, options, program, hops and seconds of the processor.
    """

    scheme: str
    seed: int
    measures: Mapping[str, float]
    mbit: tuple[float, ...]
    record: Mapping[str, object] = field(default_factory=dict)
