"""The style of figures, and reproducible image files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH = 7.0
"""Width of a figure in inches."""
PIXELS_PER_INCH = 150

# Colours of Okabe and Ito, distinguishable with any colour vision, without yellow, which is too light for paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
# Four and seven are coprime, so 28 lines differ, most of them also in greyscale.
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#8C8C8C"
RASTER_POINTS = 2000
"""Number of marks above which they are an image within the SVG: browsers draw thousands of shapes slowly."""

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "figure.constrained_layout.use": True,
    # makes identifiers in an SVG deterministic
    "svg.hashsalt": "sopa",
}


@dataclass(frozen=True)
class Plot:
    """A figure as PNG and SVG, by the name of its files without suffix, with the numbers of it that the tables lack."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: bytes
    numbers: Mapping[str, Any]


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style to figures made and saved in the context, independently of matplotlibrc."""
    with rc_context():
        rcdefaults()
        rcParams.update(_SETTINGS)
        yield


def figure(height: float) -> Figure:
    """Return an empty figure of a height in inches."""
    made = Figure(figsize=(WIDTH, height), dpi=PIXELS_PER_INCH)
    FigureCanvasAgg(made)
    return made


def stack(titles: Sequence[str], across: str, up: str, height: float = 1.6, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel per title, of a height in inches. All panels have the same axes, labelled across and up."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    made = figure(max(2.4, rows * height + 0.7))
    grid = made.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for panel, title in zip(panels, titles, strict=False):
        panel.set_title(title)
    for left_over in panels[len(titles) :]:
        left_over.remove()
    # The last panel of each column; columns may differ by one panel.
    for panel in panels[len(titles) - columns : len(titles)]:
        panel.tick_params(labelbottom=True)
        panel.set_xlabel(across)
    made.supylabel(up, fontsize=9)
    return made, panels[: len(titles)]


def from_zero(panels: Sequence[Axes]) -> None:
    """Start both axes at zero. Call it after drawing: a fixed limit does not adapt to later data."""
    panels[0].set_xlim(left=0)
    panels[0].set_ylim(bottom=0)


def logarithmic(axis: Axis) -> None:
    """Set a logarithmic scale with plain numbers at 1, 2 and 5."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dashes of a line by its index."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": LINES[index % len(LINES)]}


def legend_below(made: Figure, handles: Iterable[Artist], labels: Sequence[str], columns: int = 4) -> None:
    """Add a legend below the axes."""
    made.legend(list(handles), list(labels), loc="outside lower center", ncols=min(columns, max(1, len(labels))))


def legend_right(panel: Axes) -> None:
    """Add a legend to the right of one panel of a stack."""
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.05), borderaxespad=0, handlelength=1.8)


def finish(made: Figure, name: str, title: str, caption: str, numbers: Mapping[str, Any] | None = None) -> Plot:
    """Return the figure as image files without dates and versions."""
    png, svg = io.BytesIO(), io.BytesIO()
    made.savefig(png, format="png", metadata={"Software": None})
    made.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(name, title, caption, png.getvalue(), svg.getvalue(), numbers or {})
