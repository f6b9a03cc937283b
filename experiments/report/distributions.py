"""Figures of one run per scheme without time: how long the queue of a receiver is, how long pings take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.report.collect import Collected
from experiments.report.style import Plot, figure, finish, legend_below, line_style, logarithmic
from experiments.report.timelines import busiest


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
