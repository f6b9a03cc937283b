"""Measures of one run by name, from its records. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.core.records import FlowRecord, RunRecord
from experiments.paper.figures import RunData
from experiments.report.faults import recovery
from experiments.report.statistics import largest_deviation, losses, path_windows
from topologies.identity import FIRST_HOST

MAX_KEPT_FLOWS = 20
"""Of more flows of a run the data have every fifth percentile."""
WINDOWS = 4
"""Number of windows of 500 packets, as in figure 5 of the SOPA paper."""
MIN_PACKETS = 50
"""Minimum number of packets for a mean delay of a path."""
PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
SHORT = 2
"""Packets of a queue that nearly is none: one on the wire, and one that came with it."""
START_SHARE = 0.1
"""Of the time in which all flows send, at its beginning: slow start."""
FULL = 0.9
"""Share of its later rate at which a flow is back."""
LATER = 1 / 3
"""Share of the time after a failure, at its end, in which the rate is final."""
ROUNDING = 1e-6
"""Of the number of intervals before a failure."""
BACK_WINDOW = 3
"""Intervals in which a flow has to have that rate on average."""


def measure(run: RunRecord, flows: Sequence[FlowRecord], payload: float, failed: bool = False) -> dict[str, float]:
    """Return the measures of a run by name; with ``failed`` those of the two flows of figure 7 of the SOPA paper, too.

    ``mean``, ``minimum``, ``maximum`` are Mbit/s of a flow, ``host_*`` those of all flows of a host together; ``link_percent``
    is the mean by ``payload``, the maximum payload rate of a link in Mbit/s; ``fast_retransmits``, ``retransmits``,
    ``timeouts``, ``dropped``, ``trimmed`` are of the run, ``fast_retransmits_of_a_flow`` their mean; ``completion_*`` in ms,
    also by kind, as ``KIND_mean`` and ``KIND_timeouts``. Of traced flows: ``delay_*`` in us, ``deviation`` and ``path UP1.UP2``
    in percent. ``queue_most`` and ``queue_p99`` are packets, of all samples of ports that ever had any; ``cores`` is the
    largest by the smallest number of packets of a core switch. ``collective`` is the time of the slowest job, in ms.
    ``silence`` and ``recovered_*`` are seconds, see `experiments.report.faults.Recovery`.
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
        "retransmitted_percent": 100 * (lost.retransmitted_share or 0.0),
        "dropped": float(run.counters.get("dropped", 0)),
        "not_completed": float(sum(not flow.completed for flow in flows)),
        **_completion(flows),
    }
    for kind in sorted({flow.kind for flow in flows} - {""}):
        flow_records = [flow for flow in flows if flow.kind == kind]
        found[f"{kind}_mean"] = math.fsum(flow.mbit for flow in flow_records) / len(flow_records)
        found[f"{kind}_minimum"] = min(flow.mbit for flow in flow_records)
        found[f"{kind}_timeouts"] = float(sum(flow.timeouts for flow in flow_records))
        found |= _completion(flow_records, f"{kind}_")
    if "trimmed" in run.counters:
        found["trimmed"] = float(run.counters["trimmed"])
    if seconds := run.collective.get("seconds"):
        found["collective"] = 1000 * seconds
    if run.queues:
        lengths = np.concatenate([np.array(lengths) for lengths in run.queues.values()])
        found |= {"queue_most": float(lengths.max()), "queue_p99": float(np.percentile(lengths, 99))}
    if run.core_packets and min(run.core_packets.values()):
        found["cores"] = max(run.core_packets.values()) / min(run.core_packets.values())
    if back := recovery(run):
        found |= {"silence": back.silence, "recovered_mean": back.mean, "recovered_last": back.longest}
    return found | of_series(run) | of_queues(run, flows, payload) | _of_traces(run) | (_of_two(run, flows) if failed else {})


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
    record: dict[str, object] = {"command": run.command, "options": dict(run.options)}
    if "simulator" in run.machine:
        record |= {"simulator": run.machine["simulator"], "hops": run.counters.get("hops", 0)}
    else:
        record |= {"machine": dict(run.machine), "idle_percent": run.cpu_idle_percent}
    digits = None if payload >= 10_000 else 1 if payload >= 100 else 3
    measures = {name: _short(value) for name, value in measure(run, flows, payload, failed).items()}
    mbit = () if run.collective else kept_mbit([round(flow.mbit, digits) for flow in flows])
    return RunData(run.scheme, run.seed, measures, mbit, record)


def kept_mbit(flows: Sequence[float]) -> tuple[float, ...]:
    """Return what `RunData.mbit` keeps of the throughput of each flow."""
    if len(flows) <= MAX_KEPT_FLOWS:
        return tuple(flows)
    ordered = sorted(flows)
    return tuple(ordered[(len(flows) - 1) * percent // 100] for percent in range(0, 101, 5))


def host_mbit(flows: Sequence[FlowRecord]) -> list[float]:
    """Return the throughput of each sending host: all its flows, from the start of the first to the end of the last."""
    by_host: dict[str, list[FlowRecord]] = {}
    for flow in flows:
        by_host.setdefault(flow.src, []).append(flow)
    found = []
    for flow_records in by_host.values():
        seconds = max(flow.start + flow.seconds for flow in flow_records) - min(flow.start for flow in flow_records)
        found.append(8 * sum(flow.bytes for flow in flow_records) / seconds / 1e6 if seconds else 0.0)
    return found


def _of_traces(run: RunRecord) -> dict[str, float]:
    rows = [row for rows in run.arrivals.values() for row in rows]
    if not rows:
        return {}
    delays = np.array([row[4] for row in rows]) * 1000
    found = {"delay_least": float(delays.min()), "delay_most": float(delays.max()), "delay_p99": float(np.percentile(delays, 99))}
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
    """Return measures of figure 7 of the SOPA paper: delays of flow 1 on paths of flow 0 and on others, while both send."""
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


# -- queues and round trips -----------------------------------------------------------------------------------------------


def port_of(host: str) -> str:
    """Return the port of the edge switch to a host: ``e0_1-eth2`` of ``h0_1_3``."""
    pod, edge, number = host.removeprefix("h").split("_")
    return f"e{pod}_{edge}-eth{int(number) - FIRST_HOST + 1}"


def of_queues(run: RunRecord, flows: Sequence[FlowRecord], payload: float = math.inf) -> dict[str, float]:
    """Return measures of queues and round trips.

    ``queue_longest``: packets, of any port at any time. If all flows have one receiver: ``receiver_mbit`` of all flows together,
    ``receiver_percent`` of ``payload`` (of a link, Mbit/s), and ``receiver_queue_*`` of the samples of the queue in front of it;
    ``receiver_queue_short`` is the percentage with at most two packets. Of pings ``rtt_*`` in us, and ``pings_lost`` in percent.
    """
    found = {}
    if "longest_queue" in run.counters:
        found["queue_longest"] = float(run.counters["longest_queue"])
    receivers = {flow.dst for flow in flows}
    if len(receivers) == 1:
        found["receiver_mbit"] = math.fsum(flow.mbit for flow in flows)
        found["receiver_percent"] = 100 * found["receiver_mbit"] / payload
        if run.queues:
            # a port without any packet in all samples has none
            lengths = np.array(run.queues.get(port_of(receivers.pop()), [0]))
            found["receiver_queue_mean"] = float(lengths.mean())
            found["receiver_queue_most"] = float(lengths.max())
            found["receiver_queue_short"] = 100 * float((lengths <= SHORT).mean())
            found |= {f"receiver_queue_{name}": float(np.percentile(lengths, at)) for name, at in PERCENTILES.items()}
    if run.round_trips:
        times = 1000 * np.array(run.round_trips)
        found |= {f"rtt_{name}": float(np.percentile(times, at)) for name, at in PERCENTILES.items()}
        sent = run.counters.get("pings", len(times))
        found["pings_lost"] = 100 * (1 - len(times) / max(sent, len(times)))
    return found


# -- throughput over time -------------------------------------------------------------------------------------------------


def of_series(run: RunRecord) -> dict[str, float]:
    """Return measures of a run with series; without them, none.

    While all flows send, after slow start: ``steady_minimum`` and ``steady_maximum`` (Mbit/s of a flow, its mean over time),
    ``steady_spread`` (their difference, in percent of the mean). With a failure instead ``before`` and ``after`` (Mbit/s of the
    first flow), ``least`` (in an interval after the failure), ``back_ms``: from the failure until the next intervals have 90% of
    the later rate; all of the rest if that is below half of the rate before.
    """
    if not run.series or not run.series_ms:
        return {}
    failures = [float(second) for second, _ in run.events if second > 0]
    if failures:
        return _of_failure(next(iter(run.series.values())), run.series_ms, 1000 * min(failures))
    length = min(map(len, run.series.values())) - 1  # in the last interval a flow ends
    begin = math.ceil(START_SHARE * length)
    if length - begin < 1:
        return {}
    means = [math.fsum(series[begin:length]) / (length - begin) for series in run.series.values()]
    mean = math.fsum(means) / len(means)
    return {
        "steady_minimum": min(means),
        "steady_maximum": max(means),
        "steady_spread": 100 * (max(means) - min(means)) / mean if mean else 0.0,
    }


def _of_failure(series: Sequence[float], each_ms: float, failed_ms: float) -> dict[str, float]:
    first = int(failed_ms / each_ms + ROUNDING)
    before, after = series[first // 2 : first], series[first:-1]
    if len(after) < 2 * BACK_WINDOW or not before:
        return {}
    before_mean = math.fsum(before) / len(before)
    tail = after[-max(BACK_WINDOW, int(len(after) * LATER)) :]
    later = math.fsum(tail) / len(tail)
    places = range(len(after) - BACK_WINDOW + 1)
    fast = [place for place in places if math.fsum(after[place : place + BACK_WINDOW]) >= FULL * later * BACK_WINDOW]
    # The packets on their way when the link fails still arrive: what counts is what follows the first interval below.
    slow = next((place for place, rate in enumerate(after) if rate < FULL * later), 0)
    back = next((place for place in fast if place >= slow), len(after)) if later > before_mean / 2 else len(after)
    return {"before": before_mean, "after": later, "least": min(after), "back_ms": back * each_ms}
