"""How long a cluster of the k=4 lab is without a leader, what that costs, and what switches take from the old one."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from experiments.bench.measuring import measured_in_lab, say
from experiments.emulation.agents_log import AgentsLog
from experiments.emulation.cluster_parts import ClusterParts, Group, Kind
from experiments.emulation.cluster_watch import in_force, links_of_one_pod, next_leader, streams, wait
from experiments.emulation.flow_monitor import FlowMonitors
from experiments.emulation.openflow_capture import COMMANDS, OpenFlowCapture
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from topologies import FatTree
from topologies.lab.management import INTERFACE

K = 4
SEED = 1
ROUNDS = 5
HOLD_DOWN = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]
LATER_SECONDS = 1.0
"""From the leader's end to the failure of a link."""
BACK_SECONDS = 4.0
"""For what an old leader still sends when it goes on: two of its leases."""
ARP_SECONDS = 0.5
LIMIT_LEADER_MS, LIMIT_IN_FORCE_MS = 2500, 1000


class Round(NamedTuple):
    """What one end of a leader cost.

    Attributes:
        leader_ms: Until another member led.
        in_force_ms: From the link's failure until it was in force at all agents.
        after_leader_ms: The same from when there was a leader, if that was later.
        lost: Datagrams of a stream whose paths had no failure.
        claims, sent, refused: Role requests and commands that the old leader has sent since it went on, and those of its
            messages that switches have refused since then.
        taken: Entries that switches have taken from it since another member led.
    """

    leader_ms: float
    in_force_ms: float
    after_leader_ms: float
    lost: int
    claims: int
    sent: int
    refused: int
    taken: int


def measure() -> dict[str, Any]:
    """Kill, stop and cut off the leader from etcd, under 1,000 datagrams a second, with a link that fails a second later.

    Returns:
        Of each kind of end: ``*_leader_ms`` until a standby leads, ``*_in_force_ms`` from the link's failure, and
        ``*_after_leader_ms`` from when there was a leader, until the failure is in force at all 16 agents (medians and worst of
        5), ``*_lost`` datagrams of a stream on paths without failure. Of the old leader when it goes on:
        ``*_role_requests_sent``, ``*_commands_sent``, ``*_refused`` messages, and ``*_entries_taken`` by switches.
    """
    return measured_in_lab(_inside)


def _inside() -> dict[str, Any]:
    tree = FatTree(K)
    results: dict[str, Any] = {
        "agents": tree.host_count,
        "limit_leader_ms": LIMIT_LEADER_MS,
        "limit_after_leader_ms": LIMIT_IN_FORCE_MS,
    }
    draw = random.Random(f"{SEED} bench cluster")
    with SopaLab(tree, None, controllers=3, controller_options=HOLD_DOWN) as lab:
        assert lab.cluster is not None
        cluster = lab.cluster
        ends: dict[str, tuple[Callable[[str], None], Callable[[str], None]]] = {
            "killed": (cluster.kill, cluster.restart),
            "stopped": (cluster.pause, cluster.resume),
            "cut_off": (lambda name: cluster.partition(name, [Group.ETCD]), cluster.heal),
        }
        for kind, (end, undo) in ends.items():
            rounds: list[Round] = []
            for number in range(ROUNDS):
                rounds.append(_round(lab, draw.randrange(1 << 16), end, undo))
                say(f"{kind}, round {number + 1} of {ROUNDS}: another leads after {rounds[-1].leader_ms:.0f} ms")
            for name in ("leader_ms", "in_force_ms", "after_leader_ms"):
                values = [getattr(one, name) for one in rounds]
                results[f"{kind}_{name}_median"] = round(statistics.median(values))
                results[f"{kind}_{name}_worst"] = round(max(values))
            results[f"{kind}_lost"] = [one.lost for one in rounds]
            results[f"{kind}_role_requests_sent"] = sum(one.claims for one in rounds)
            results[f"{kind}_commands_sent"] = sum(one.sent for one in rounds)
            results[f"{kind}_refused"] = sum(one.refused for one in rounds)
            results[f"{kind}_entries_taken"] = sum(one.taken for one in rounds)
    return results


def _round(lab: SopaLab, seed: int, end: Callable[[str], None], undo: Callable[[str], None]) -> Round:
    assert lab.cluster is not None
    assert lab.agent is not None
    cluster, log, tree = lab.cluster, AgentsLog(lab.agent.log), lab.tree
    wait(lambda: _all_follow(lab) or None, "all members, relays and agents followed one leader")
    link = links_of_one_pod(tree, seed)[0]
    name = tree.name(link)
    beside, _ = streams(tree, link)
    old = cluster.named("leader")
    switches = [tree.name(switch) for switch in tree.switches()]
    with ExitStack() as stack:
        monitors = stack.enter_context(FlowMonitors(switches, lab.directory))
        stream = stack.enter_context(UdpStream(lab.lab, *beside))
        time.sleep(2 * ARP_SECONDS)  # the first datagrams wait for ARP
        ended = time.time()
        end(old)
        time.sleep(LATER_SECONDS)
        lab.lab.set_link(name, up=False)
        failed = time.time()
        _, led = next_leader(cluster, old)
        reached = in_force(lab, log, name)
        versions = {switch: max(written, default=0) for switch, written in monitors.follow().items()}
        before = {switch: len(written) for switch, written in monitors.written.items()}
        capture = stack.enter_context(OpenFlowCapture(cluster.network.netns(old), INTERFACE))
        undo(old)
        time.sleep(BACK_SECONDS)  # see there
        taken = sum(
            version < versions[switch]
            for switch, written in monitors.follow().items()
            for version in written[before[switch] :]
        )
        lost = stream.lost(first=ended - ARP_SECONDS, last=reached)
    lab.lab.set_link(name, up=True)
    return Round(
        leader_ms=1000 * (led - ended),
        in_force_ms=1000 * (reached - failed),
        after_leader_ms=1000 * (reached - max(led, failed)),
        lost=len(lost),
        claims=capture.sent["role-request"],
        sent=sum(capture.sent[command] for command in COMMANDS.values()),
        refused=capture.refused.total(),
        taken=taken,
    )


def _all_follow(lab: SopaLab) -> bool:
    """Return True if there is a leader, all parts have its version, nothing has failed, and all switches are connected to all."""
    cluster: ClusterParts | None = lab.cluster
    assert cluster is not None
    records = cluster.records()
    view = records.get("view")
    if view is None or "leader" not in records or view["failures"]:
        return False
    names = [*(f"members/{name}" for name in cluster.names(Kind.CONTROLLER))]
    names += [f"relays/{name}" for name in cluster.names(Kind.RELAY)]
    its = [records.get(name) for name in names]
    return (
        all(record is not None and record["version"] == view["version"] for record in its)
        and all(record["switches"] == lab.tree.switch_count for record in its if record and "switches" in record)
        and cluster.agents_know(len(lab.labelling))
    )
