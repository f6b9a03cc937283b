"""What an agent costs a host: throughput, processor time, datagrams and requests a second, beside the same host without it.

Each bench has its arms between two hosts (`host_pair`), measured side by side in several rounds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.bench.frame import Figures, Results, in_lab, medians, percent_of, side_by_side, times
from experiments.bench.host_pair import HOST, PEER, PEER_NETNS, SECONDS, TREE, at_egress, iperf, join, run, switched, tcp_figures
from flowrules.label import Carrier
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_sets import PathSets, path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.scatter.mcs import McsOptions
from sopa_ryu.agent.scatter.mcs_peers import Use
from sopa_ryu.agent.scatter.mcs_room import ROOM
from sopa_ryu.channel.mcs import ChannelKind
from topologies import Failures

ROUNDS, HOST_ROUNDS = 5, times(3)
REQUEST_PORT = 5300
SMALL_BYTES = "64"


class Setup(NamedTuple):
    """How the host sends: with which agent, if with any, with which offloads of its interface, and in packets of how many bytes."""

    carrier: Carrier | None = None
    segments: int = 1
    offloads: str = "on"
    mtu: int = 1500


_EVERYWHERE = {
    "offloads": Setup(),
    "no_segmentation": Setup(offloads="off"),
    "mac": Setup(Carrier.MAC),
    "option": Setup(Carrier.OPTION),
    "id": Setup(Carrier.ID),
}
_MTUS = {"": 1500, "_mtu_4096": 4096, "_mtu_9000": 9000}
SETUPS = {
    "srv6": Setup(Carrier.SRV6),
    **{f"{name}{end}": setup._replace(mtu=mtu) for end, mtu in _MTUS.items() for name, setup in _EVERYWHERE.items()},
    **{f"mac_{segments}": Setup(Carrier.MAC, segments) for segments in (4, 16, 44)},
    "srv6_44": Setup(Carrier.SRV6, 44),
    "option_44": Setup(Carrier.OPTION, 44),
}
"""All offloads and no agent; no segmentation offload and no agent; an agent by its carrier and its --segments if more than one."""
_BASELINE = {"mac": "no_segmentation", "option": "no_segmentation", "id": "offloads"}
BASELINES = {f"{name}{end}": f"{baseline}{end}" for end in _MTUS for name, baseline in _BASELINE.items()}
BASELINES |= {"mac_44": "offloads", "option_44": "offloads", "srv6": "mac", "srv6_44": "mac_44"}

LARGE_WRITE = "1M"
"""Of iperf3's 128 KB there remain, with MCS, 2 KB, which leave as a third burst; without it less than a packet, which TCP keeps."""
PUT_PACKET_NS, PUT_BURST_NS, TAKE_NS, LEAST_PERCENT = 600, 1000, 450, 88
"""Limits: the programs' time above that of an empty one; throughput by that without MCS."""
_RUN_TIME, _RUNS = re.compile(r"run_time_ns:\s+(\d+)"), re.compile(r"run_cnt:\s+(\d+)")


# -- an agent's labels ----------------------------------------------------------------------------------------------------


@in_lab
def host() -> Results:
    """Measure all setups.

    Medians of the rounds: ``cpu_*`` seconds of all processors per Gbit, ``udp_kpps`` datagrams of 64 bytes a second in thousands,
    ``requests`` of one byte a second over TCP; ``*_percent_of_*`` of the shares that an agent has of the same round's baseline,
    and ``*_ipv6_percent_of_ipv4`` of what TCP has by IPv6 of what it has by IPv4 right before.
    """
    build()
    join()
    rounds = side_by_side(HOST_ROUNDS, {name: partial(_set_up, setup) for name, setup in SETUPS.items()}, _host_figures)
    results: Results = {name: medians(figures) for name, figures in rounds.items()}
    for name, baseline in BASELINES.items():
        results[f"{name}_percent_of_{baseline}"] = percent_of(rounds[name], rounds[baseline])
    arms = {name: partial(_set_up, SETUPS[name]) for name in ("no_segmentation", "mac")}
    for name, pairs in side_by_side(HOST_ROUNDS, arms, lambda: {family: tcp_figures(family) for family in TREE.families}).items():
        by_ipv4, by_ipv6 = ([pair[family] for pair in pairs] for family in TREE.families)
        results[f"{name}_ipv6"], results[f"{name}_ipv6_percent_of_ipv4"] = medians(by_ipv6), percent_of(by_ipv6, by_ipv4)
    return {**results, "rounds": HOST_ROUNDS, "seconds": SECONDS}


@contextmanager
def _set_up(setup: Setup) -> Iterator[None]:
    """Have a setup at the host.

    A veth pair merges packets at the receiver (GRO) only where its sender has no TSO, so an agent whose bursts are cut has none
    either: on a real wire its packets would be the same.
    """
    # the mtu is that of what hosts send; a wire of srv6 takes the outer header besides
    outer = Carrier.SRV6.overhead if setup.carrier is Carrier.SRV6 else 0
    for end in ("ip link set host0", "ip -n peer link set peer0"):
        run(f"{end} mtu {setup.mtu + outer}")
    packets = setup.offloads == "off" or (setup.carrier in (Carrier.MAC, Carrier.OPTION, Carrier.SRV6) and setup.segments == 1)
    run(f"ethtool -K host0 tso {'off' if packets else 'on'} gso {setup.offloads}")
    run("ip tcp_metrics flush")
    with ExitStack() as stack:
        if setup.carrier is not None:
            state = Path("/run/sopa-bench")
            settings = stack.enter_context(
                HostSettings("host0", state_dir=state, overhead=setup.carrier.overhead, segments=setup.segments)
            )
            labels = Labeller("host0", carrier=setup.carrier, fabric_mtu=settings.fabric_mtu, cut_by=settings.cut_by)
            strips = Labeller("peer0", carrier=setup.carrier, netns=PEER_NETNS)
            for labeller in (labels, strips) if setup.carrier is Carrier.OPTION else (labels,):
                stack.enter_context(labeller)
                table = PathSets(TREE, HOST, 1, Policy.ROUND_ROBIN, carrier=setup.carrier).follow(Failures(TREE))
                assert table is not None
                labeller.swap(table)
                labeller.attach()
        stack.enter_context(switched("host0"))  # without an agent, too: the wire is the same
        yield


def _host_figures() -> Figures:
    figures = tcp_figures()
    sent = iperf("-u", "-b", "0", "-l", SMALL_BYTES)["end"]["sum"]
    return figures | {"udp_kpps": sent["packets"] / sent["seconds"] / 1000, "requests": _requests()}


def _requests() -> float:
    """Return the requests of one byte a second, each after the answer to the one before."""
    with inside(PEER_NETNS):
        listener = socket.create_server((str(TREE.ip(PEER)), REQUEST_PORT))
    server = multiprocessing.get_context("fork").Process(target=_answer, args=(listener,))
    server.start()
    listener.close()
    count = 0
    with socket.create_connection((str(TREE.ip(PEER)), REQUEST_PORT)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.monotonic()
        while (took := time.monotonic() - started) < SECONDS:
            client.send(b"?")
            client.recv(1)
            count += 1
    server.join()
    return count / took


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, contextlib.suppress(ConnectionError):
        while connection.recv(1):
            connection.send(b"!")


# -- Multi-Channel Scatter ------------------------------------------------------------------------------------------------


@in_lab
def mcs() -> Results:
    """Measure both kinds of channels beside a host without MCS, with all offloads.

    Medians of the rounds: figures as of `host`, and ``tcp_1_large_gbit`` of one flow that writes `LARGE_WRITE` at a time. The
    nanoseconds of the programs by the kernel's statistics (`bpf_enable_stats`), above those of an empty program at the same place:
    ``put_*_ns`` at the sender's egress, ``ack_ns`` at the receiver's, ``take_ns`` at the receiver's ingress; ``stack_ns`` of the
    program that reserves room, per packet of both hosts.
    """
    build()
    join()
    arms: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "without": nullcontext,
        "paths": partial(scattering, ChannelKind.PATHS),
        "ports": partial(scattering, ChannelKind.PORTS),
    }
    rounds = side_by_side(ROUNDS, arms, lambda: tcp_figures() | {"tcp_1_large_gbit": _gbit_of_large_writes()})
    return {
        **{name: medians(figures) for name, figures in rounds.items()},
        **{f"{name}_percent": percent_of(rounds[name], rounds["without"], 1) for name in ("paths", "ports")},
        **_times(),
        "limit_percent": LEAST_PERCENT,
        "limit_put_packet_ns": PUT_PACKET_NS,
        "limit_put_burst_ns": PUT_BURST_NS,
        "limit_take_ns": TAKE_NS,
        "rounds": ROUNDS,
        "seconds": SECONDS,
    }


def _gbit_of_large_writes() -> float:
    return float(iperf("-l", LARGE_WRITE)["end"]["sum_received"]["bits_per_second"]) / 1e9


@contextmanager
def scattering(kind: ChannelKind) -> Iterator[tuple[Labeller, Labeller]]:
    """Load and attach MCS at both ends, each of which knows that the other runs it."""
    with ExitStack() as stack:
        ends = []
        for ifname, netns, end, other in (("host0", None, HOST, PEER), ("peer0", PEER_NETNS, PEER, HOST)):
            labeller = stack.enter_context(Labeller(ifname, netns=netns, mcs=McsOptions(kind=kind)))
            labeller.swap(path_table(TREE, end, Failures(TREE), 1, Policy.ROUND_ROBIN))
            labeller.attach()
            assert labeller.mcs is not None
            labeller.mcs.note({TREE.ip(other): Use.SCATTERS})
            ends.append(labeller)
        yield ends[0], ends[1]


def _times() -> dict[str, int]:
    """Return the programs' time."""
    took: Figures = {}
    empty = _empty_ns()
    with libbpf.enable_statistics():
        for packets in ("burst", "packet"):
            offload = "on" if packets == "burst" else "off"
            run(f"ethtool -K host0 tso {offload} gso {offload}")
            with scattering(ChannelKind.PATHS) as (sender, receiver):
                iperf()
                took[f"put_{packets}_ns"] = _mean_ns(sender.program_fd) - empty
                if packets == "burst":
                    continue
                assert receiver.strip_fd is not None
                took["ack_ns"] = _mean_ns(receiver.program_fd) - empty
                took["take_ns"] = _mean_ns(receiver.strip_fd) - empty
                took["stack_ns"] = _statistic(_RUN_TIME, ROOM.program_fd) / _statistic(_RUNS, sender.program_fd)
    run("ethtool -K host0 tso on gso on")
    return {"empty_ns": round(empty)} | {name: round(ns) for name, ns in took.items()}


def _empty_ns() -> float:
    """Return the time of an empty program at the sender's egress, by the same statistics."""
    with libbpf.enable_statistics(), libbpf.Object(EMPTY) as program, at_egress("host0", program.program_fd("empty")):
        iperf()
        return _mean_ns(program.program_fd("empty"))


def _mean_ns(program: int) -> float:
    return _statistic(_RUN_TIME, program) / _statistic(_RUNS, program)


def _statistic(pattern: re.Pattern[str], program: int) -> int:
    match = pattern.search(Path(f"/proc/self/fdinfo/{program}").read_text())
    assert match is not None
    return max(1, int(match[1]))
