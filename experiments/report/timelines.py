"""Figures of one run per scheme: throughput, windows and queues over time, and distributions of queues and round trips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.records import RunRecord
from experiments.report.collect import Collected
from experiments.report.style import (
    GREY,
    Plot,
    figure,
    finish,
    from_zero,
    legend_below,
    legend_right,
    line_style,
    logarithmic,
    stack,
)
from experiments.workloads import BadLink

BAD_LINK_STEPS = 60
QUEUE_POINTS = 120
"""Points per line. With one sample per pixel, several queues would merge into a block of colour."""
SERIES_STEP = 0.5
"""Seconds per step. Shorter ones show wake-ups of the receiver instead of arrivals."""
LINES_EACH = 4
"""Maximum number of flows or ports that are distinguishable in a panel."""
MAX_EVENTS = 12
SIMULATED = "ns3"
"""Name of the backend of the simulator, whose series have short intervals."""
AT_ONCE, FEW = 0.05, 2
"""Events within so many seconds are merged if they are more than FEW: a scheduler places a dozen flows together."""
SAME_EVENT = 1.0
"""Maximum distance in seconds of events of different runs with the same text that share a mark."""


def throughput_series(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the mean throughput of flows in steps of half a second, of the simulator in its own, and the changes of the fabric."""
    runs = _shown(collected, order, lambda run: run.series)
    if not runs:
        return None
    simulated = collected.settings.backend == SIMULATED
    events = merged_events([run for _, run in runs])
    made = figure(3.6 + 0.17 * len(events[:MAX_EVENTS]))
    panel = made.subplots()
    for scheme, run in runs:
        # The mean is over all flows of the run at any time; flows that have ended count as 0.
        fine = [float(np.mean(values)) for values in zip_longest(*run.series.values(), fillvalue=0.0)]
        each = 1 if simulated else max(1, round(SERIES_STEP / (run.series_ms / 1000)))
        _steps(panel, fine, each, run, f"{scheme}, seed {run.seed}", line_style(order.index(scheme)))
    _finished(made, panel, events)
    return finish(
        made,
        "throughput-series",
        "Throughput over time",
        f"Mean throughput of all flows of one run in steps of {_step(runs[0][1], simulated)}. "
        "Dotted lines are changes of the fabric.",
        {"events": events},
    )


def bad_link_series(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the mean throughput of the flows that a bad link may carry, of one run of each scheme."""
    runs = _shown(collected, order, _crossing)
    if not runs:
        return None
    ends = max(max(map(len, _crossing(run).values())) * run.series_ms / 1000 for _, run in runs)
    became = merged_events([replace(run, events=[[one["at"], _what(one)] for one in run.bad]) for _, run in runs])
    events = [(at, text) for at, text in became if at <= ends]
    made = figure(3.6 + 0.17 * len(events[:MAX_EVENTS]))
    panel = made.subplots()
    for scheme, run in runs:
        fine = [float(np.mean(values)) for values in zip_longest(*_crossing(run).values(), fillvalue=0.0)]
        each = max(1, round(len(fine) / BAD_LINK_STEPS))
        _steps(panel, fine, each, run, f"{scheme}, seed {run.seed}", line_style(order.index(scheme)))
    _finished(made, panel, events)
    return finish(
        made,
        "bad-link-series",
        "Throughput of the flows that may cross the bad link",
        "Mean throughput of the flows of one run with a candidate path over the direction that becomes bad at the dotted line.",
    )


def _steps(panel: Axes, fine: Sequence[float], each: int, run: RunRecord, label: str, style: Mapping[str, Any]) -> None:
    """Draw a series in steps of ``each`` of its intervals; an incomplete last step is omitted."""
    mean = [float(np.mean(fine[start : start + each])) for start in range(0, len(fine) - each + 1, each)] or list(fine)
    places = np.arange(len(mean) + 1) * each * run.series_ms / 1000
    panel.step(places, [*mean, *mean[-1:]], where="post", label=label, **style)


def _finished(made: Figure, panel: Axes, events: Sequence[tuple[float, str]]) -> None:
    panel.set(xlabel="time (s)", ylabel="mean throughput of a flow (Mbit/s)")
    from_zero([panel])
    _mark(panel, events)
    legend_below(made, *panel.get_legend_handles_labels())


def _crossing(run: RunRecord) -> dict[str, Sequence[float]]:
    """Return the throughput of the flows that bad links may carry."""
    its = {str(number) for one in run.bad for number in one["transfers"]}
    return {flow: rates for flow, rates in run.series.items() if flow in its}


def _what(bad: Mapping[str, Any]) -> str:
    return str(BadLink(bad["link"], bad["towards"], bad["at"], bad["loss"], bad["corruption"], bad["rate"]))


def _step(run: RunRecord, simulated: bool) -> str:
    return f"{run.series_ms:g} ms" if simulated else "half a second"


def flow_series(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the throughput of a few flows over time, each by itself (MCS paper, figure 8)."""
    runs = _shown(collected, order, lambda run: run.series)
    if not runs or collected.settings.backend != SIMULATED:
        return None
    made, panels = stack(_titles(runs), "time (s)", "throughput (Mbit/s)")
    for panel, (_, run) in zip(panels, runs, strict=True):
        names = _flow_names(collected, run)
        drawn = [(flow, values) for flow, values in run.series.items() if values]
        for index, (flow, values) in enumerate(drawn[:LINES_EACH]):
            places = np.arange(len(values) + 1) * run.series_ms / 1000
            panel.step(places, [*values, values[-1]], where="post", label=names.get(flow, f"flow {flow}"), **_thin(index))
        legend_right(panel)
    from_zero(panels)
    return finish(
        made,
        "flow-series",
        "Throughput of flows over time",
        f"Payload that arrives in each {_step(runs[0][1], True)}, of the first {LINES_EACH} flows of one run.",
    )


def _mark(panel: Axes, events: Sequence[tuple[float, str]]) -> None:
    """Draw a line and a number for each event, and list the events below the axes."""
    events = together(events)
    low, high = panel.get_xlim()
    heights: list[float] = []
    lines = []
    for number, (second, text) in enumerate(events[:MAX_EVENTS], 1):
        panel.axvline(second, color=GREY, linewidth=1, linestyle=":", zorder=1)
        # Numbers of close events are stacked.
        level = next((at for at, last in enumerate(heights) if second - last > (high - low) / 40), len(heights))
        heights[level : level + 1] = [second]
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        panel.annotate(str(number), (second, 1), (0, 2 + 9 * level), ha="center", fontsize=8, **place)
        lines.append(f"{number}: {second:.2f} s, {text}")
    if len(events) > MAX_EVENTS:
        lines.append(f"and {len(events) - MAX_EVENTS} more")
    if lines:
        below: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top"}
        panel.annotate("\n".join(lines), (0, 0), (0, -32), fontsize=8, **below)


def together(events: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the events with dense groups merged into one event."""
    groups: list[list[tuple[float, str]]] = []
    for event in events:
        if groups and event[0] - groups[-1][0][0] <= AT_ONCE:
            groups[-1].append(event)
        else:
            groups.append([event])
    found = []
    for group in groups:
        if len(group) <= FEW:
            found += group
        else:
            found.append((group[0][0], f"{group[0][1]}, and {len(group) - 1} more"))
    return found


def merged_events(runs: Sequence[RunRecord]) -> list[tuple[float, str]]:
    """Return the events of all runs by time. Events that occur in several runs at about the same time are merged."""
    merged: list[tuple[list[float], str]] = []
    for second, text in sorted((float(second), str(text)) for run in runs for second, text in run.events):
        same = next((times for times, other in merged if other == text and second - times[0] <= SAME_EVENT), None)
        if same is None:
            merged.append(([second], text))
        else:
            same.append(second)
    return sorted((float(np.mean(times)), text) for times, text in merged)


def windows(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the congestion windows of a few flows (SOPA paper, figures 10a and 10e)."""
    runs = _shown(collected, order, lambda run: run.cwnd)
    if not runs:
        return None
    made, panels = stack(_titles(runs), "time (s)", "congestion window (packets)")
    for panel, (_, run) in zip(panels, runs, strict=True):
        names = _flow_names(collected, run)
        for index, (flow, pairs) in enumerate(list(run.cwnd.items())[:LINES_EACH]):
            seconds, packets = zip(*pairs, strict=True) if pairs else ((), ())
            panel.plot(seconds, packets, label=names.get(flow, f"flow {flow}"), **_thin(index))
        legend_right(panel)
    from_zero(panels)
    more = max(len(run.cwnd) for _, run in runs) > LINES_EACH
    return finish(made, "cwnd", "Congestion windows", f"Of the first {LINES_EACH} flows of one run." if more else "Of one run.")


def queues(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the queues of the busiest ports of each run (SOPA paper, figures 10c, 10d, 10g and 10h)."""
    runs = _shown(collected, order, lambda run: run.queues if run.queue_ms > 0 else {})
    if not runs:
        return None
    made, panels = stack(_titles(runs), "time (s)", "queue length (packets)", 1.8)
    for panel, (_, run) in zip(panels, runs, strict=True):
        for index, port in enumerate(busiest(run)):
            _queue(panel, index, port, run)
        legend_right(panel)
    from_zero(panels)
    return finish(
        made,
        "queues",
        "Queues of the busiest ports",
        f"The {LINES_EACH} switch ports with the longest queues on average in one run of each scheme, so not always the "
        "same. With many samples a line shows means of groups of them, and the shaded area their range.",
        {"longest_mean": {scheme: {port: _mean(run.queues[port]) for port in busiest(run)} for scheme, run in runs}},
    )


def _queue(panel: Axes, index: int, port: str, run: RunRecord) -> None:
    lengths = np.array(run.queues[port], dtype=float)
    if not len(lengths):
        return
    each = -(-len(lengths) // QUEUE_POINTS)
    parts = [lengths[start : start + each] for start in range(0, len(lengths), each)]
    places = (np.arange(len(parts)) * each + (each - 1) / 2) * run.queue_ms / 1000
    style = _thin(index)
    panel.plot(places, [part.mean() for part in parts], label=port, **style)
    if each > 1:
        low, high = [part.min() for part in parts], [part.max() for part in parts]
        panel.fill_between(places, low, high, color=style["color"], alpha=0.12, linewidth=0)


def busiest(run: RunRecord, count: int = LINES_EACH) -> list[str]:
    """Return the ports with the longest mean queues, ordered by name."""
    by_length = sorted(run.queues, key=lambda port: (-_mean(run.queues[port]), port))
    return sorted(by_length[:count])


def _mean(lengths: Sequence[int]) -> float:
    return sum(lengths) / len(lengths) if lengths else 0.0


def _shown(
    collected: Collected, order: Sequence[str], data: Callable[[RunRecord], Mapping[str, object]]
) -> list[tuple[str, RunRecord]]:
    """Return the drawn run of each scheme that has such data."""
    return [(scheme, run) for scheme in order if any(data(run := collected.shown[scheme]).values())]


def _titles(runs: Sequence[tuple[str, RunRecord]]) -> list[str]:
    return [f"{scheme}, seed {run.seed}" for scheme, run in runs]


def _flow_names(collected: Collected, run: RunRecord) -> dict[str, str]:
    flows = collected.runs[run.scheme, run.seed]
    return {str(flow.flow): f"{flow.flow}: {flow.src} → {flow.dst}" for flow in flows}


def _thin(index: int) -> dict[str, Any]:
    return {**line_style(index), "linewidth": 1.0}


def queue_cdf(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the distribution of the length of one queue of each run (CFR paper, figure 7)."""
    found = {}
    for scheme in order:
        run = collected.shown[scheme]
        if any(run.queues.values()):
            [port] = busiest(run, 1)
            found[f"{scheme}, {port}"] = run.queues[port]
    return _ecdf(
        found,
        "queue-cdf",
        "queue length (packets)",
        "Queue of the busiest port",
        "Share of the samples up to a length, of the port with the longest queue on average in one run of each scheme: further "
        "left is better.",
    )


def round_trips(collected: Collected, order: Sequence[str]) -> Plot | None:
    """Draw the distribution of the round trips of pings (CFR paper, figure 8)."""
    found = {scheme: collected.shown[scheme].round_trips for scheme in order if collected.shown[scheme].round_trips}
    return _ecdf(
        found,
        "round-trips",
        "round trip of a ping (ms)",
        "Round trips of pings",
        "Share of the pings of one run of each scheme up to a time: further left is better.",
        widely=True,
    )


def _ecdf(
    found: Mapping[str, Sequence[float]], name: str, across: str, title: str, caption: str, widely: bool = False
) -> Plot | None:
    if not found:
        return None
    made = figure(3.4)
    panel = made.subplots()
    for index, (label, values) in enumerate(found.items()):
        panel.ecdf(values, label=label, **line_style(index))
    panel.set(xlabel=across, ylabel="share", ylim=(0, 1.02))
    if widely:
        panel.set_xscale("log")
        logarithmic(panel.xaxis)
    else:
        panel.set_xlim(left=0)
    legend_below(made, *panel.get_legend_handles_labels())
    return finish(made, name, title, caption)
