"""Agents with the policy ``cfr`` and an arbiter: when the gate is closed, and hints. Slots: tests/timing/test_granted_slots.py."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from sopa_ryu.agent.hint_client import hint, tell
from sopa_ryu.agent.hint_protocol import Hint, HintError, Refusal
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.channel.slots import Grant, read_demand, write_grant
from tests.helpers.cfr_fabric import Fabric, cfr_fabric, flows
from tests.helpers.rack import RECEIVER, SENDERS, Rack
from tests.helpers.slot_arbiter import SLOT_NS, SlotArbiter
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies.lab.standstill import standing_still

LEASE_MS = 100
SIZE, NOBODY = 30_000, 65534
SKEW_NS = 123_456_789_000


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with cfr_fabric(tmp_path) as made:
        yield made


@pytest.fixture
def path() -> Iterator[Path]:
    """Of the hints' socket: other users cannot reach the tests' directories."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "hints"


def forge(fabric: Fabric, arbiter: socket.socket) -> None:
    """Give the agent grants that are malformed, have no right token, or are for the other host."""
    arbiter.bind(("127.0.0.1", fabric.arbiter_port))
    arbiter.settimeout(PATIENCE_SECONDS)
    data, address = arbiter.recvfrom(2048)
    demand, now = read_demand(data, ""), time.monotonic_ns()
    its = Grant(demand.host, 1, 1, SLOT_NS, 60_000, now // SLOT_NS + 8, 4, demand.sent_at, now, now, ())
    other = IPv4Address(next(sender for sender in SENDERS if IPv4Address(sender) != demand.host))
    for sent in (b"", b"SA", write_grant(its, "")[:-1], data, write_grant(its, "of another host")):
        arbiter.sendto(sent, address)
    arbiter.sendto(write_grant(its._replace(host=other), ""), address)


def test_the_gate_is_closed_while_an_arbiter_grants_and_open_otherwise(fabric: Fabric) -> None:
    def rejected(reason: str) -> float:
        return sum(fabric.metrics(rf'rejected_datagrams_total{{.*reason="{reason}"}}'))

    def clocks() -> list[bool]:
        names = ("clock_offset_seconds{.*}", "round_trip_seconds{.*}")
        return [abs(offset - SKEW_NS / 1e9) < trip for offset, trip in zip(*map(fabric.metrics, names), strict=True)]

    with fabric.agent() as agent, fabric.streams() as streams:
        assert {its["policy"] for its in fabric.controller.agents()} == {"cfr"}
        flows(streams)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
            forge(fabric, nobody)
            eventually(lambda: [rejected(reason) for reason in ("malformed", "token", "host")], [3.0, 2.0, 1.0])
        assert fabric.closed() == [0.0, 0.0]
        flows(streams)
        with SlotArbiter(fabric.arbiter_port, skew_ns=SKEW_NS, lease_ms=LEASE_MS):
            eventually(fabric.closed, [1.0, 1.0])
            flows(streams)
            eventually(clocks, [True, True])
            eventually(fabric.log, Containing("paths in use are probed as long as all probes are at most"))
        eventually(fabric.closed, [0.0, 0.0])
        flows(streams)
        eventually(fabric.log, Containing("the gate is open, and data is labelled round-robin until it answers"))
        eventually(fabric.log, Containing("no slots: paths in use are probed at the full rate"))
        assert "eth0 does not have the qdisc fq (bfifo)" in fabric.log()
        assert fabric.metrics("departure_times{.*}") == [0.0, 0.0]
        behind = -time.monotonic_ns() // 2
        with SlotArbiter(fabric.arbiter_port, term=2, lease_ms=LEASE_MS, skew_ns=behind, loses=5) as arbiter:
            eventually(lambda: fabric.metrics("term{.*}"), [2.0, 2.0])
            flows(streams)
            arbiter.term = 1  # another one, which has been replaced
            eventually(lambda: min(fabric.metrics('rejected_datagrams_total{.*reason="term"}')) > 0)
        flows(streams)
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
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


def as_user(user: int, path: Path, its: Hint) -> Refusal | None:
    """Give a hint as another user; return the reason why it is refused."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setuid(user)
            tell(path, its)
        except HintError as error:
            os.write(writes, error.reason.encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as said:
        text = said.read()
    os.waitpid(child, 0)
    return Refusal(text) if text else None


class Application:
    """A connection of the first sender over which the test sends."""

    def __init__(self, rack: Rack, closing: ExitStack) -> None:
        with inside(rack.path(RECEIVER)):
            self._server = closing.enter_context(socket.create_server((RECEIVER, 0)))
        with inside(rack.path(SENDERS[0])):
            self.socket = closing.enter_context(socket.create_connection(self._server.getsockname(), PATIENCE_SECONDS))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SIZE)
        self.end = closing.enter_context(self._server.accept()[0])
        self.end.settimeout(PATIENCE_SECONDS)
        self.send(5)  # the first packet of a connection passes in any case

    def queued(self) -> int:
        """What the kernel holds of it."""
        return int(struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0])

    def send(self, size: int) -> None:
        arrived = 0
        self.socket.sendall(bytes(size))
        while arrived < size:
            arrived += len(self.end.recv(1 << 16))


def test_slots_are_granted_before_the_data_that_a_hint_announces_is_written(fabric: Fabric, path: Path) -> None:
    def metric(name: str, label: str = "") -> float:
        return sum(fabric.metrics(rf"{name}{{.*{label}}}"))

    with ExitStack() as closing:
        arbiter = closing.enter_context(SlotArbiter(fabric.arbiter_port, lease_ms=10_000))
        agent = closing.enter_context(fabric.agent(f"--hints={path}", senders=SENDERS[:1]))
        eventually(fabric.closed, [1.0])
        application = Application(fabric.rack, closing)
        application.send(SIZE)
        eventually(application.queued, 0)
        before = len(arbiter.granted)
        assert hint(application.socket, SIZE, within_ms=60_000, path=path) == SIZE
        eventually(lambda: len(arbiter.granted), lambda found: found >= before + 4)
        assert application.queued() == 0  # nothing was written yet
        assert metric("hinted_bytes") == SIZE
        application.send(SIZE)
        eventually(lambda: metric("hints_total", 'outcome="used"'), 1.0)
        assert metric("hinted_bytes") == 0

        its = Hint(
            IPv4Address(RECEIVER), application.socket.getpeername()[1], application.socket.getsockname()[1], SIZE
        )
        assert as_user(NOBODY, path, its) is Refusal.USER
        assert as_user(NOBODY, path, its._replace(port=1)) is Refusal.CONNECTION
        application.socket.close()
        assert metric("refused_hints_total", 'reason="user"') == 1
        agent.stop(signal.SIGKILL)
        assert path.is_socket()
        closing.enter_context(fabric.agent(f"--hints={path}", senders=SENDERS[:1]))
        eventually(fabric.closed, [1.0])
        assert hint(Application(fabric.rack, closing).socket, 1 << 40, path=path) <= 1 << 40
        assert metric("hints_total", 'outcome="accepted"') == 1
    assert not path.exists()
