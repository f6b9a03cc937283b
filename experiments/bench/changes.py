"""How soon a failure is in force at all agents of the k=4 lab, of a link and of a cluster's leader, and what is lost until then."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from experiments.bench.frame import Results, in_lab, median_and_worst, say, times
from experiments.emulation.cluster_parts import PartGroup, PartKind
from experiments.emulation.cluster_watch import in_force, links_of_one_pod, next_leader, streams, wait
from experiments.emulation.flow_monitor import FlowMonitors
from experiments.emulation.host_agents import AgentsLog
from experiments.emulation.openflow_capture import COMMANDS, OpenFlowCapture
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from topologies import FatTree
from topologies.lab.faults import set_silent
from topologies.lab.management import INTERFACE

TREE = FatTree(4)
SEED = 1
HOLD_DOWN = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]
ARP_SECONDS = 0.5
"""The first datagrams of a stream wait for ARP."""

# -- links ----------------------------------------------------------------------------------------------------------------

CUTS, SILENCES, STREAMS = times(30), times(10), times(5)
SLOW_START_SECONDS = 1.5
"""A new BFD session uses its slow interval of 1 s at first (RFC 5880, section 6.8.3)."""


@in_lab
def failures() -> Results:
    """Cut and silence links of an idle lab, then under a stream of 1,000 datagrams per second over the link.

    ``told_*_ms``: from PORT_STATUS at the controller until the last of 16 agents has swapped its maps; ``cut_told_*_ms``: from the
    failure until then. ``silent_*_ms``: from silent loss until the version of its detection by BFD. ``uplink_lost``,
    ``remote_lost``: datagrams lost when an uplink of the source's edge switch, or a link of the destination's pod, goes down;
    ``lost_after_told``: those sent after the last acknowledgement. ``baseline_lost``: losses without a failure.
    """
    links = [name for name in map(TREE.name, TREE.links()) if not name.startswith("h")]
    draw = random.Random(f"{SEED} bench failures")
    delays, cut_delays, silent = [], [], []
    with SopaLab(TREE, None, controller_options=HOLD_DOWN) as lab:
        for _ in range(CUTS):
            name = draw.choice(links)
            started, change = _fail(lab, name, partial(_set_down, lab, name))
            delays.append(change["acknowledged_ms"])
            cut_delays.append(1000 * (change["at"] - started) + change["acknowledged_ms"])
        for _ in range(SILENCES):
            time.sleep(SLOW_START_SECONDS)
            name = draw.choice(links)
            towards = draw.choice(name.split("-"))
            started, change = _fail(lab, name, partial(set_silent, lab.lab, name, towards))
            silent.append(1000 * (change["at"] - started))
        uplink = [_stream(lab, "e0_0-a0_0") for _ in range(STREAMS)]
        remote = [_stream(lab, "a2_0-c0_1") for _ in range(STREAMS)]
        baseline = _stream(lab, None)[0]
    return {
        "agents": TREE.host_count,
        **median_and_worst("told", delays),
        "limit_median_ms": 20,
        "limit_worst_ms": 100,
        **median_and_worst("cut_told", cut_delays),
        **median_and_worst("silent", silent, digits=None),
        "limit_silent_ms": 500,
        "uplink_lost": [lost for lost, _ in uplink],
        "limit_uplink_lost": 15,
        "remote_lost": [lost for lost, _ in remote],
        "limit_remote_lost": 50,
        "lost_after_told": sum(late for _, late in [*uplink, *remote]),
        "baseline_lost": baseline,
    }


def _set_down(lab: SopaLab, name: str, down: bool) -> None:
    lab.lab.set_link(name, not down)


def _fail(lab: SopaLab, name: str, act: Callable[[bool], object]) -> tuple[float, dict[str, Any]]:
    """Let a link fail, by ``act(True)``, and heal. Return the time of the failure and the resulting change."""
    since = lab.controller.fabric()["version"]
    started = time.time()
    act(True)
    change = lab.controller.wait_acknowledged(since, lambda change: name in change["failed"])
    act(False)
    lab.controller.wait_acknowledged(since, lambda change: name in change["healed"])
    while lab.controller.fabric()["failures"]:
        time.sleep(0.05)
    return started, change


def _stream(lab: SopaLab, name: str | None) -> tuple[int, int]:
    """Return the datagrams that a stream loses while a link is down (if named), and those of them after all acknowledgements."""
    src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2")
    since = lab.controller.fabric()["version"]
    in_force_at = float("inf")
    with UdpStream(lab.lab, src, dst) as stream:
        time.sleep(1)
        if name is not None:
            lab.lab.set_link(name, False)
            change = lab.controller.wait_acknowledged(since, lambda change: name in change["failed"])
            in_force_at = change["at"] + change["acknowledged_ms"] / 1000
        time.sleep(1)
        cut_ends = time.time()
    if name is not None:
        lab.lab.set_link(name, True)
        lab.controller.wait_acknowledged(since, lambda change: name in change["healed"])
    lost = stream.lost(first=stream.sent_at[0] + ARP_SECONDS, last=cut_ends)
    return len(lost), sum(moment > in_force_at for moment in lost)


# -- the leader -----------------------------------------------------------------------------------------------------------

ROUNDS = times(5)
LATER_SECONDS = 1.0
"""From the leader's end to the failure of a link."""
BACK_SECONDS = 4.0
"""For what an old leader still sends when it goes on: two of its leases."""
LIMIT_LEADER_MS, LIMIT_IN_FORCE_MS = 2500, 1000


class Round(NamedTuple):
    """What one end of a leader cost.

    ``after_leader_ms`` is `in_force_ms` from when there was a leader, if that was later. ``lost``: datagrams of a stream whose
    paths had no failure. The last four are of the old leader since it went on; entries are those that switches have taken from it
    since another member led.
    """

    leader_ms: float
    in_force_ms: float
    after_leader_ms: float
    lost: int
    role_requests_sent: int
    commands_sent: int
    refused: int
    entries_taken: int


@in_lab
def cluster() -> Results:
    """Kill, stop and cut off the leader from etcd, under 1,000 datagrams a second, with a link that fails a second later.

    The results are those of `Round`, by the kind of end: medians and worst of the times, lists of what was lost, sums of the
    others.
    """
    results: Results = {"agents": TREE.host_count, "limit_leader_ms": LIMIT_LEADER_MS, "limit_after_leader_ms": LIMIT_IN_FORCE_MS}
    draw = random.Random(f"{SEED} bench cluster")
    with SopaLab(TREE, None, controllers=3, controller_options=HOLD_DOWN) as lab:
        parts = lab.cluster
        assert parts is not None
        ends: dict[str, tuple[Callable[[str], None], Callable[[str], None]]] = {
            "killed": (parts.kill, parts.restart),
            "stopped": (parts.pause, parts.resume),
            "cut_off": (lambda name: parts.partition(name, [PartGroup.ETCD]), parts.heal),
        }
        for kind, (end, undo) in ends.items():
            rounds: list[Round] = []
            for number in range(ROUNDS):
                rounds.append(_round(lab, draw.randrange(1 << 16), end, undo))
                say(f"{kind}, round {number + 1} of {ROUNDS}: another leads after {rounds[-1].leader_ms:.0f} ms")
            for name in ("leader_ms", "in_force_ms", "after_leader_ms"):
                values = [getattr(one, name) for one in rounds]
                results[f"{kind}_{name}_median"] = round(median(values))
                results[f"{kind}_{name}_worst"] = round(max(values))
            results[f"{kind}_lost"] = [one.lost for one in rounds]
            for name in ("role_requests_sent", "commands_sent", "refused", "entries_taken"):
                results[f"{kind}_{name}"] = sum(getattr(one, name) for one in rounds)
    return results


def _round(lab: SopaLab, seed: int, end: Callable[[str], None], undo: Callable[[str], None]) -> Round:
    assert lab.cluster is not None
    assert lab.agent is not None
    log, tree = AgentsLog(lab.agent.log), lab.tree
    wait(lambda: _all_follow(lab) or None, "all members, relays and agents followed one leader")
    link = links_of_one_pod(tree, seed)[0]
    name = tree.name(link)
    beside, _ = streams(tree, link)
    old = lab.cluster.named("leader")
    switches = [tree.name(switch) for switch in tree.switches()]
    with ExitStack() as stack:
        monitors = stack.enter_context(FlowMonitors(switches, lab.directory))
        stream = stack.enter_context(UdpStream(lab.lab, *beside))
        time.sleep(2 * ARP_SECONDS)
        ended = time.time()
        end(old)
        time.sleep(LATER_SECONDS)
        lab.lab.set_link(name, up=False)
        failed = time.time()
        _, led = next_leader(lab.cluster, old)
        reached = in_force(lab, log, name)
        versions = {switch: max(written, default=0) for switch, written in monitors.follow().items()}
        before = {switch: len(written) for switch, written in monitors.written.items()}
        capture = stack.enter_context(OpenFlowCapture(lab.cluster.network.netns(old), INTERFACE))
        undo(old)
        time.sleep(BACK_SECONDS)
        taken = sum(
            version < versions[switch] for switch, written in monitors.follow().items() for version in written[before[switch] :]
        )
        lost = stream.lost(first=ended - ARP_SECONDS, last=reached)
    lab.lab.set_link(name, up=True)
    return Round(
        leader_ms=1000 * (led - ended),
        in_force_ms=1000 * (reached - failed),
        after_leader_ms=1000 * (reached - max(led, failed)),
        lost=len(lost),
        role_requests_sent=capture.sent["role-request"],
        commands_sent=sum(capture.sent[command] for command in COMMANDS.values()),
        refused=capture.refused.total(),
        entries_taken=taken,
    )


def _all_follow(lab: SopaLab) -> bool:
    """Return True if there is a leader, all parts have its version, nothing has failed, and all switches are connected to all."""
    parts = lab.cluster
    assert parts is not None
    records = parts.records()
    view = records.get("view")
    if view is None or "leader" not in records or view["failures"]:
        return False
    names = [*(f"members/{name}" for name in parts.names(PartKind.CONTROLLER))]
    names += [f"relays/{name}" for name in parts.names(PartKind.RELAY)]
    of_parts = [records.get(name) for name in names]
    return (
        all(record is not None and record["version"] == view["version"] for record in of_parts)
        and all(record["switches"] == lab.tree.switch_count for record in of_parts if record and "switches" in record)
        and parts.agents_know(len(lab.labelling))
    )
