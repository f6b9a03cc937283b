"""Plots of a measure over all parts of a figure, as the MCS paper draws completion times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.patches import Patch

from experiments.paper.figure import Figure, RunData
from experiments.report.style import COLOURS, Plot, figure, finish, legend_below, styled

WIDTH = 0.8
"""Of a group of bars, as a share of the distance of groups."""


def measure_bars(its: Figure, kept: Mapping[str, Sequence[RunData]]) -> Plot:
    """Draw the measures of a figure's bars: means over seeds, of the first variant.

    Args:
        its: A figure with bars.
        kept: From the name of each part to the data of its runs. Missing ones have no bar.
    """
    bars = its.bars
    assert bars is not None
    with styled():
        made = figure(3.4)
        panel = made.subplots()
        each = WIDTH / len(bars.schemes)
        for place, part in enumerate(bars.groups.values()):
            for number, scheme in enumerate(bars.schemes):
                runs = [run.measures for run in kept.get(part, ()) if run.scheme == scheme]
                if not runs:
                    continue
                mean, most = (
                    math.fsum(run[name] for run in runs) / len(runs)
                    for name in (bars.measure, bars.most or bars.measure)
                )
                at = place - WIDTH / 2 + (number + 0.5) * each
                colour = COLOURS[number % len(COLOURS)]
                panel.bar(at, most, 0.9 * each, color="white", edgecolor=colour, linewidth=1)
                panel.bar(at, mean, 0.9 * each, color="white", edgecolor=colour, linewidth=1, hatch="/////")
        panel.set_xticks(range(len(bars.groups)), list(bars.groups))
        panel.set(xlabel=bars.across, ylabel=bars.title)
        panel.grid(visible=False, axis="x")
        handles = [Patch(facecolor="white", edgecolor=COLOURS[at % len(COLOURS)]) for at in range(len(bars.schemes))]
        legend_below(made, handles, list(bars.schemes))
        return finish(made, its.name, its.source, f"{bars.caption} Means over seeds.".strip())
