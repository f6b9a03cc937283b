"""CFR: its programs packet by packet, its iterators over sockets, and agents with an arbiter: when the gate is closed.

Slots that are kept: tests/timing/test_granted_slots.py.
"""

import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.own_traffic import SentAgain
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.slots.cfr_grants import Gate
from sopa_ryu.agent.slots.cfr_programs import CfrPrograms
from sopa_ryu.channel.slots import Grant, Granted, read_demand, write_grant
from tests.bpf.labelling import connection, with_ipv6
from tests.bpf.test_own_traffic import again, busy
from tests.helpers.cfr_fabric import SENDERS, Fabric, cfr_fabric, flows
from tests.helpers.frames import FAR, FAR6, HERE, INTER_POD, NEAR, PREFIX, SAME_RACK, ip, label_of, table
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.slot_arbiter import SLOT_NS as GRANTED_NS
from tests.helpers.slot_arbiter import SlotArbiter
from tests.helpers.veth import ALL, PEER_ADDRESS, Pair, frames, raw_socket
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies.lab.standstill import standing_still

SLOT_NS = 10**13
"""So long that a test does not notice that time passes: what decides is at least 0.005 of it away, which is 50 s."""
SO_SNDBUFFORCE = 32
NOW = 500_000
"""The slot that it is in tests."""
FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16}
ACK, PSH = FLAGS["ack"], FLAGS["psh"]
HEADERS = 20 + 20
ETHERNET, TIMESTAMPS = 14, 12
AHEAD = 0.05
"""Of a slot: how long before its begin data passes, where there are departure times."""
LABEL = (7, 9)
"""No path of the path table."""


def segment(payload: int = 1460, flags: int = ACK | PSH, seq: int = 1, **fields: Any) -> bytes:
    header = struct.pack("!HHIIBBHHH", 40000, 5001, seq, 1, 5 << 4, flags, 1000, 0, 0)
    return ip(header + bytes(payload), **fields)


def granted(slot: int, destination: str = FAR, budget: int = 3028) -> Granted:
    return Granted(slot, *LABEL, IPv4Address(destination), budget)


class Host(ExitStack):
    """The programs of one host, 10.0.0.2 at k=4, and the time that it is for them."""

    def __init__(self, *, every_socket: bool = True, netns: str | None = None) -> None:
        super().__init__()
        self.labeller = self.enter_context(Labeller("lo", carrier=Carrier.SRV6, cfr=True, fabric_mtu=1540, flows=64))
        self.carry(by_lists=False)
        self.programs = CfrPrograms(self.labeller._object, netns, every_socket=every_socket)
        self.callback(self.programs.close)
        self.set()

    def set(
        self,
        *, slot: int = NOW, into: float = 0.1, first: int = 0, lease: float = 1e6, late: float = 0.01,
        slot_ns: int = SLOT_NS, ahead: float = 0,
    ) -> None:  # fmt: skip
        """Make it that slot, of which the share `into` has passed; the lease lasts for so many seconds, data goes so far ahead."""
        now = time.monotonic_ns()
        offset = slot * slot_ns + int(into * slot_ns) - now
        self.gate = Gate(slot_ns, offset, now + int(lease * 1e9), first, int(late * slot_ns), int(ahead * slot_ns))
        self.programs.set_gate(IPv4Address(HERE), self.gate)

    def carry(self, *, by_lists: bool) -> None:
        """Put a path table of the carrier ``srv6`` in force, or of ``mac``."""
        self.labeller.swap(table()._replace(prefix=PREFIX, **({} if by_lists else {"srv6": None})))

    def departs(self, frame: bytes, tstamp: int = 0, gso_segments: int = 0) -> int | None:
        """Return the departure time of a frame that passes, None if it is held."""
        done = libbpf.run_program(self.programs.gate_fd, frame, gso_segments=gso_segments, tstamp=tstamp)
        return done.tstamp if done.retval else None

    def label(self, frame: bytes, tstamp: int | None = None) -> tuple[int, int] | None:
        done = libbpf.run_program(self.labeller.program_fd, frame, tstamp=tstamp)
        assert done.retval == 0xFFFFFFFF
        return label_of(done.data)

    def counts(self) -> dict[str, int]:
        found = self.labeller.counted.by_reason()
        every = (Handling.GRANTED, Handling.HELD, Handling.PASSED_IN_GUARD, Handling.GATE_OPEN)
        return {reason.name.lower(): found[reason] for reason in every if found[reason]}


@pytest.fixture
def host(objects: None) -> Iterator[Host]:
    with Host() as its:
        yield its


class Steps:
    """Steps of a script about the gate. Slots are told from `NOW` on; ``+3.5`` is the middle of the third one after it.

    ``lists`` has paths carried as lists of uSIDs. ``grant`` has slots granted, ``time`` makes it a time in a slot, for a gate
    with such settings. ``data`` says what becomes of a packet, maybe with flags and TCP's own departure time (``at``), ``label``
    which path it takes, ``sum`` what was used and sent.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.slots: set[int] = set()

    def handle(self, step: Step) -> str:
        return str(getattr(self, f"do_{step.command}")(step) or "")

    def do_lists(self, _step: Step) -> None:
        self.host.carry(by_lists=True)

    def do_grant(self, step: Step) -> None:
        up1, up2 = map(int, step.options.get("label", "7.9").split("."))
        slots = [NOW + int(word) for word in step.words]
        self.slots |= set(slots)
        budget, destination = int(step.options.get("budget", 3028)), IPv4Address(step.options.get("to", FAR))
        self.host.programs.grant(Granted(slot, up1, up2, destination, budget) for slot in slots)

    def do_time(self, step: Step) -> None:
        its = {name: float(value) for name, value in step.options.items()}
        slot, into = divmod(float(step.words[0]), 1)
        its["first"] = NOW + int(its["first"]) if "first" in its else 0
        self.host.set(slot=NOW + int(slot), into=into, **its)

    def do_never(self, _step: Step) -> None:
        """Set the gate as before the first grant."""
        self.host.programs.set_gate(IPv4Address(HERE), Gate(0, 0, 0, 0, 0))

    def do_forget(self, _step: Step) -> None:
        self.host.programs.forget()

    def do_data(self, step: Step) -> str:
        tstamp, rows = self._at(step), []
        for _ in range(int(step.options.get("times", 1))):
            left = self.host.departs(self._frame(step), tstamp, int(step.options.get("burst", 0)))
            if left is None:
                rows.append("held")
            elif left == tstamp:
                rows.append("passes")
            else:
                slot = round((left - self.host.gate.begin_of(NOW)) / SLOT_NS)
                assert left == self.host.gate.begin_of(NOW + slot)
                rows.append(f"waits for the begin of {slot:+}")
        return ", ".join(rows)

    def do_label(self, step: Step) -> str:
        found = {self.host.label(self._frame(step), self._at(step)) for _ in range(8)}
        if found == set(INTER_POD):
            return "all paths in turn"
        return " ".join(str(word and f"{word[0]}.{word[1]}") for word in found)

    def do_sum(self, _step: Step) -> str:
        used = ", ".join(f"{slot - NOW:+}: {self.host.programs.used(slot)}" for slot in sorted(self.slots))
        sent = self.host.programs.sent(map(IPv4Address, (FAR, NEAR)))
        counts = ", ".join(f"{name} {count}" for name, count in self.host.counts().items())
        return f"used {used}\nsent {', '.join(f'{to}: {size}' for to, size in sent.items()) or 'nothing'}\n{counts}"

    def _at(self, step: Step) -> int:
        at = step.options.get("at")
        if at is None:
            return 0
        # a slot is longer than a machine may have been up: what was due before that is as late as what was due just then
        return max(1, self.host.gate.begin_of(NOW) + round(float(at) * 1000) * (SLOT_NS // 1000))

    @staticmethod
    def _frame(step: Step) -> bytes:
        its = step.options
        flags = sum(FLAGS[word] for word in step.words) or ACK | PSH
        fields = {"src": its.get("from", HERE), "dst": its.get("to", FAR), "proto": int(its.get("protocol", 6))}
        fields |= {"fragment": int(its.get("fragment", "4000"), 16), "options": bytes.fromhex(its.get("options", ""))}
        frame = segment(int(its.get("size", 1460)), flags, **fields)
        return frame[:12] + bytes.fromhex(its.get("type", "0800")) + frame[14:]


@each_script(__file__, "gate")
def test_script(host: Host, script: Script) -> None:
    script.play(Steps(host).handle)


def test_processors_do_not_exceed_a_budget_together(host: Host) -> None:
    fits, tries = 70_000, 50_000
    one = segment(1)
    budget = fits * len(one) + len(one) - 1
    host.programs.grant([granted(NOW, budget=budget)])

    def send(processor: int) -> None:
        os.sched_setaffinity(0, {processor})
        libbpf.run_program(host.programs.gate_fd, one, repeat=tries)

    threads = [threading.Thread(target=send, args=[cpu]) for cpu in sorted(os.sched_getaffinity(os.getppid()))[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = host.counts()
    assert sum(counts.values()) == len(threads) * tries
    assert host.programs.used(NOW) == counts["granted"] * len(one) <= budget
    assert counts["granted"] == min(fits, len(threads) * tries)


def test_what_is_sent_again_counts_against_the_path_that_carried_it_granted_or_not(host: Host) -> None:
    one, two = 1, 1 + 1460
    host.programs.grant([granted(NOW)])
    assert host.label(segment(seq=one)) == LABEL
    assert busy(host.labeller) == [(2, 1)]
    host.set(slot=NOW + 1, into=0.02)  # no slot of its own
    other = host.label(segment(seq=two))
    assert other in INTER_POD
    assert again(host.labeller) == []
    host.set()
    host.label(segment(seq=one))
    host.label(segment(seq=two))
    assert again(host.labeller) == [SentAgain((2, 1), LABEL), SentAgain((2, 1), other)]
    busy(host.labeller)
    host.label(segment(dst=SAME_RACK))  # no choice of a path: there is none to leave
    assert busy(host.labeller) == []


class Gated(ExitStack):
    """A connection from a host whose gate is closed, over which nothing but its first packet has gone."""

    def __init__(self, pair: Pair, address: str = PEER_ADDRESS) -> None:
        super().__init__()
        self.address = address
        with_ipv6(pair)
        self.host = self.enter_context(Host(every_socket=False, netns=pair.host))
        self.host.set(slot_ns=10**9, into=0.0)
        self.host.programs.attach()
        self.client, self.end = self.enter_context(connection(pair, address))

    def arrived(self, end: socket.socket | None = None, flags: int = socket.MSG_PEEK) -> int:
        """How many bytes are there, without taking them."""
        try:
            return len((end or self.end).recv(1 << 20, flags | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0

    def run_sender(self, netns: str) -> None:
        with inside(netns):
            self.host.programs.sender.run(self.host.programs.sender.prepare())

    def tcp_info(self, at: int) -> int:
        found = self.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return int(struct.unpack_from("=I", found, at)[0])


@pytest.fixture
def gated(pair: Pair, request: pytest.FixtureRequest) -> Iterator[Gated]:
    with Gated(pair, getattr(request, "param", PEER_ADDRESS)) as its:
        yield its


@pytest.mark.parametrize("gated", [PEER_ADDRESS, FAR6], indirect=True)
def test_tcp_keeps_what_is_held_and_sends_it_in_the_slot(pair: Pair, gated: Gated) -> None:
    headers = HEADERS + 20 * (gated.address == FAR6)
    host, client, programs = gated.host, gated.client, gated.host.programs
    client.sendall(b"first")
    eventually(gated.arrived, 5)  # a connection's first packet does not wait
    assert host.counts() == {"passed_in_guard": 1}
    client.sendall(bytes(50_000))
    [unsent] = programs.unsent()
    mss = gated.tcp_info(16)
    packets = -(-50_000 // mss)
    assert unsent == (int(IPv4Address(PEER_ADDRESS)), 50_000 + packets * (ETHERNET + headers + TIMESTAMPS))
    assert gated.arrived() == 5
    window = gated.tcp_info(80)
    host.set()
    programs.grant([granted(NOW, PEER_ADDRESS, 1 << 20)])
    gated.run_sender(pair.host)
    eventually(gated.arrived, 50_005)
    assert programs.unsent() == []
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
    assert gated.tcp_info(80) >= window
    assert gated.tcp_info(100) == 0  # retransmissions
    programs.detach()
    programs.forget()
    client.sendall(bytes(1000))
    eventually(gated.arrived, 51_005)


def test_connections_to_one_host_share_its_slots(pair: Pair, gated: Gated) -> None:
    connections = [(gated.client, gated.end), *(gated.enter_context(connection(pair)) for _ in range(3))]
    for client, _ in connections:
        client.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 22)
        client.sendall(b"first")
        client.sendall(bytes(1_000_000))
    arrived = [0] * 4
    for slot in range(NOW, NOW + 24):
        gated.host.set(slot=slot)
        gated.host.programs.grant([granted(slot, PEER_ADDRESS, 80_000)])
        gated.run_sender(pair.host)
        arrived = [before + gated.arrived(end, 0) for before, (_, end) in zip(arrived, connections, strict=True)]
    assert sum(arrived) > 24 * 40_000
    assert min(arrived) > max(arrived) / 2, "some connections had most of the slots"


def test_other_destinations_and_namespaces_sockets_stay_as_they_are(pair: Pair, gated: Gated) -> None:
    """Nothing else has TCP send in the slot: no acknowledgement is due any more, and its timers run for minutes."""
    pair.on_host("ip route change 10.0.0.0/8 dev host0 rto_min 100s")
    gated.client, gated.end = gated.enter_context(connection(pair))
    gated.host.set()
    gated.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    gated.client.sendall(b"first")
    eventually(gated.arrived, 5)
    eventually(lambda: gated.tcp_info(24), 0)  # not acknowledged
    gated.client.sendall(bytes(3000))
    for destination, netns in ((NEAR, pair.host), (PEER_ADDRESS, pair.peer)):
        gated.host.programs.grant([granted(NOW, destination, 1 << 20)])
        gated.run_sender(netns)
        assert gated.arrived() == 5
    gated.end.sendall(b"not gated: another namespace's")
    eventually(lambda: gated.arrived(gated.client), 30)
    gated.run_sender(pair.host)
    eventually(gated.arrived, 3005)
    assert gated.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_what_tcp_sends_again_does_not_wait_for_a_slot(pair: Pair, gated: Gated) -> None:
    pair.on_peer(f"ip addr del {PEER_ADDRESS}/8 dev peer0")  # what is sent to it is lost
    gated.client.sendall(b"lost")
    eventually(lambda: gated.host.counts().get("passed_in_guard", 0) >= 3)
    assert "held" not in gated.host.counts()
    pair.on_peer(f"ip addr add {PEER_ADDRESS}/8 dev peer0")
    eventually(gated.arrived, 4)


@pytest.mark.parametrize(("address", "ends"), [(PEER_ADDRESS, "End.DX4 nh4 0.0.0.0"), (FAR6, "End.DT6 table local")])
def test_bursts_take_the_list_of_their_slot_and_fit_its_budget(pair: Pair, address: str, ends: str) -> None:
    """The peer takes outer headers off, as a last router does, and checks what is inside."""
    sent = os.urandom(300_000)
    with_ipv6(pair)
    pair.on_peer(f"ip -6 route add fcbb:bb00::/32 encap seg6local action {ends} dev peer0")
    pair.on_host("ip link set host0 mtu 1460")
    pair.on_host("ethtool -K host0 tx off")  # the kernel cuts bursts, and writes checksums
    with (
        Labeller("host0", netns=pair.host, carrier=Carrier.SRV6, fabric_mtu=1500, cfr=True) as its,
        raw_socket(pair.peer, "peer0", ALL) as wire,
    ):
        its.swap(table()._replace(prefix=PREFIX))
        its.attach()
        assert its.cfr is not None
        now = time.monotonic_ns()
        its.cfr.set_gate(IPv4Address(HERE), Gate(SLOT_NS, NOW * SLOT_NS + SLOT_NS // 10 - now, now + SLOT_NS, 0, SLOT_NS // 100))
        with connection(pair, address) as (client, end):
            client.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 22)
            client.sendall(b"first")
            eventually(lambda: end.recv(5, socket.MSG_DONTWAIT), b"first")
            client.sendall(sent)
            assert its.counters()["held"] > 0
            before = list(filter(None, map(label_of, frames(wire))))
            its.cfr.grant([granted(NOW, PEER_ADDRESS, 1 << 20)])
            with inside(pair.host):
                its.cfr.sender.run(its.cfr.sender.prepare())
            got = b""
            while len(got) < len(sent):
                got += end.recv(1 << 20)
            data = [frame for frame in frames(wire) if label_of(frame)]
        assert got == sent
        assert before
        assert set(before) <= set(INTER_POD)  # the connection's begin, and its first packet
        assert {label_of(frame) for frame in data} == {LABEL}
        assert max(map(len, data)) == ETHERNET + 1500
        assert its.cfr.used(NOW) == sum(map(len, data))
        assert its.counters()["gso"] > 0


LEASE_MS = 100
SKEW_NS = 123_456_789_000


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with cfr_fabric(tmp_path) as made:
        yield made


def forge(fabric: Fabric, arbiter: socket.socket) -> None:
    """Give the agent grants that are malformed, have no right token, or are for the other host."""
    arbiter.bind(("127.0.0.1", fabric.arbiter_port))
    arbiter.settimeout(PATIENCE_SECONDS)
    data, address = arbiter.recvfrom(2048)
    demand, now = read_demand(data, ""), time.monotonic_ns()
    its = Grant(demand.host, 1, 1, GRANTED_NS, 60_000, now // GRANTED_NS + 8, 4, demand.sent_at, now, now, ())
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
        eventually(fabric.closed, [0.0, 0.0])
        flows(streams)
        eventually(fabric.log, Containing("Data leaves without slots, round-robin, until it answers"))
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
