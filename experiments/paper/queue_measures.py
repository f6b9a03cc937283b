"""Measures of one run from the queue in front of its one receiver, and from the round trips of pings. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.core.records import FlowRecord, RunRecord
from topologies.identity import FIRST_HOST

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
SHORT = 2
"""Packets of a queue that nearly is none: one on the wire, and one that came with it."""


def port_of(host: str) -> str:
    """Return the port of the edge switch to a host: ``e0_1-eth2`` of ``h0_1_3``."""
    pod, edge, number = host.removeprefix("h").split("_")
    return f"e{pod}_{edge}-eth{int(number) - FIRST_HOST + 1}"


def of_queues(run: RunRecord, flows: Sequence[FlowRecord], payload: float = math.inf) -> dict[str, float]:
    """Return measures of queues and round trips.

    Args:
        payload: Maximum payload rate of a link in Mbit/s.

    Returns:
        ``queue_longest`` (packets, of any port at any time). If all flows have one receiver: ``receiver_mbit`` (all flows
        together), ``receiver_percent`` (of `payload`), and of the samples of the queue in front of it ``receiver_queue_mean``,
        ``receiver_queue_p50`` to ``_p999``, ``receiver_queue_most`` and ``receiver_queue_short`` (percent of the samples with
        at most two packets). Of pings ``rtt_p50``, ``rtt_p95``, ``rtt_p99``, ``rtt_p999`` (us) and ``pings_lost`` (percent).
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
