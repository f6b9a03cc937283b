"""Figures of the packets of one traced flow: order of arrival, paths, delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.report.collect import Collected
from experiments.report.statistics import WINDOW, UpPath, largest_deviation, path_windows
from experiments.report.style import (
    COLOURS,
    GREY,
    MARKERS,
    RASTER_POINTS,
    Plot,
    finish,
    from_zero,
    legend_below,
    logarithmic,
    stack,
)

FIRST_PACKETS = 100
WINDOWS_SHOWN = 4
DELAYS_SHOWN = 5000
"""More packets would merge into a block of colour."""
MAX_LINEAR = 20
"""Ratio of the longest to the shortest delay above which the scale is logarithmic."""
NO_PATH = (255, 255)
"""Path of an unlabelled packet, which is selected by switches."""


@dataclass(frozen=True)
class RunTrace:
    """The packets of one traced flow, in order of arrival: seconds, number by sequence, two uplinks, delay in ms."""

    scheme: str
    title: str
    packets: np.ndarray

    def paths(self) -> set[UpPath]:
        """Return the paths of its packets."""
        found = {(int(up1), int(up2)) for up1, up2 in np.unique(self.packets[:, 2:4], axis=0)}
        return found - {NO_PATH}


def traces(collected: Collected, order: Sequence[str]) -> list[RunTrace]:
    """Return a trace per scheme: of the first flow that all schemes have traced, or of its own first."""
    runs = {scheme: collected.shown[scheme] for scheme in order}
    traced = {scheme: [flow for flow, rows in run.arrivals.items() if rows] for scheme, run in runs.items()}
    traced = {scheme: flows for scheme, flows in traced.items() if flows}
    common = set.intersection(*map(set, traced.values())) if traced else set()
    found = []
    for scheme, flows in traced.items():
        flow = min(common, key=int) if common else flows[0]
        record = next((one for one in collected.runs[scheme, runs[scheme].seed] if one.flow == int(flow)), None)
        ends = f", {record.src} → {record.dst}" if record else ""
        packets = np.array(runs[scheme].arrivals[flow], dtype=float)
        found.append(RunTrace(scheme, f"{scheme}, seed {runs[scheme].seed}, flow {flow}{ends}", packets))
    return found


def arrival_sequence(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the first packets in order of arrival (SOPA paper, figure 3)."""
    found = traces(collected, order)
    if not found:
        return None
    made, panels = stack([trace.title for trace in found], "order of arrival", "number by sequence", 2.2, columns=2)
    late_of = {}
    for panel, trace in zip(panels, found, strict=True):
        numbers = trace.packets[:FIRST_PACKETS, 1] - trace.packets[:, 1].min()
        order_of = np.arange(1, len(numbers) + 1)
        late = numbers < np.maximum.accumulate(numbers)
        late_of[trace.scheme] = int(late.sum())
        panel.plot(order_of[~late], numbers[~late], "o", markersize=2.6, color=COLOURS[0])
        panel.plot(order_of[late], numbers[late], "^", markersize=3.6, color=COLOURS[1])
    handles = [
        Line2D([], [], color=COLOURS[0], marker="o", markersize=4, linestyle=""),
        Line2D([], [], color=COLOURS[1], marker="^", markersize=5, linestyle=""),
    ]
    legend_below(made, handles, ["in order", "after a later packet"])
    return finish(
        made,
        "arrivals",
        f"Arrival sequence of the first {FIRST_PACKETS} packets",
        "A packet below one to its left was overtaken or retransmitted.",
        {"after_a_later_one": late_of},
    )


def path_shares(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the packets per path in windows (SOPA paper, figure 5)."""
    found = [(trace, path_windows(trace.packets.tolist())) for trace in traces(collected, order) if trace.paths()]
    found = [(trace, counts) for trace, counts in found if counts]
    if not found:
        return None
    # includes paths that a scheme never uses
    paths = sorted(set.union(*(trace.paths() for trace, _ in found)))
    deviations = {trace.scheme: largest_deviation(counts[:WINDOWS_SHOWN], len(paths)) for trace, counts in found}
    overall = {trace.scheme: largest_deviation(counts, len(paths)) for trace, counts in found}
    titles = [f"{trace.title}: at most {deviations[trace.scheme]:.1f}% from the average" for trace, _ in found]
    made, panels = stack(titles, "packets by sequence", "packets on the path", 1.5)
    width = 0.8 / len(paths)
    for panel, (_, counts) in zip(panels, found, strict=True):
        for index, path in enumerate(paths):
            heights = [window[path] for window in counts[:WINDOWS_SHOWN]]
            places = np.arange(len(heights)) - 0.4 + width * (index + 0.5)
            panel.bar(places, heights, width, color=_path_colour(index, len(paths)), edgecolor="white", linewidth=0.4)
        panel.axhline(WINDOW / len(paths), color=GREY, linewidth=1, linestyle="--")
        panel.grid(visible=False, axis="x")
    most = max(len(counts[:WINDOWS_SHOWN]) for _, counts in found)
    panels[-1].set_xticks(range(most), [f"{WINDOW * index + 1} to {WINDOW * (index + 1)}" for index in range(most)])
    average = Line2D([], [], color=GREY, linestyle="--")
    if len(paths) <= len(COLOURS):
        handles = [Patch(color=_path_colour(index, len(paths))) for index in range(len(paths))]
        legend_below(made, [*handles, average], [*map(_path_name, paths), "average"], 5)
    else:
        legend_below(made, [Patch(color=COLOURS[0]), average], [f"{len(paths)} paths, in order", "average"])
    return finish(
        made,
        "path-windows",
        f"Packets by path in windows of {WINDOW}",
        f"Of the first {WINDOWS_SHOWN * WINDOW} packets of one flow. A path is named by its uplinks from edge and aggregation.",
        {"largest_deviation_percent": deviations, "largest_deviation_percent_of_all_windows": overall},
    )


def delays(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the one-way delay of each packet by path (SOPA paper, figures 8, 10b and 10f)."""
    found = [trace for trace in traces(collected, order) if np.isfinite(trace.packets[:DELAYS_SHOWN, 4]).any()]
    if not found:
        return None
    paths = sorted(set.union(*(trace.paths() for trace in found)))
    # With many paths only the first hop is distinguished.
    many = len(paths) > len(COLOURS)
    groups: list[tuple[str, set[UpPath]]] = [(_path_name(path), {path}) for path in paths]
    if many:
        hops = sorted({up1 for up1, _ in paths})
        groups = [(f"uplink {hop} of the edge", {path for path in paths if path[0] == hop}) for hop in hops]
    groups.append(("chosen by switches", {NO_PATH}))
    made, panels = stack([trace.title for trace in found], "order of arrival", "delay (ms)", 1.7)
    handles: dict[str, Line2D] = {}
    for panel, trace in zip(panels, found, strict=True):
        packets = trace.packets[:DELAYS_SHOWN]
        arrival, carried, delay = np.arange(1, len(packets) + 1), packets[:, 2:4], packets[:, 4]
        for index, (name, members) in enumerate(groups):
            rows = np.any([np.all(carried == path, axis=1) for path in members], axis=0)
            if rows.any():
                style: dict[str, Any] = {"color": GREY if members == {NO_PATH} else COLOURS[index % len(COLOURS)]}
                marker = MARKERS[index % len(MARKERS)]
                raster = len(packets) > RASTER_POINTS
                size = 1.2 if raster else 2.2
                panel.plot(arrival[rows], delay[rows], marker, markersize=size, mew=0, alpha=0.7, rasterized=raster, **style)
                handles[name] = Line2D([], [], marker=marker, markersize=5, linestyle="", **style)
    shown = np.concatenate([trace.packets[:DELAYS_SHOWN, 4] for trace in found])
    from_zero(panels)
    # On a linear scale a long queue of one scheme would hide the differences of the others.
    if 0 < MAX_LINEAR * np.nanmin(shown) < np.nanmax(shown):
        panels[0].set_yscale("log")
        panels[0].set_ylim(np.nanmin(shown) / 1.3, np.nanmax(shown) * 1.3)
        for panel in panels:
            logarithmic(panel.yaxis)
    names = [name for name, _ in groups if name in handles]
    legend_below(made, [handles[name] for name in names], names)
    known = {trace.scheme: trace.packets[:, 4][np.isfinite(trace.packets[:, 4])] for trace in found}
    spread = {scheme: {"minimum": float(some.min()), "maximum": float(some.max())} for scheme, some in known.items()}
    return finish(
        made,
        "delays",
        "Delay of each packet",
        f"Of the first {DELAYS_SHOWN} packets of one flow, from the sender to the receiver, by the path that each took.",
        {"delay_ms": spread},
    )


def _path_name(path: UpPath) -> str:
    return "path " + ".".join(str(hop) for hop in path if hop != NO_PATH[0])


def _path_colour(index: int, paths: int) -> str:
    return COLOURS[index] if paths <= len(COLOURS) else COLOURS[0]
