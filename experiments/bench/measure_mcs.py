"""What Multi-Channel Scatter costs a host: throughput and processor time beside the same host without it, and its programs' time.

Two network namespaces are connected by a veth pair with all offloads, so that processors are all that limits the hosts.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from experiments.bench.host_pair import HOST, PEER, PEER_NETNS, SECONDS, TREE, iperf, join, run, tcp_figures
from experiments.bench.measuring import measured_in_lab, say
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.scatter.mcs import McsOptions
from sopa_ryu.agent.scatter.mcs_peers import Use
from sopa_ryu.agent.scatter.mcs_room import ROOM
from sopa_ryu.channel.mcs import ChannelKind
from topologies import Failures

ROUNDS = 5
LARGE_WRITE = "1M"
"""Of iperf3's 128 KB there remain, with MCS, 2 KB, which leave as a third burst; without it less than a packet, which TCP keeps."""
PUT_PACKET_NS, PUT_BURST_NS, TAKE_NS, LEAST_PERCENT = 600, 1000, 450, 88
"""Limits: the programs' time above that of an empty one; throughput by that without MCS."""
_RUN_TIME, _RUNS = re.compile(r"run_time_ns:\s+(\d+)"), re.compile(r"run_cnt:\s+(\d+)")


def measure() -> dict[str, Any]:
    """Measure both kinds of channels, in turn with a host without MCS.

    Returns:
        By setup, medians of the rounds: ``tcp_1_gbit`` and ``tcp_16_gbit`` of so many flows, ``cpu_1`` and ``cpu_16`` seconds
        of all processors per Gbit, ``tcp_1_large_gbit`` of one flow that writes `LARGE_WRITE` at a time; as ``*_percent`` the
        medians of the shares of the same round's baseline. The nanoseconds of the programs by the kernel's statistics
        (`bpf_enable_stats`), above those of an empty program at the same place: ``put_burst_ns`` and ``put_packet_ns`` at the
        sender's egress, ``ack_ns`` at the receiver's, ``take_ns`` at the receiver's ingress; ``stack_ns`` of the program that
        reserves room, per packet of both hosts.
    """
    build()
    return measured_in_lab(_measure)


def _measure() -> dict[str, Any]:
    join()
    setups = {"without": None, "paths": ChannelKind.PATHS, "ports": ChannelKind.PORTS}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in setups}
    for number in range(ROUNDS):
        for name, kind in setups.items():
            say(f"round {number + 1} of {ROUNDS}: {name}")
            with ExitStack() as stack:
                if kind is not None:
                    stack.enter_context(scattering(kind))
                rounds[name].append(tcp_figures() | {"tcp_1_large_gbit": _gbit_of_large_writes()})
    found: dict[str, Any] = {
        name: {figure: round(median(one[figure] for one in its), 3) for figure in its[0]}
        for name, its in rounds.items()
    }
    for name in ("paths", "ports"):
        pairs = list(zip(rounds[name], rounds["without"], strict=True))
        shares = {figure: median(100 * mine[figure] / other[figure] for mine, other in pairs) for figure in pairs[0][0]}
        found[f"{name}_percent"] = {figure: round(share, 1) for figure, share in shares.items()}
    limits = {"limit_percent": LEAST_PERCENT, "limit_put_packet_ns": PUT_PACKET_NS, "limit_put_burst_ns": PUT_BURST_NS}
    return {**found, **_times(), **limits, "limit_take_ns": TAKE_NS, "rounds": ROUNDS, "seconds": SECONDS}


def _gbit_of_large_writes() -> float:
    return float(iperf("-l", LARGE_WRITE)["end"]["sum_received"]["bits_per_second"]) / 1e9


@contextmanager
def scattering(kind: ChannelKind) -> Iterator[tuple[Labeller, Labeller]]:
    """Load and attach MCS at both ends, each of which knows that the other runs it."""
    with ExitStack() as stack:
        ends = []
        for ifname, netns, host, other in (("host0", None, HOST, PEER), ("peer0", PEER_NETNS, PEER, HOST)):
            end = stack.enter_context(Labeller(ifname, netns=netns, mcs=McsOptions(kind=kind)))
            end.swap(path_table(TREE, host, Failures(TREE), 1, Policy.ROUND_ROBIN))
            end.attach()
            assert end.mcs is not None
            end.mcs.note({TREE.ip(other): Use.SCATTERS})
            ends.append(end)
        yield ends[0], ends[1]


# -- the programs' time ---------------------------------------------------------------------------------------------------


def _times() -> dict[str, int]:
    found: dict[str, float] = {}
    empty = _empty_ns()
    with libbpf.enable_statistics():
        for packets in ("burst", "packet"):
            run(
                f"ethtool -K host0 tso {'on' if packets == 'burst' else 'off'} gso {'on' if packets == 'burst' else 'off'}"
            )
            with scattering(ChannelKind.PATHS) as (host, peer):
                iperf()
                found[f"put_{packets}_ns"] = _mean_ns(host.program_fd) - empty
                if packets == "burst":
                    continue
                assert peer.strip_fd is not None
                found["ack_ns"] = _mean_ns(peer.program_fd) - empty
                found["take_ns"] = _mean_ns(peer.strip_fd) - empty
                found["stack_ns"] = _mean_ns(ROOM.program_fd) * _runs(ROOM.program_fd) / _runs(host.program_fd)
    run("ethtool -K host0 tso on gso on")
    return {"empty_ns": round(empty)} | {name: round(took) for name, took in found.items()}


def _empty_ns() -> float:
    """Return the time of an empty program at the sender's egress, by the same statistics."""
    with libbpf.enable_statistics(), libbpf.Object(EMPTY) as program:
        ifindex, fd = socket.if_nametoindex("host0"), program.program_fd("empty")
        created = tc.create_clsact(ifindex)
        tc.attach(ifindex, fd, handle=1, priority=20, replace=False)
        try:
            iperf()
            return _mean_ns(fd)
        finally:
            tc.detach(ifindex, handle=1, priority=20)
            if created:
                tc.destroy_clsact(ifindex)


def _mean_ns(program: int) -> float:
    found = _RUN_TIME.search(Path(f"/proc/self/fdinfo/{program}").read_text())
    assert found is not None
    return int(found[1]) / max(1, _runs(program))


def _runs(program: int) -> int:
    found = _RUNS.search(Path(f"/proc/self/fdinfo/{program}").read_text())
    assert found is not None
    return int(found[1])
