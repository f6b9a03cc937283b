"""Measures of one run by name, from its records. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.core.records import FlowRecord, RunRecord
from experiments.paper.figure import RunData
from experiments.paper.queue_measures import of_queues
from experiments.paper.series_measures import of_series
from experiments.report.statistics import largest_deviation, losses, path_windows

WINDOWS = 4
"""Number of windows of 500 packets, as in figure 5 of the SOPA paper."""
MIN_PACKETS = 50
"""Minimum number of packets for a mean delay of a path."""


def measure(run: RunRecord, flows: Sequence[FlowRecord], payload: float, failed: bool = False) -> dict[str, float]:
    """Return the measures of a run by name.

    Args:
        payload: Maximum payload rate of a link in Mbit/s.
        failed: Flows 0 and 1 are those of figure 7 of the SOPA paper, of which the first has half of the paths.

    Returns:
        ``mean``, ``minimum``, ``maximum`` (Mbit/s of a flow), ``link_percent``; ``fast_retransmits``, ``retransmits``,
        ``timeouts``, ``dropped`` (of the run), ``fast_retransmits_of_a_flow`` (mean), ``reordered_percent``; ``host_mean``,
        ``host_minimum``, ``host_maximum`` (Mbit/s of all flows of a host together); ``KIND_mean`` and ``KIND_timeouts``;
        ``completion_mean``, ``completion_median``, ``completion_p99``, ``completion_most`` (ms, also by kind); those of
        `series_measures.of_series` and of `queue_measures.of_queues`; of traced flows ``delay_least``, ``delay_most``,
        ``delay_p99`` (us), ``deviation`` (percent), ``path UP1.UP2`` (percent); ``queue_most`` (packets); with `failed` what
        concerns the two.
    """
    mbit = [flow.mbit for flow in flows]
    hosts = host_mbit(flows)
    lost = losses(flows)
    found = {
        "mean": math.fsum(mbit) / len(mbit),
        "minimum": min(mbit),
        "maximum": max(mbit),
        "link_percent": 100 * math.fsum(mbit) / len(mbit) / payload,
        "host_mean": math.fsum(hosts) / len(hosts),
        "host_minimum": min(hosts),
        "host_maximum": max(hosts),
        "fast_retransmits": float(lost.fast_retransmits),
        "fast_retransmits_of_a_flow": lost.fast_retransmits / len(flows),
        "retransmits": float(lost.retransmits),
        "timeouts": float(lost.timeouts),
        "reordered_percent": 100 * (lost.reordered_share or 0.0),
        "dropped": float(run.counters.get("dropped", 0)),
        "not_completed": float(sum(not flow.completed for flow in flows)),
        **_completion(flows),
    }
    for kind in sorted({flow.kind for flow in flows} - {""}):
        its = [flow for flow in flows if flow.kind == kind]
        found[f"{kind}_mean"] = math.fsum(flow.mbit for flow in its) / len(its)
        found[f"{kind}_timeouts"] = float(sum(flow.timeouts for flow in its))
        found |= _completion(its, f"{kind}_")
    if run.queues:
        found["queue_most"] = float(max(max(lengths) for lengths in run.queues.values()))
    return (
        found
        | of_series(run)
        | of_queues(run, flows, payload)
        | _of_traces(run)
        | (_of_two(run, flows) if failed else {})
    )


def _completion(flows: Sequence[FlowRecord], prefix: str = "") -> dict[str, float]:
    """Return completion times of the flows with a size, in ms. What is not complete counts as long as it was observed."""
    times = [1000 * flow.seconds for flow in flows if flow.size is not None]
    if not times:
        return {}
    return {
        f"{prefix}completion_mean": math.fsum(times) / len(times),
        f"{prefix}completion_median": float(np.median(times)),
        f"{prefix}completion_p99": float(np.percentile(times, 99)),
        f"{prefix}completion_most": max(times),
    }


def data(run: RunRecord, flows: Sequence[FlowRecord], payload: float, failed: bool = False) -> RunData:
    """Return the data that are kept of a run."""
    record = {
        "command": run.command,
        "options": dict(run.options),
        "simulator": run.machine.get("simulator", ""),
        "hops": run.counters.get("hops", 0),
    }
    measures = {name: _short(value) for name, value in measure(run, flows, payload, failed).items()}
    return RunData(run.scheme, run.seed, measures, tuple(round(flow.mbit, 1) for flow in flows), record)


def host_mbit(flows: Sequence[FlowRecord]) -> list[float]:
    """Return the throughput of each sending host: all its flows, from the start of the first to the end of the last."""
    by_host: dict[str, list[FlowRecord]] = {}
    for flow in flows:
        by_host.setdefault(flow.src, []).append(flow)
    found = []
    for its in by_host.values():
        seconds = max(flow.start + flow.seconds for flow in its) - min(flow.start for flow in its)
        found.append(8 * sum(flow.bytes for flow in its) / seconds / 1e6 if seconds else 0.0)
    return found


def _of_traces(run: RunRecord) -> dict[str, float]:
    rows = [row for rows in run.arrivals.values() for row in rows]
    if not rows:
        return {}
    delays = np.array([row[4] for row in rows]) * 1000
    found = {
        "delay_least": float(delays.min()),
        "delay_most": float(delays.max()),
        "delay_p99": float(np.percentile(delays, 99)),
    }
    first = next(iter(run.arrivals.values()))
    taken = sorted({(int(up1), int(up2)) for _, _, up1, up2, _ in first})
    deviation = largest_deviation(path_windows(first)[:WINDOWS], len(taken))
    if deviation is not None:
        found["deviation"] = deviation
    for path in taken:
        share = sum((int(row[2]), int(row[3])) == path for row in first) / len(first)
        found[f"path {path[0]}.{path[1]}"] = 100 * share
    return found


def _of_two(run: RunRecord, flows: Sequence[FlowRecord]) -> dict[str, float]:
    """Return the measures of figure 7 of the SOPA paper: delays of the second flow on paths of the first and on others,
    while both send.
    """
    both = sorted(flows, key=lambda flow: flow.flow)
    found = {}
    for flow in both:
        found[f"flow {flow.flow}"] = flow.mbit
        found[f"flow {flow.flow} reordered_percent"] = 100 * flow.reordered / flow.packets if flow.packets else 0.0
    end = both[0].start + both[0].seconds
    second = [row for row in run.arrivals.get("1", ()) if row[0] <= end]
    first = {int(row[2]) for row in run.arrivals.get("0", ())}
    for name, overlapping in (("overlapping_delay", True), ("other_delay", False)):
        delays = [1000 * row[4] for row in second if (int(row[2]) in first) is overlapping]
        if len(delays) >= MIN_PACKETS:
            found[name] = math.fsum(delays) / len(delays)
    return found


def _short(value: float) -> float:
    """Round to six significant digits, to keep files small."""
    return float(f"{value:.6g}")
