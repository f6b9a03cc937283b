"""Agents with the policy ``mcs`` at both ends of a veth pair: connections before, while and after they are there, or are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.emulation.processes import AgentProcess, free_ports
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.channel_server import ChannelServer, channel_server
from tests.helpers.frames import INTER_POD, word_of
from tests.helpers.scrape import scrape
from tests.helpers.sock_ops import detach, program_of
from tests.helpers.veth import ALL, PEER_ADDRESS, Pair, frames, raw_socket, transfer
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies.lab.standstill import standing_still

HOST_ADDRESS = "10.0.0.2"
SCATTERED, KIND = 0x08, 253
FILTERS = ["sopa_mcs", "sopa_mcs_in", "sopa_probe"]


class Mco(NamedTuple):
    channel: int
    source_port: int
    label: tuple[int, int] | None


def option_of(frame: bytes) -> bytes | None:
    """The last 16 bytes of a TCP header, if they are an MCO or room for one."""
    header = 14 + 20 + (frame[46] >> 4) * 4
    last = frame[header - 16 : header]
    return last if last[:2] == bytes([KIND, 16]) else None


def mcos(captured: list[bytes], source: str) -> list[Mco]:
    """What the packets from a host have that carry an MCO."""
    found = []
    for frame in captured:
        option = option_of(frame)
        if frame[26:30] == socket.inet_aton(source) and frame[46] & SCATTERED and option:
            assert option[7] >> 4 == 1
            found.append(Mco(option[7] & 15, int.from_bytes(frame[34:36], "big"), word_of(frame)))
    return found


class Ends:
    """Both ends of the pair, whose addresses are hosts of a k=4 fabric, and their agents."""

    def __init__(self, pair: Pair, controller: ChannelServer, directory: Path) -> None:
        self.pair, self.controller, self._directory = pair, controller, directory
        self.ports = dict(zip(("host", "peer"), free_ports(2), strict=True))

    def agent(self, end: str, *options: str, policy: str = "mcs", further: tuple[str, ...] = ()) -> AgentProcess:
        every = [f"--state-dir={self._directory / end}", f"--policy={policy}", f"--metrics-port={self.ports[end]}"]
        self.log(end).touch()
        return AgentProcess([self.interface(end), *further], self.controller.url, self.log(end), [*every, *options])

    def interface(self, end: str) -> str:
        return f"{end}0@{ {'host': self.pair.host, 'peer': self.pair.peer}[end] }"

    def log(self, end: str) -> Path:
        return self._directory / f"{end}.log"

    def metric(self, end: str, name: str) -> float:
        """The sum of the samples whose name, or name with labels, begins so."""
        found = re.findall(rf"^sopa_agent_{name}[,}}]?.*? (\S+)$", scrape(self.ports[end]), re.MULTILINE)
        return sum(map(float, found))

    def packets(self, end: str, outcome: str) -> float:
        return self.metric(end, f'mcs_packets_total{{.*outcome="{outcome}"')

    @contextmanager
    def at_work(self, *options: str) -> Iterator[tuple[AgentProcess, AgentProcess]]:
        with self.agent("host", *options) as one, self.agent("peer", *options) as other:
            for end in self.ports:
                self.wait_for_hosts(end, 1)
            yield one, other

    def wait_for_hosts(self, end: str, count: int) -> None:
        eventually(lambda: self.metric(end, "mcs_hosts"), count)

    def state(self, end: str = "host") -> list[str]:
        run = {"host": self.pair.on_host, "peer": self.pair.on_peer}[end]
        [link] = json.loads(run(f"ip -d -j link show {end}0"))
        shows = ("sysctl net.ipv4.tcp_reordering net.ipv4.tcp_min_rtt_wlen", f"tc qdisc show dev {end}0", "ip -o link")
        return [str(link["gso_max_segs"]), *map(run, shows)]

    def filters(self, end: str) -> list[str]:
        run = {"host": self.pair.on_host, "peer": self.pair.on_peer}[end]
        shown = "".join(run(f"tc filter show dev {end}0 {side}") for side in ("ingress", "egress"))
        return re.findall(r"(sopa_\w+):\[", shown)

    def sent(self, size: int = 200_000) -> list[bytes]:
        """Transfer data over a connection of its own; return what was on the wire, as the peer's end saw it."""
        data = os.urandom(size)
        with raw_socket(self.pair.peer, "peer0", ALL) as capture:
            assert transfer(self.pair, data, pieces=20) == data
            return [frame for frame in frames(capture) if frame[12:14] == b"\x08\x00" and frame[23] == 6]


@pytest.fixture
def ends(pair: Pair, tmp_path: Path) -> Iterator[Ends]:
    with channel_server() as controller:
        yield Ends(pair, controller, tmp_path)


class Stream:
    """A connection on which data flows from the host until it is closed, and what arrives at the peer."""

    def __init__(self, pair: Pair) -> None:
        self._sent = self.received = 0
        self._done = threading.Event()
        with inside(pair.peer):
            self._server = socket.create_server((PEER_ADDRESS, 5002))
        with inside(pair.host):
            self._client = socket.create_connection((PEER_ADDRESS, 5002), PATIENCE_SECONDS)
        self._accepted, _ = self._server.accept()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        piece = bytes(8000)
        while not self._done.is_set():
            self._client.sendall(piece)
            self._sent += len(piece)
            self._done.wait(0.002)
        self._client.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        while piece := self._accepted.recv(1 << 20):
            self.received += len(piece)

    def flows(self) -> None:
        """Wait until data arrives that is sent from now on."""
        target = self._sent + 100_000
        eventually(lambda: self.received >= target)

    def close(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        for each in (self._client, self._accepted, self._server):
            each.close()
        assert self.received == self._sent


@contextmanager
def stream(pair: Pair) -> Iterator[Stream]:
    its = Stream(pair)
    try:
        yield its
    finally:
        its.close()


def test_the_program_at_the_sockets_is_put_back_and_nothing_is_left_of_it(ends: Ends) -> None:
    """What two agents scatter: tests/lab/test_agents.py."""
    before = ends.state()
    with ends.at_work() as (one, other):
        detached = program_of(ends.pair.host)
        assert detached is not None
        with standing_still(one.pid):  # or it may have attached it again before the connection is made
            detach(detached)
            assert not any(map(option_of, ends.sent()))
        eventually(lambda: program_of(ends.pair.host), detached)
        assert mcos(ends.sent(), HOST_ADDRESS)
        eventually(ends.log("host").read_text, Containing("put right"))
        for agent in (one, other):
            assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert ends.state() == before
    assert not any(map(option_of, ends.sent()))


@pytest.mark.parametrize("kind", ["paths", "ports"])
def test_connections_survive_a_killed_agent_and_its_successor_scatters_again(ends: Ends, kind: str) -> None:
    """And the end of the other host's agent, after which, by ports, nothing is scattered any more."""
    before = ends.state()
    options = f"--channel-kind={kind}", "--channels=4"
    with ends.at_work(*options) as (one, other):
        seen = mcos(ends.sent(), HOST_ADDRESS)
        first = max(mco.source_port for mco in seen)
        if kind == "ports":
            assert {(mco.channel, mco.source_port) for mco in seen} == {(c, first - c) for c in range(4)}
            assert {mco.label for mco in seen} == {None}
        else:
            assert {mco.label for mco in seen} == set(INTER_POD)
        with stream(ends.pair) as flow:
            survive(ends, flow, one, other, options)
    assert ends.state() == before


def survive(ends: Ends, flow: Stream, one: AgentProcess, other: AgentProcess, options: tuple[str, ...]) -> None:
    flow.flows()
    one.stop(signal.SIGKILL)
    flow.flows()
    assert sorted(ends.filters("host")) == FILTERS
    scattered = ends.packets("peer", "mco_taken")
    flow.flows()
    assert ends.packets("peer", "mco_taken") == scattered  # nothing leaves room any more
    with ends.agent("host", *options) as successor:
        for end in ends.ports:
            ends.wait_for_hosts(end, 1)
        eventually(lambda: ends.packets("host", "scattered") > 100)
        eventually(lambda: ends.packets("peer", "mco_taken") > scattered)
        flow.flows()
        assert other.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        assert ends.filters("peer") == []
        flow.flows()
        if "--channel-kind=ports" in options:  # by paths a host that is gone is listed for a minute
            ends.wait_for_hosts("host", 0)
            flow.flows()
            scattered = ends.packets("host", "scattered")
            flow.flows()
            assert ends.packets("host", "scattered") == scattered
        assert successor.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    flow.flows()


def test_mcs_takes_the_place_of_a_killed_agent_of_another_policy_and_puts_its_settings_back(ends: Ends) -> None:
    before = ends.state()
    with ends.agent("host", policy="round-robin") as killed:
        eventually(ends.controller.acknowledged, 1)
        killed.stop(signal.SIGKILL)
    assert sorted(ends.filters("host")) == ["sopa_egress", "sopa_probe"]
    with ends.agent("host") as agent:
        eventually(lambda: sorted(ends.filters("host")), FILTERS)
        assert [item for item in ends.state() if "clsact" not in item] == [before[0], before[1], before[3]]
        agent.stop(signal.SIGKILL)
    with ends.agent("host", policy="round-robin") as last:
        eventually(lambda: sorted(ends.filters("host")), ["sopa_egress", "sopa_probe"])
        last.stop(signal.SIGTERM)
    assert ends.state() == before


def test_hosts_go_on_scattering_while_the_controller_restarts(pair: Pair, tmp_path: Path) -> None:
    [port] = free_ports(1)
    with ExitStack() as first, ExitStack() as later:
        ends = Ends(pair, first.enter_context(channel_server(port)), tmp_path)
        with ends.at_work(), stream(pair) as flow:
            flow.flows()
            first.close()
            eventually(lambda: ends.metric("host", "connected"), 0)
            scattered = ends.packets("host", "scattered")
            flow.flows()
            assert ends.packets("host", "scattered") > scattered
            again = later.enter_context(channel_server(port, epoch=2))
            eventually(lambda: again.agents() and again.acknowledged(), 2)
            scattered = ends.packets("host", "scattered")
            flow.flows()
            assert ends.packets("host", "scattered") > scattered
            eventually(lambda: [ends.metric(end, "mcs_hosts") for end in ends.ports], [1, 1])
            assert [ends.packets(end, "mco_unknown") for end in ends.ports] == [0, 0]


def test_all_interfaces_of_a_process_have_one_program_at_the_machines_sockets(ends: Ends) -> None:
    """And only one in a network namespace, of that process or of another one."""
    ends.pair.on_host("ip link add other type veth peer name other-peer")
    for command in ("ip addr add 10.1.0.2/32 dev other", "ip link set other up", "ip link set other-peer up"):
        ends.pair.on_host(command)
    second, refusal = f"other@{ends.pair.host}", "another interface in this network namespace has --policy mcs"
    assert refusal in rejected(ends.agent("host", further=(second,)))
    assert ends.filters("host") == []
    assert program_of(ends.pair.host) is None
    with ends.agent("host", further=(ends.interface("peer"),)) as agent:
        ends.wait_for_hosts("host", 2)
        program = program_of(ends.pair.host)
        assert program is not None
        assert program_of(ends.pair.peer) == program
        assert {mco.channel for mco in mcos(ends.sent(), HOST_ADDRESS)} == set(range(8))
        options = ["--policy=mcs", f"--state-dir={ends.log('other').with_suffix('')}"]
        assert refusal in rejected(AgentProcess([second], ends.controller.url, ends.log("other"), options))
        assert sorted(ends.filters("host")) == FILTERS
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert program_of(ends.pair.host) is None
    assert not any(map(option_of, ends.sent()))


def rejected(agent: AgentProcess) -> str:
    done = subprocess.run(agent.command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    return done.stderr
