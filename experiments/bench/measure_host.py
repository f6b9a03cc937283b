"""What a host loses by its agent: throughput, processor time, datagrams and requests a second, beside the same host without it.

Two network namespaces are connected by a veth pair, so that processors are all that limits the host. All connections use
CUBIC, by their route: a socket that was BBR's keeps BBR's pacing whatever it asks for. A veth pair merges packets at the
receiver (GRO) only where its sender has no TSO, so an agent whose bursts are cut has none either: on a real wire its packets
would be the same.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from experiments.bench.host_pair import HOST, PEER, PEER_NETNS, SECONDS, TREE, iperf, join, run, tcp_figures
from experiments.bench.measuring import measured_in_lab, say
from experiments.bench.switched import switched
from flowrules.label import Carrier
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from topologies import Failures

ROUNDS = 5
REQUEST_PORT = 5300
SMALL_BYTES = "64"


class Setup(NamedTuple):
    """How the host sends: with which agent, if with any, and with which offloads of its interface."""

    carrier: Carrier | None = None
    segments: int = 1
    offloads: str = "on"


SETUPS = {
    "offloads": Setup(),
    "no_segmentation": Setup(offloads="off"),
    "mac": Setup(Carrier.MAC),
    "option": Setup(Carrier.OPTION),
    "mac_4": Setup(Carrier.MAC, 4),
    "mac_16": Setup(Carrier.MAC, 16),
    "mac_44": Setup(Carrier.MAC, 44),
    "option_44": Setup(Carrier.OPTION, 44),
}
"""All offloads and no agent; no segmentation offload and no agent; an agent by its carrier and its --segments if more than one."""
BASELINES = {"mac": "no_segmentation", "option": "no_segmentation", "mac_44": "offloads", "option_44": "offloads"}


def measure() -> dict[str, Any]:
    """Measure all setups in turn, several rounds of them.

    Returns:
        By setup, medians of the rounds: ``tcp_1_gbit`` and ``tcp_16_gbit`` of so many flows, ``cpu_1`` and ``cpu_16`` seconds
        of all processors per Gbit, ``udp_kpps`` datagrams of 64 bytes a second in thousands, ``requests`` of one byte a second
        over TCP. As ``*_percent_of_*`` the medians of the shares that an agent has of the same round's baseline.
    """
    build()
    return measured_in_lab(_measure)


def _measure() -> dict[str, Any]:
    join()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SETUPS}
    for number in range(ROUNDS):
        for name, setup in SETUPS.items():
            say(f"round {number + 1} of {ROUNDS}: {name}")
            with _set_up(setup):
                rounds[name].append(_figures())
    found: dict[str, Any] = {name: _medians(its) for name, its in rounds.items()}
    for name, baseline in BASELINES.items():
        shares = [
            {figure: 100 * mine[figure] / other[figure] for figure in mine}
            for mine, other in zip(rounds[name], rounds[baseline], strict=True)
        ]
        found[f"{name}_percent_of_{baseline}"] = _medians(shares)
    return {**found, "rounds": ROUNDS, "seconds": SECONDS}


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {figure: round(median(one[figure] for one in rounds), 3) for figure in rounds[0]}


@contextmanager
def _set_up(setup: Setup) -> Iterator[None]:
    packets = setup.offloads == "off" or (setup.carrier is not None and setup.segments == 1)
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
                labeller.swap(path_table(TREE, HOST, Failures(TREE), 1, Policy.ROUND_ROBIN))
                labeller.attach()
        stack.enter_context(switched("host0"))  # without an agent, too: the wire is the same
        yield


def _figures() -> dict[str, float]:
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
