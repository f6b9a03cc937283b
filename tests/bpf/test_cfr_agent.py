"""Agents with the policy ``cfr`` and an arbiter: two hosts send to a third one by real TCP, over links of 4 Mbit/s."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from experiments.emulation.processes import AgentProcess, free_ports
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.channel.slots import Grant, read_demand, write_grant
from tests.helpers.channel_server import ChannelServer, channel_server
from tests.helpers.frames import word_of
from tests.helpers.rack import RECEIVER, SENDERS, Rack
from tests.helpers.slot_arbiter import SLOT_NS, Slot, SlotArbiter
from tests.helpers.veth import ALL, raw_socket
from tests.helpers.waiting import SLOWER, Containing, eventually
from topologies.lab.standstill import standing_still

LEASE_MS = 100
SO_TIMESTAMPNS = 35
EDGE_NS = 600_000
CLOCK_NS = 200_000
"""Hosts may know the arbiter's clock so well."""


class Arrival(NamedTuple):
    """A packet with TCP data to the receiver, as it left its host."""

    at: int
    source: IPv4Address
    sequence: int
    label: tuple[int, int] | None


def realtime() -> int:
    """Return how far the clock of a packet socket's timestamps is ahead of the monotonic one."""
    tries = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(50)]
    before, between, after = min(tries, key=lambda its: its[2] - its[0])
    return between - (before + after) // 2


class Wire:
    """What the switch gets of the senders' data."""

    def __init__(self, rack: Rack) -> None:
        self.arrivals: list[Arrival] = []
        self._realtime = realtime()
        self._sockets = [raw_socket(f"/run/netns/{rack.switch}", f"port{n}", ALL) for n in range(len(SENDERS))]
        self._threads = [threading.Thread(target=self._listen, args=[each], daemon=True) for each in self._sockets]
        self._done = threading.Event()
        for each in self._sockets:
            each.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            each.settimeout(0.1)
        for thread in self._threads:
            thread.start()

    def _listen(self, its: socket.socket) -> None:
        while not self._done.is_set():
            try:
                frame, ancillary, _, address = its.recvmsg(2048, 256)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00" or frame[23] != 6:
                continue
            header = 34 + (frame[46] >> 4) * 4
            if 14 + int.from_bytes(frame[16:18], "big") > header:
                seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                at = seconds * 10**9 + nanoseconds - self._realtime
                sequence = int.from_bytes(frame[38:42], "big")
                self.arrivals.append(Arrival(at, IPv4Address(frame[26:30]), sequence, word_of(frame)))

    def close(self) -> None:
        self._done.set()
        for thread, its in zip(self._threads, self._sockets, strict=True):
            thread.join()
            its.close()


class Stream:
    """A connection on which a host sends as fast as TCP lets it."""

    def __init__(self, rack: Rack, source: str, port: int) -> None:
        self.received = 0
        with inside(rack.path(RECEIVER)):
            server = socket.create_server((RECEIVER, port))
        with inside(rack.path(source)):
            self.client = socket.create_connection((RECEIVER, port), 10)
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        self._accepted, _ = server.accept()
        server.close()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        self.client.settimeout(0.2)
        while not self._done.is_set():
            try:
                self.client.send(bytes(16384))
            except TimeoutError:
                continue
        self.client.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        while piece := self._accepted.recv(1 << 20):
            self.received += len(piece)

    def close(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        self.client.close()
        self._accepted.close()


class Fabric:
    """The hosts, a controller, and the senders' agent, which is one process."""

    def __init__(self, rack: Rack, controller: ChannelServer, directory: Path) -> None:
        self.rack, self.controller, self._directory = rack, controller, directory
        self.metrics_port, self.arbiter_port = free_ports(2)

    @contextmanager
    def agent(self, *options: str) -> Iterator[AgentProcess]:
        log = self._directory / "agent.log"
        log.touch()
        interfaces = [f"eth0@{self.rack.path(its)}" for its in SENDERS]
        every = [f"--state-dir={self._directory / 'state'}", "--policy=cfr", f"--metrics-port={self.metrics_port}"]
        with AgentProcess(
            interfaces, self.controller.url, log, [*every, f"--arbiter=127.0.0.1:{self.arbiter_port}", *options]
        ) as its:
            eventually(self.controller.acknowledged, len(SENDERS))
            yield its

    def log(self) -> str:
        return (self._directory / "agent.log").read_text()

    def metrics(self, name: str) -> list[float]:
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        return [float(each) for each in re.findall(rf"^sopa_agent_cfr_{name} (\S+)$", text, re.MULTILINE)]

    def closed(self) -> list[float]:
        return self.metrics(r"gate_closed{.*}")

    @contextmanager
    def streams(self) -> Iterator[list[Stream]]:
        with ExitStack() as closing:
            its = [Stream(self.rack, source, 5001 + n) for n, source in enumerate(SENDERS)]
            for each in its:
                closing.callback(each.close)
            yield its


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    rack = Rack()
    with ExitStack() as stack, channel_server() as controller:
        stack.callback(rack.remove)
        rack.build()
        yield Fabric(rack, controller, tmp_path)


def flows(streams: list[Stream], size: int = 30_000) -> None:
    """Wait until all streams make progress from now on."""
    targets = [its.received + size for its in streams]
    eventually(lambda: all(its.received >= target for its, target in zip(streams, targets, strict=True)))


class Kept(NamedTuple):
    """How slots were kept, by the arbiter's clock: how late packets in slots of their host and path were, and how many others."""

    late: list[int]
    elsewhere: int


def judge(wire: Wire, arbiter: SlotArbiter, clock_ns: int = CLOCK_NS) -> Kept:
    late = []
    for its in wire.arrivals:
        slot, into = divmod(its.at + arbiter.skew_ns + clock_ns, arbiter.slot_ns)
        if arbiter.granted.get((slot, its.source)) == Slot(its.source, IPv4Address(RECEIVER), its.label):
            late.append(into - clock_ns)
    return Kept(sorted(late), len(wire.arrivals) - len(late))


def test_data_leaves_in_granted_slots_on_their_paths(fabric: Fabric) -> None:
    with (
        SlotArbiter(fabric.arbiter_port, skew_ns=123_456_789_000, lease_ms=2000) as arbiter,
        fabric.agent(),
        fabric.streams() as streams,
    ):
        eventually(fabric.closed, [1.0, 1.0])
        assert {agent["policy"] for agent in fabric.controller.agents()} == {"cfr"}
        flows(streams)
        before, begin, queues = [its.received for its in streams], time.monotonic(), []
        wire = Wire(fabric.rack)
        while time.monotonic() - begin < 3:
            queues.append(fabric.rack.queue())
        mbit = [
            8 * (its.received - was) / (time.monotonic() - begin) / 1e6
            for its, was in zip(streams, before, strict=True)
        ]
        wire.close()
        late, elsewhere = judge(wire, arbiter)
        p99 = late[len(late) * 99 // 100]
        print(
            f"{sum(mbit):.2f} Mbit/s; late by {late[len(late) // 2] / 1e3:.0f}, p99 {p99 / 1e3:.0f} us; {elsewhere} elsewhere"
        )
        assert p99 < SLOWER * (EDGE_NS + CLOCK_NS)
        assert elsewhere <= len(late) // 50  # a busy machine delays packets that have passed the gate
        assert sorted(queues)[len(queues) * 99 // 100] <= 2
        assert min(mbit) > 0.8
        assert fabric.rack.retransmitted() == 0
        for end in ("offset", "round_trip"):
            assert fabric.metrics(f"(?:clock_)?{end}_seconds{{.*}}")
        assert [round(its, 3) for its in fabric.metrics("clock_offset_seconds{.*}")] == [123.457] * 2
        assert fabric.metrics("departure_times{.*}") == [0.0, 0.0]
        assert "eth0 does not have the qdisc fq (bfifo)" in fabric.log()
        paced = re.findall(
            r"slots bear (\S+) Mbit/s: paths in use are probed as long as all probes are at most (\S+)", fabric.log()
        )
        assert [2 < float(mbit) <= 4 and 10 < float(most) < 25 for mbit, most in paced] == [
            True,
            True,
        ]  # 1% of 4 Mbit/s


def test_a_silent_arbiter_opens_the_gate_and_closes_it_when_it_is_back(fabric: Fabric) -> None:
    with fabric.agent() as agent, fabric.streams() as streams:
        flows(streams)
        assert fabric.closed() == [0.0, 0.0]
        with SlotArbiter(fabric.arbiter_port, lease_ms=LEASE_MS):
            eventually(fabric.closed, [1.0, 1.0])
            flows(streams)
        eventually(fabric.closed, [0.0, 0.0], seconds=100 * LEASE_MS / 1000 * SLOWER)
        flows(streams)
        eventually(fabric.log, Containing("the gate is open, and data is labelled round-robin until it answers"))
        eventually(fabric.log, Containing("no slots: paths in use are probed at the full rate"))
        behind = -time.monotonic_ns() // 2
        with SlotArbiter(fabric.arbiter_port, term=2, lease_ms=LEASE_MS, skew_ns=behind, loses=5) as arbiter:
            eventually(lambda: fabric.metrics("term{.*}"), [2.0, 2.0])
            flows(streams)
            arbiter.term = 1  # another one, which has been replaced
            eventually(lambda: min(fabric.metrics('rejected_datagrams_total{.*reason="term"}')) > 0)
        flows(streams)
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        flows(streams)


def test_forged_and_malformed_grants_are_counted_and_close_nothing(fabric: Fabric) -> None:
    def rejected(reason: str) -> float:
        return sum(fabric.metrics(rf'rejected_datagrams_total{{.*reason="{reason}"}}'))

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as arbiter, fabric.agent(), fabric.streams() as streams:
        arbiter.bind(("127.0.0.1", fabric.arbiter_port))
        arbiter.settimeout(10)
        data, address = arbiter.recvfrom(2048)
        demand = read_demand(data, "")
        now = time.monotonic_ns()
        first = now // SLOT_NS + 8
        its = Grant(demand.host, 1, 1, SLOT_NS, 60_000, first, 4, demand.sent_at, now, now, ())
        for sent in (b"", b"SA", write_grant(its, "")[:-1], data):
            arbiter.sendto(sent, address)
        arbiter.sendto(write_grant(its, "of another host"), address)
        other = IPv4Address(next(sender for sender in SENDERS if IPv4Address(sender) != demand.host))
        arbiter.sendto(write_grant(its._replace(host=other), ""), address)
        eventually(lambda: [rejected(reason) for reason in ("malformed", "token", "host")], [3.0, 2.0, 1.0])
        assert fabric.closed() == [0.0, 0.0]
        flows(streams)


def test_an_agent_that_stops_or_is_killed_leaves_nothing_closed(fabric: Fabric) -> None:
    def limits() -> list[int]:
        shown = [json.loads(fabric.rack.on(its, "ip -d -j link show eth0")) for its in SENDERS]
        return [link["gso_max_segs"] for [link] in shown]

    before = limits()
    with SlotArbiter(fabric.arbiter_port, lease_ms=LEASE_MS):
        with fabric.agent() as agent, fabric.streams() as streams:
            eventually(fabric.closed, [1.0, 1.0])
            assert limits() == [1, 1]
            with standing_still(agent.pid):
                flows(streams)  # the programs go by the lease, whatever the agent does
            eventually(fabric.closed, [1.0, 1.0])
            agent.stop(signal.SIGKILL)
            flows(streams)
        with fabric.agent() as agent:
            eventually(fabric.closed, [1.0, 1.0])
            assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert limits() == before
