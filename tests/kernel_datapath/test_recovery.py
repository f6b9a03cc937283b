"""What TCP sends again needlessly when packets overtake one another, on Debian's kernels, with Linux' settings and the agent's.

A connection whose first second has shown it an empty path gets one with queues of different lengths, by netem, which the kernel
on which SOPA is developed lacks. The figures are printed (``-s``); docs/hosts.md has them.
"""

import platform
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from experiments.emulation.measurement.tcp_statistics import TcpInfo, tcp_info
from tests.helpers.veth import Stream, run

EMPTY_SECONDS, QUEUED_SECONDS = 1.0, 20.0
BYTES_PER_SECOND = 1_000_000
"""By TCP's own pacing: a packet in 1.4 ms, so that some ten overtake one that waits longest."""
QUEUES = "delay 20ms 8ms"
LINUX, THRESHOLD, AGENT = (3, 300), (10, 300), (10, 1)
"""Fast-retransmit threshold, and seconds for which TCP remembers the shortest round trip."""


class Hosts(NamedTuple):
    """Network namespaces: a host, the router whose queue is netem's, and the other host, 10.0.2.2."""

    host: str
    router: str
    peer: str


def spray(hosts: Hosts, threshold: int, memory: int) -> TcpInfo:
    """Send for a while on one connection, and return its statistics."""
    for setting, value in (("tcp_reordering", threshold), ("tcp_min_rtt_wlen", memory), ("tcp_no_metrics_save", 1)):
        run(f"ip netns exec {hosts.host} sysctl -qw net.ipv4.{setting}={value}")
    ends = (f"/run/netns/{name}" for name in (hosts.host, hosts.peer))
    with Stream(*ends, "10.0.2.2", pacing=BYTES_PER_SECOND) as its:
        time.sleep(EMPTY_SECONDS)
        run(f"tc -n {hosts.router} qdisc add dev to2 root netem limit 10000 {QUEUES}")
        time.sleep(QUEUED_SECONDS)
        found = tcp_info(its.client)
    run(f"tc -n {hosts.router} qdisc del dev to2 root")
    assert found is not None
    return found


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    run("modprobe sch_netem")
    tag = uuid.uuid4().hex[:8]
    names = host, router, peer = [f"sopatest-{each}-{tag}" for each in "hrp"]
    try:
        for name in names:
            run(f"ip netns add {name}")
            run(f"ip -n {name} link set lo up")
        for name, number in ((host, 1), (peer, 2)):
            run(f"ip link add end netns {name} type veth peer name to{number} netns {router}")
            for where, interface, last in ((name, "end", 2), (router, f"to{number}", 1)):
                run(f"ip -n {where} addr add 10.0.{number}.{last}/24 dev {interface}")
                run(f"ip -n {where} link set {interface} up gso_max_segs 1")  # netem delays a burst as one packet
                run(f"ip netns exec {where} ethtool -K {interface} tso off gso off gro off")
            run(f"ip -n {name} route add default via 10.0.{number}.1")
        run(f"ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1")
        yield Hosts(*names)
    finally:
        for name in names:
            run(f"ip netns delete {name}")


def test_half_and_less_is_sent_again_with_the_agents_settings(hosts: Hosts) -> None:
    share = {}
    for settings in (LINUX, THRESHOLD, AGENT):
        its = spray(hosts, *settings)
        assert its.segments_out > 100
        share[settings] = its.retransmits / its.segments_out
        print(
            f"\n{platform.release()}: threshold {settings[0]}, {settings[1]} s of memory: {its.segments_out} segments, "
            f"{share[settings]:.2%} sent again, {its.spurious / its.segments_out:.2%} needlessly, {its.timeouts} timeouts, "
            f"{its.reorderings} times reordering seen, round trip {its.rtt_us / 1000:.1f} ms"
        )
    assert 2 * share[AGENT] < min(share[THRESHOLD], share[LINUX])
