"""The second half of the demo with several controllers: the leader is killed under traffic, and a link fails meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from experiments.emulation.cluster_watch import in_force, links_of_one_pod, next_leader, streams, wait
from experiments.emulation.host_agents import AgentsLog
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from topologies import Clos, Host

DATAGRAMS = 1000  # per second, if that is no more than a share of a host's link
SHARE = 0.25
WIRE_BYTES = 146
SETTLE_SECONDS = 1.5  # the first datagrams wait for ARP
LATER_SECONDS = 1.0  # from the leader's end to the second failure: before another leads


def play(lab: SopaLab, seed: int, say: Callable[[str], None], progress: Callable[[str], None]) -> dict[str, Any]:
    """Let a link fail, kill the leader, let a second link fail a second later, and start the killed controller again.

    Two streams of datagrams run meanwhile: one over paths with the links that fail, one over others. ``say`` receives lines of
    results. Returns all results, for ``--json``. Raises `NotSeenError` if nobody leads, or the agents have not followed, within a
    minute.
    """
    assert lab.cluster is not None
    assert lab.agent is not None
    tree, cluster, log = lab.tree, lab.cluster, AgentsLog(lab.agent.log)
    first, second = links_of_one_pod(tree, seed)
    beside, across = streams(tree, first)
    per_second = _datagrams_per_second(lab.lab.rate_mbit)
    names = [tree.name(first), tree.name(second)]
    say(
        f"\nTwo streams of {per_second} datagrams a second: from {_named(tree, across)} over paths with the links that fail, and "
        f"from {_named(tree, beside)} over others"
    )
    with ExitStack() as stack:
        stream_beside = stack.enter_context(UdpStream(lab.lab, *beside, per_second))
        stream_across = stack.enter_context(UdpStream(lab.lab, *across, per_second))
        time.sleep(SETTLE_SECONDS)
        began = time.time()
        lab.lab.set_link(names[0], up=False)
        first_failed = time.time()
        first_in_force = in_force(lab, log, names[0])
        old = cluster.named("leader")
        progress(f"killing the leader, {old}")
        killed = time.time()
        cluster.kill(old)
        time.sleep(LATER_SECONDS)
        progress(f"{names[1]} goes down, {time.time() - killed:.1f} s later")
        lab.lab.set_link(names[1], up=False)
        failed = time.time()
        leader, led = next_leader(cluster, old)
        progress(f"{leader} leads")
        second_in_force = in_force(lab, log, names[1])
        progress(f"starting {old} again")
        cluster.restart(old)
        standing = wait(lambda: cluster.records("members/").get(old), f"{old} was a member again")
        ended = time.time()
    for name in names:
        lab.lab.set_link(name, up=True)
    lost = {"beside": len(stream_beside.lost(began, ended)), "across": len(stream_across.lost(began, ended))}
    seen = {
        "links": names,
        "leaders": [old, leader],
        "datagrams_per_second": per_second,
        "in_force_ms": _ms(first_in_force - first_failed),
        "new_leader_ms": _ms(led - killed),
        "failed_after_ms": _ms(failed - killed),
        "in_force_without_ms": _ms(second_in_force - failed),
        "in_force_after_leader_ms": _ms(second_in_force - max(led, failed)),
        "lost": lost,
        "sent": sum(moment >= began for moment in stream_beside.sent_at),
    }
    say(
        f"  {names[0]} failed: in force at the last of {len(lab.labelling)} agents after {seen['in_force_ms']:.0f} ms\n"
        f"  {old}, the leader, was killed: {leader} led after {seen['new_leader_ms']:.0f} ms\n"
        f"  {names[1]} failed {seen['failed_after_ms']:.0f} ms after the leader was killed: in force at the last agent after "
        f"{seen['in_force_without_ms']:.0f} ms, {seen['in_force_after_leader_ms']:.0f} ms after there was a leader\n"
        f"  {old}, started again, is a {standing['role']}\n"
        f"  lost datagrams of {seen['sent']}: {lost['beside']} on paths without a failure, {lost['across']} on paths with them"
    )
    return seen


def _datagrams_per_second(rate_mbit: float | None) -> int:
    """Return how many datagrams a second a share of a host's link carries, and not more than `DATAGRAMS`."""
    return DATAGRAMS if rate_mbit is None else max(1, min(DATAGRAMS, int(SHARE * rate_mbit * 1e6 / (8 * WIRE_BYTES))))


def _named(tree: Clos, pair: Sequence[Host]) -> str:
    return " to ".join(map(tree.name, pair))


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
