"""Figures of all flows: distributions of throughput and completion times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from experiments.report import timelines, traces
from experiments.report.collect import Collected
from experiments.report.style import COLOURS, Plot, figure, finish, legend_below, line_style, logarithmic, stack, styled
from experiments.report.summary import RunSummary

FEW_FLOWS = 8
"""Maximum number of flows whose names fit below a figure."""


def plots(collected: Collected, summary: RunSummary) -> Iterator[Plot]:
    """Yield every figure for which data exist, one by one because each takes a second."""
    order = [scheme.scheme for scheme in summary.schemes]
    for draw in DRAWN.values():
        with styled():
            made = draw(collected, order)
        if made:
            yield made


def throughput_cdf(collected: Collected, order: Sequence[str]) -> Plot:
    """Draw the cumulative distribution of throughput (SOPA paper, figure 11)."""
    made = figure(3.6)
    panel = made.subplots()
    for index, scheme in enumerate(order):
        panel.ecdf([flow.mbit for flow in collected.flows(scheme)], label=scheme, **line_style(index))
    panel.set(xlabel="throughput of a flow (Mbit/s)", ylabel="share of flows", ylim=(0, 1.02))
    panel.set_xlim(left=0)
    legend_below(made, *panel.get_legend_handles_labels())
    return finish(
        made,
        "throughput-cdf",
        "Throughput of flows",
        "Share of the flows of all valid runs up to a throughput: further right is better, steeper is fairer.",
    )


def candlesticks(collected: Collected, order: Sequence[str]) -> Plot:
    """Draw throughput by scheme as in figures 4, 6 and 12 of the SOPA paper."""
    made = figure(3.8)
    panel = made.subplots()
    for place, scheme in enumerate(order):
        mbit = [flow.mbit for flow in collected.flows(scheme)]
        low, p5, p99, high = np.percentile(mbit, [0, 5, 99, 100])
        panel.vlines(place, low, high, color="black", linewidth=1.1, zorder=2)
        panel.bar(place, p99 - p5, 0.5, bottom=p5, color="#9CC9E3", edgecolor="black", linewidth=0.8, zorder=3)
        panel.hlines(np.mean(mbit), place - 0.32, place + 0.32, color=COLOURS[1], linewidth=2.4, zorder=4)
    panel.set_xticks(range(len(order)), order)
    if len(order) > 5 or max(map(len, order)) > 9:
        panel.set_xticks(range(len(order)), order, rotation=35, ha="right", rotation_mode="anchor")
    panel.set(ylabel="throughput of a flow (Mbit/s)", xlim=(-0.7, len(order) - 0.3))
    panel.set_ylim(bottom=0)
    panel.grid(visible=False, axis="x")
    handles = [
        Line2D([], [], color="black", linewidth=1.1),
        Patch(facecolor="#9CC9E3", edgecolor="black"),
        Line2D([], [], color=COLOURS[1], linewidth=2.4),
    ]
    legend_below(made, handles, ["minimum to maximum", "5th to 99th percentile", "mean"])
    return finish(
        made, "candlesticks", "Throughput by scheme", "All flows of all valid runs, drawn as in the SOPA paper (figures 4, 6, 12)."
    )


def flow_bars(collected: Collected, order: Sequence[str]) -> Plot:
    """Draw the throughput of each flow of one run (SOPA paper, figure 9)."""
    seeds = [{seed for name, seed in collected.runs if name == scheme} for scheme in order]
    common = set.intersection(*seeds)
    runs = [(scheme, min(common or of_scheme)) for scheme, of_scheme in zip(order, seeds, strict=True)]
    columns = 2 if len(runs) > 3 else 1
    titles = [f"{scheme}, seed {seed}" for scheme, seed in runs]
    made, panels = stack(titles, "flow", "throughput (Mbit/s)", 1.25, columns)
    for panel, run in zip(panels, runs, strict=True):
        flows = sorted(collected.runs[run], key=lambda flow: flow.flow)
        panel.bar([flow.flow for flow in flows], [flow.mbit for flow in flows], 0.8, color=COLOURS[0])
        mean = float(np.mean([flow.mbit for flow in flows]))
        panel.axhline(mean, color=COLOURS[1], linewidth=1.2, linestyle="--")
        if len(flows) <= FEW_FLOWS and common and columns == 1:
            names = [f"{flow.src} → {flow.dst}" for flow in flows]
            panel.set_xticks([flow.flow for flow in flows], names, rotation=20, ha="right", rotation_mode="anchor")
        else:
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(visible=False, axis="x")
    legend_below(made, [Patch(color=COLOURS[0]), Line2D([], [], color=COLOURS[1], linestyle="--")], ["flow", "mean of the flows"])
    return finish(made, "flows", "Each flow of one run", "A flow has the same number under all schemes with the same seed.")


def completion_cdf(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the cumulative distribution of completion times by kind of transfer."""
    sized = {scheme: [flow for flow in collected.flows(scheme) if flow.size is not None] for scheme in order}
    kinds = sorted({flow.kind for flows in sized.values() for flow in flows if flow.completed})
    if not kinds:
        return None
    made = figure(3.0 * len(kinds) + 0.6)
    panels = made.subplots(len(kinds), 1, squeeze=False)[:, 0]
    handles: dict[str, Line2D] = {}
    for panel, kind in zip(panels, kinds, strict=True):
        for index, scheme in enumerate(order):
            flows = [flow for flow in sized[scheme] if flow.kind == kind]
            times = sorted(1000 * flow.seconds for flow in flows if flow.completed)
            if times:
                # The total includes transfers that did not end in time: the line then ends below 1.
                shares = np.arange(1, len(times) + 1) / len(flows)
                (handles[scheme],) = panel.step([times[0], *times], [0, *shares], where="post", **line_style(index))
        _completion_axes(panel, kind)
    panels[-1].set_xlabel("completion time (ms)")
    legend_below(made, handles.values(), list(handles))
    return finish(
        made,
        "completion-cdf",
        "Completion times of transfers",
        "Further left is better. A line that ends below 1 has transfers that did not end in time.",
    )


def _completion_axes(panel: Axes, kind: str) -> None:
    low, high = panel.dataLim.intervalx
    # Linear within one order of magnitude, where ticks are easier to read.
    if low > 0 and high / low > 10:
        panel.set_xscale("log")
        logarithmic(panel.xaxis)
        panel.grid(visible=True, which="minor", axis="x", linewidth=0.3)
    panel.set(ylabel="share of transfers", ylim=(0, 1.02), title=kind)


_Draw = Callable[[Collected, Sequence[str]], Plot | None]
DRAWN: dict[str, _Draw] = {
    "throughput-cdf": throughput_cdf,
    "candlesticks": candlesticks,
    "flows": flow_bars,
    "completion-cdf": completion_cdf,
    "throughput-series": timelines.throughput_series,
    "bad-link-series": timelines.bad_link_series,
    "flow-series": timelines.flow_series,
    "cwnd": timelines.windows,
    "queues": timelines.queues,
    "queue-cdf": timelines.queue_cdf,
    "round-trips": timelines.round_trips,
    "arrivals": traces.arrival_sequence,
    "path-windows": traces.path_shares,
    "delays": traces.delays,
}
"""Every figure by the name of its files."""
