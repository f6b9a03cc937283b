"""The time until a failure is in force at every agent of the k=4 lab, and the losses of a steady stream."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.bench.measuring import measured_in_lab
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from topologies import FatTree
from topologies.lab.faults import set_silent

K = 4
SEED = 1
CUTS = 30
SILENCES = 10
STREAMS = 5
# A new BFD session uses its slow interval of 1 s at first (RFC 5880, section 6.8.3).
SLOW_START_SECONDS = 1.5
HOLD_DOWN = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]


def measure() -> dict[str, Any]:
    """Cut and silence links of an idle lab, then under a stream of 1,000 datagrams per second over the link.

    Returns:
        ``told_*_ms``: from PORT_STATUS at the controller until the last of 16 agents has swapped its maps; ``cut_told_*_ms``:
        from the failure until then. ``silent_*_ms``: from silent loss until the version of its detection by BFD.
        ``uplink_lost`` and ``remote_lost``: datagrams lost when an uplink of the source's edge switch, or a link of the
        destination's pod, goes down; ``lost_after_told``: those sent after the last acknowledgement. ``baseline_lost``: losses
        without a failure.
    """
    return measured_in_lab(_inside)


def _inside() -> dict[str, Any]:
    tree = FatTree(K)
    links = [name for name in map(tree.name, tree.links()) if not name.startswith("h")]
    draw = random.Random(f"{SEED} bench failures")
    with SopaLab(tree, None, controller_options=HOLD_DOWN) as its:
        delays, cut_delays = [], []
        for _ in range(CUTS):
            started, change = _cut(its, draw.choice(links))
            delays.append(change["acknowledged_ms"])
            cut_delays.append(1000 * (change["at"] - started) + change["acknowledged_ms"])
        silent = []
        for _ in range(SILENCES):
            time.sleep(SLOW_START_SECONDS)
            name = draw.choice(links)
            towards = draw.choice(name.split("-"))
            started, change = _fail(its, name, partial(set_silent, its.lab, name, towards))
            silent.append(1000 * (change["at"] - started))
        uplink = [_stream(its, "e0_0-a0_0") for _ in range(STREAMS)]
        remote = [_stream(its, "a2_0-c0_1") for _ in range(STREAMS)]
        baseline = _stream(its, None)[0]
    return {
        "agents": tree.host_count,
        "told_median_ms": round(statistics.median(delays), 1),
        "told_worst_ms": round(max(delays), 1),
        "limit_median_ms": 20,
        "limit_worst_ms": 100,
        "cut_told_median_ms": round(statistics.median(cut_delays), 1),
        "cut_told_worst_ms": round(max(cut_delays), 1),
        "silent_median_ms": round(statistics.median(silent)),
        "silent_worst_ms": round(max(silent)),
        "limit_silent_ms": 500,
        "uplink_lost": [lost for lost, _ in uplink],
        "limit_uplink_lost": 15,
        "remote_lost": [lost for lost, _ in remote],
        "limit_remote_lost": 50,
        "lost_after_told": sum(late for _, late in [*uplink, *remote]),
        "baseline_lost": baseline,
    }


def _cut(its: SopaLab, name: str) -> tuple[float, dict[str, Any]]:
    return _fail(its, name, lambda failed: its.lab.set_link(name, not failed))


def _fail(its: SopaLab, name: str, act: Callable[[bool], None]) -> tuple[float, dict[str, Any]]:
    """Let a link fail, by ``act(True)``, and heal. Return the time of the failure and the resulting change."""
    since = its.controller.fabric()["version"]
    started = time.time()
    act(True)
    change = its.controller.wait_acknowledged(since, lambda change: name in change["failed"])
    act(False)
    its.controller.wait_acknowledged(since, lambda change: name in change["healed"])
    while its.controller.fabric()["failures"]:
        time.sleep(0.05)
    return started, change


def _stream(its: SopaLab, name: str | None) -> tuple[int, int]:
    """Return the datagrams that a stream loses while a link is down (if named), and those lost after all agents had
    acknowledged.
    """
    src, dst = its.tree.host("h0_0_2"), its.tree.host("h2_0_2")
    since = its.controller.fabric()["version"]
    in_force_at = float("inf")
    with UdpStream(its.lab, src, dst) as stream:
        time.sleep(1)
        if name is not None:
            its.lab.set_link(name, False)
            change = its.controller.wait_acknowledged(since, lambda change: name in change["failed"])
            in_force_at = change["at"] + change["acknowledged_ms"] / 1000
        time.sleep(1)
        cut_ends = time.time()
    if name is not None:
        its.lab.set_link(name, True)
        its.controller.wait_acknowledged(since, lambda change: name in change["healed"])
    # the first datagrams were delayed by ARP
    lost = stream.lost(first=stream.sent_at[0] + 0.5, last=cut_ends)
    return len(lost), sum(moment > in_force_at for moment in lost)
