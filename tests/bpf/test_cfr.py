"""The programs of CFR, packet by packet, and its iterators over sockets."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from typing import Any

import pytest

from sopa_ryu.agent.cfr_grants import KEPT, Gate
from sopa_ryu.agent.cfr_programs import SLOTS, CfrPrograms
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import CFR
from sopa_ryu.agent.kernel.counters import Counters, Reason
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.own_traffic import OwnTraffic, SentAgain
from sopa_ryu.agent.kernel.path_maps import PathTables
from sopa_ryu.channel.slots import Granted
from tests.helpers.frames import FAR, HERE, INTER_POD, NEAR, SAME_RACK, UDP, echo, ip, table, word_of
from tests.helpers.veth import PEER_ADDRESS, Pair
from tests.helpers.waiting import eventually

SLOT_NS = 10**12
"""So long that a test does not notice that time passes: what decides is at least 0.005 of it away."""
NOW = 5_000_000
"""The slot that it is in tests."""
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
HEADERS = 20 + 20
ETHERNET = 14
LABEL = (7, 9)
"""No path of the path table."""


def segment(payload: int = 1460, flags: int = ACK | PSH, seq: int = 1, **fields: Any) -> bytes:
    header = struct.pack("!HHIIBBHHH", 40000, 5001, seq, 1, 5 << 4, flags, 1000, 0, 0)
    return ip(header + bytes(payload), **fields)


def granted(slot: int, destination: str = FAR, budget: int = 3028) -> Granted:
    return Granted(slot, *LABEL, IPv4Address(destination), budget)


class Host:
    """The programs of one host, 10.0.0.2 at k=4, and the time that it is for them."""

    def __init__(self, *, every_socket: bool = True, netns: str | None = None) -> None:
        self._object = libbpf.Object(CFR, {"flows": 64})
        self._every_socket, self._netns = every_socket, netns
        self._closing = ExitStack()

    def __enter__(self) -> Host:
        its = self._closing.enter_context(self._object)
        tables = PathTables(its.map_fd("path_tables"), its.map_fd("turn"))
        self._closing.callback(tables.close)
        tables.swap(table())
        self.programs = CfrPrograms(its, self._netns, every_socket=self._every_socket)
        self._closing.callback(self.programs.close)
        self.counted = Counters(its.map_fd("counters"), its.map_fd("path_packets"))
        self.own = OwnTraffic(its.map_fd("again"), its.map_fd("busy"))
        self._closing.callback(self.own.close)
        self._label = its.program_fd("sopa_cfr")
        self.set()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._closing.close()

    def set(
        self,
        *,
        slot: int = NOW,
        into: float = 0.1,
        first: int = 0,
        lease: float = 1e6,
        late: float = 0.01,
        slot_ns: int = SLOT_NS,
        ahead: float = 0,
    ) -> None:
        """Make it that slot, of which the share `into` has passed; the lease lasts for so many seconds, data goes so far ahead."""
        now = time.monotonic_ns()
        offset = slot * slot_ns + int(into * slot_ns) - now
        self.gate = Gate(slot_ns, offset, now + int(lease * 1e9), first, int(late * slot_ns), int(ahead * slot_ns))
        self.programs.set_gate(IPv4Address(HERE), self.gate)

    def passes(self, frame: bytes, repeat: int = 1, gso_segments: int = 0) -> bool:
        done = libbpf.run_program(self.programs.gate_fd, frame, repeat=repeat, gso_segments=gso_segments)
        return {0: False, 1: True}[done.retval]

    def departs(self, frame: bytes, tstamp: int = 0, gso_segments: int = 0) -> int | None:
        """Return the departure time of a frame that passes, None if it is held."""
        done = libbpf.run_program(self.programs.gate_fd, frame, gso_segments=gso_segments, tstamp=tstamp)
        return done.tstamp if done.retval else None

    def label(self, frame: bytes, tstamp: int | None = None) -> tuple[int, int] | None:
        done = libbpf.run_program(self._label, frame, tstamp=tstamp)
        assert done.retval == 0xFFFFFFFF
        return word_of(done.data)

    def counts(self) -> dict[str, int]:
        found = self.counted.by_reason()
        every = (Reason.GRANTED, Reason.HELD, Reason.PASSED_IN_GUARD, Reason.GATE_OPEN)
        return {reason.name.lower(): found[reason] for reason in every if found[reason]}


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as its:
        yield its


def test_the_agent_keeps_as_many_slots_as_the_program() -> None:
    assert SLOTS == KEPT


def test_data_passes_in_its_slot_up_to_the_budget(host: Host) -> None:
    host.programs.grant([granted(NOW)])
    assert [host.passes(segment()) for _ in range(3)] == [True, True, False]
    assert host.counts() == {"granted": 2, "held": 1}
    assert host.programs.used(NOW) == 3028
    assert host.programs.sent([IPv4Address(FAR), IPv4Address(NEAR)]) == {IPv4Address(FAR): 3028}


@pytest.mark.parametrize(
    "entry",
    [
        granted(NOW, NEAR),
        granted(NOW + 1),
        granted(NOW - 1),
        granted(NOW - SLOTS),
        granted(NOW + SLOTS),
        granted(NOW, budget=1513),
        granted(NOW, budget=0),
    ],
)
def test_other_slots_and_other_destinations_grants_do_not_count(host: Host, entry: Granted) -> None:
    host.programs.grant([entry])
    assert not host.passes(segment())
    assert host.counts() == {"held": 1}
    assert host.programs.used(entry.slot) == 0
    assert host.programs.sent([IPv4Address(FAR)]) == {}


def test_a_smaller_packet_takes_what_a_larger_one_left(host: Host) -> None:
    host.programs.grant([granted(NOW, budget=2000)])
    assert [host.passes(segment(size)) for size in (1460, 1460, 400, 32, 1)] == [True, False, True, False, False]
    assert host.programs.used(NOW) == 1514 + 454


def test_a_packet_is_held_that_would_end_after_its_slot(host: Host) -> None:
    host.programs.grant([granted(NOW, budget=15_140)])  # a tenth of the slot each
    for into, passes in ((0.0, True), (0.89, True), (0.905, True), (0.92, False), (0.999, False)):
        host.set(into=into, late=0.01)
        assert host.passes(segment()) is passes, into


def test_a_slot_of_one_packet_is_lost_if_it_is_begun_late(host: Host) -> None:
    for slot, into, passes in ((NOW, 0.19, True), (NOW + 1, 0.21, False)):
        host.programs.grant([granted(slot, budget=1514)])
        host.set(slot=slot, into=into, late=0.2)
        assert host.passes(segment()) is passes


def test_slots_follow_one_another_around_the_ring(host: Host) -> None:
    for slot in range(NOW, NOW + 3 * SLOTS, 100):
        host.programs.grant([granted(slot, budget=1514)])
        host.set(slot=slot, into=0.001)
        assert [host.passes(segment()), host.passes(segment())] == [True, False]
        assert host.programs.used(slot) == 1514
        assert host.programs.used(slot - SLOTS) == 0


def test_after_the_lease_and_before_the_first_slot_the_gate_is_open(host: Host) -> None:
    host.set(lease=-1e-9)
    assert host.passes(segment())
    host.set(first=NOW + 1)
    assert host.passes(segment())
    assert host.counts() == {"gate_open": 2}
    host.set(first=NOW)
    assert not host.passes(segment())
    assert host.programs.sent([IPv4Address(FAR)]) == {IPv4Address(FAR): 3028}


def test_a_lease_ends_without_the_agent(host: Host) -> None:
    host.set(lease=0.05)
    assert not host.passes(segment())
    eventually(lambda: host.passes(segment()))


def test_without_a_grant_the_gate_is_open(host: Host) -> None:
    host.programs.set_gate(IPv4Address(HERE), Gate(0, 0, 0, 0, 0))
    assert host.passes(segment())
    host.set()
    host.programs.grant([granted(NOW)])
    host.programs.forget()
    assert not host.passes(segment())


@pytest.mark.parametrize(
    "frame",
    [
        segment(0, SYN),
        segment(0, SYN | ACK),
        segment(100, SYN),
        segment(0, ACK),
        segment(0, FIN | ACK),
        segment(0, RST),
        segment(10, RST | ACK),
        segment(src=SAME_RACK),
        segment(dst="192.0.2.1"),
        segment(dst=HERE),
        segment(fragment=0x2000),
        segment(proto=UDP),
        echo(1),
        segment()[:12] + b"\x86\xdd" + segment()[14:],
    ],
)
def test_all_else_passes_and_is_not_counted(host: Host, frame: bytes) -> None:
    assert host.passes(frame)
    assert host.counts() == {}


@pytest.mark.parametrize(
    "frame", [segment(1), segment(1, FIN | ACK), segment(dst=SAME_RACK), segment(options=b"\1" * 4)]
)
def test_any_data_to_a_host_of_the_fabric_waits(host: Host, frame: bytes) -> None:
    assert not host.passes(frame)
    assert host.counts() == {"held": 1}


def test_a_burst_counts_with_the_headers_that_its_packets_will_have(host: Host) -> None:
    host.programs.grant([granted(NOW, budget=2 * 1514 + 3 * 784 + 1513)])
    assert host.passes(segment(2 * 1460), gso_segments=2)
    assert host.programs.used(NOW) == 2 * 1514
    assert host.passes(segment(3 * 730), gso_segments=3)
    assert host.programs.used(NOW) == 2 * 1514 + 3 * 784
    assert not host.passes(segment(1460))


def test_sockets_of_other_namespaces_are_not_gated() -> None:
    with Host(every_socket=False) as host:
        assert host.passes(segment())
        assert host.counts() == {}


def test_processors_do_not_exceed_a_budget_together(host: Host) -> None:
    fits, tries = 70_000, 50_000
    one = segment(1)
    budget = fits * len(one) + len(one) - 1
    host.programs.grant([granted(NOW, budget=budget)])

    def send(processor: int) -> None:
        os.sched_setaffinity(0, {processor})
        host.passes(one, repeat=tries)

    threads = [threading.Thread(target=send, args=[cpu]) for cpu in sorted(os.sched_getaffinity(os.getppid()))[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = host.counts()
    assert sum(counts.values()) == len(threads) * tries
    assert host.programs.used(NOW) == counts["granted"] * len(one) <= budget
    assert counts["granted"] == min(fits, len(threads) * tries)


def test_a_model_of_the_rules_agrees(host: Host) -> None:
    its = random.Random(18)
    used: dict[int, int] = {}
    ring: dict[int, Granted] = {}
    for step in range(500):
        slot, into, late = NOW + its.randrange(6), its.choice([0.0, 0.3, 0.6, 0.95]), its.choice([0.0, 0.04, 0.2])
        if its.random() < 0.3:
            entry = granted(NOW + its.randrange(8), its.choice([FAR, NEAR]), its.choice([0, 500, 1514, 4000, 30_000]))
            host.programs.grant([entry])
            ring[entry.slot], used[entry.slot] = entry, 0
        host.set(slot=slot, into=into + 1e-6, late=late)
        size, destination = its.choice([1, 400, 1460]), its.choice([FAR, NEAR])
        bytes_, entry_now = ETHERNET + HEADERS + size, ring.get(slot)
        expected = (
            entry_now is not None
            and entry_now.destination == IPv4Address(destination)
            and used[slot] + bytes_ <= entry_now.budget
            and into + 1e-6 + bytes_ / entry_now.budget <= 1 + late
        )
        assert host.passes(segment(size, dst=destination)) is expected, step
        used[slot] = used.get(slot, 0) + bytes_ * expected
        assert host.programs.used(slot) == (used[slot] if entry_now else 0)


# -- departure times -------------------------------------------------------------------------------------------------------------

AHEAD = 0.05
"""Of a slot, in these tests."""


def test_data_passes_shortly_before_its_slot_and_departs_at_its_begin(host: Host) -> None:
    host.programs.grant([granted(NOW + 1)])
    host.set(into=0.94, ahead=AHEAD)
    assert host.departs(segment()) is None
    host.set(into=0.96, ahead=AHEAD)
    begin = host.gate.begin_of(NOW + 1)
    assert [host.departs(segment()) for _ in range(3)] == [begin, begin, None]
    assert (host.programs.used(NOW), host.programs.used(NOW + 1)) == (0, 3028)
    assert host.counts() == {"held": 2, "granted": 2}
    assert host.programs.sent([IPv4Address(FAR)]) == {IPv4Address(FAR): 3028}
    host.set(slot=NOW + 1, into=0.0, ahead=AHEAD)
    assert host.departs(segment()) is None  # its budget is the same one


def test_without_departure_times_nothing_passes_ahead_and_none_is_written_or_read(host: Host) -> None:
    host.programs.grant([granted(NOW + 1)])
    host.set(into=0.9999)
    assert host.departs(segment()) is None
    assert host.departs(segment(), host.gate.begin_of(NOW + 1)) is None
    host.programs.grant([granted(NOW)])
    host.set(into=0.1)
    assert host.departs(segment()) == 0
    later = host.gate.begin_of(NOW + 5)
    assert host.departs(segment(), later) == later
    assert host.programs.used(NOW) == 3028


@pytest.mark.parametrize(
    "entry", [granted(NOW + 1, NEAR), granted(NOW + 2), granted(NOW + 1, budget=1513), granted(NOW + 1 - SLOTS)]
)
def test_ahead_of_a_slot_its_grant_decides(host: Host, entry: Granted) -> None:
    host.programs.grant([entry])
    host.set(into=0.99, ahead=AHEAD)
    assert host.departs(segment()) is None
    assert host.programs.used(entry.slot) == 0


def test_what_fits_into_its_slot_does_not_wait_for_the_next_one(host: Host) -> None:
    host.programs.grant([granted(NOW, budget=30_280), granted(NOW + 1)])
    host.set(into=0.96, ahead=AHEAD)
    assert host.departs(segment(400)) == 0
    assert (host.programs.used(NOW), host.programs.used(NOW + 1)) == (454, 0)
    begin = host.gate.begin_of(NOW + 1)
    assert host.departs(segment()) == begin  # too long for what is left of this one
    assert host.departs(segment(400)) == begin  # what follows does not overtake it
    assert (host.programs.used(NOW), host.programs.used(NOW + 1)) == (454, 1514 + 454)


def test_a_burst_goes_ahead_as_one(host: Host) -> None:
    host.programs.grant([granted(NOW + 1)])
    host.set(into=0.96, ahead=AHEAD)
    assert host.departs(segment(2 * 1460), gso_segments=2) == host.gate.begin_of(NOW + 1)
    assert host.programs.used(NOW + 1) == 3028


def test_a_packet_that_tcp_has_paced_belongs_to_the_slot_in_which_it_departs(host: Host) -> None:
    host.programs.grant([granted(NOW), granted(NOW + 3)])
    host.set(into=0.1, ahead=AHEAD)
    begin = host.gate.begin_of(NOW + 3)
    for tstamp, departs in (
        (host.gate.begin_of(NOW) - 1, host.gate.begin_of(NOW) - 1),  # it is late: it leaves now
        (begin + SLOT_NS // 2, begin + SLOT_NS // 2),
        (begin - SLOT_NS // 50, begin),
        (begin - SLOT_NS // 10, None),
        (begin - 2 * SLOT_NS, None),
        (begin + SLOT_NS, None),
    ):
        assert host.departs(segment(), tstamp) == departs
    assert (host.programs.used(NOW), host.programs.used(NOW + 3)) == (1514, 3028)


def test_leases_are_of_now_and_the_first_slot_is_that_of_the_departure(host: Host) -> None:
    host.programs.grant([granted(NOW + 1)])
    host.set(into=0.99, ahead=AHEAD, lease=-1e-9)
    assert host.departs(segment()) == 0
    host.set(into=0.99, ahead=AHEAD, first=NOW + 1)
    assert host.departs(segment()) == 0
    assert host.departs(segment(dst=NEAR), host.gate.begin_of(NOW + 1)) is None
    assert host.counts() == {"gate_open": 2, "held": 1}
    assert host.programs.used(NOW + 1) == 0


@pytest.mark.parametrize(
    "frame", [segment(0, SYN), segment(0, ACK), segment(0, FIN | ACK), segment(dst="192.0.2.1"), echo(1)]
)
def test_what_does_not_wait_keeps_its_departure_time(host: Host, frame: bytes) -> None:
    host.programs.grant([granted(NOW + 1)])
    host.set(into=0.99, ahead=AHEAD)
    assert host.departs(frame) == 0
    assert host.departs(frame, 12345) == 12345


def test_a_model_of_departures_agrees(host: Host) -> None:
    its = random.Random(61)
    ring: dict[int, Granted] = {}
    used: dict[int, int] = {}

    def fits(slot: int, into: float, destination: str, size: int) -> bool:
        entry = ring.get(slot)
        if entry is None or entry.destination != IPv4Address(destination) or used[slot] + size > entry.budget:
            return False
        return into + size / entry.budget <= 1.01

    for step in range(500):
        slot, into, ahead = NOW + its.randrange(6), its.choice([0.0, 0.3, 0.92, 0.96]) + 1e-6, its.choice([0.0, 0.05])
        if its.random() < 0.4:
            entry = granted(NOW + its.randrange(8), its.choice([FAR, NEAR]), its.choice([0, 1514, 4000, 300_000]))
            host.programs.grant([entry])
            ring[entry.slot], used[entry.slot] = entry, 0
        host.set(slot=slot, into=into, ahead=ahead)
        wait = its.choice([0.0, 0.0, 0.02, 1.4])
        size, destination = its.choice([1, 400, 1460]), its.choice([FAR, NEAR])
        tstamp = host.gate.begin_of(slot) + int((into + wait) * SLOT_NS) if wait else 0
        bytes_ = ETHERNET + HEADERS + size
        departs_in, at = divmod(into + wait if ahead else into, 1)
        own, following = slot + int(departs_in), slot + int(departs_in) + 1
        is_near = 1 - at <= ahead
        entry_next = ring.get(following)
        is_begun = is_near and entry_next is not None and entry_next.destination == IPv4Address(destination)
        if not (is_begun and used[following]) and fits(own, at, destination, bytes_):
            expected, taken = tstamp, own
        elif is_near and fits(following, 0, destination, bytes_):
            expected, taken = host.gate.begin_of(following), following
        else:
            expected, taken = None, None
        found = host.departs(segment(size, dst=destination), tstamp)
        # a packet that leaves now has taken some time until it is judged: the begin is exact to what the program computes
        assert found == expected, step
        if taken is not None:
            used[taken] += bytes_
            assert host.programs.used(taken) == used[taken], step


def test_data_takes_the_path_of_the_slot_in_which_it_departs(host: Host) -> None:
    other = (5, 6)
    host.programs.grant([granted(NOW), Granted(NOW + 1, *other, IPv4Address(FAR), 3028), granted(NOW + 2, NEAR)])
    host.set(ahead=AHEAD)
    begin = host.gate.begin_of
    assert host.label(segment(), 0) == LABEL
    assert host.label(segment(), begin(NOW + 1)) == other
    assert host.label(segment(), begin(NOW + 1) - 1000) == LABEL
    assert host.label(segment(), begin(NOW + 2)) == other  # it has passed the gate at the end of that slot
    assert (
        host.label(segment(dst=NEAR), begin(NOW + 2) - SLOT_NS // 50) == LABEL
    )  # the clock has been corrected meanwhile
    assert host.label(segment(), begin(NOW + 2) + SLOT_NS // 2) in INTER_POD
    assert {host.label(segment(0), begin(NOW + 1)) for _ in range(8)} == set(INTER_POD)
    host.set()
    assert host.label(segment(), begin(NOW + 1)) == LABEL
    host.set(ahead=AHEAD, lease=-1)
    assert {host.label(segment(), begin(NOW + 1)) for _ in range(8)} == set(INTER_POD)


# -- labels ----------------------------------------------------------------------------------------------------------------------


def test_data_in_its_slot_takes_the_granted_path_and_all_else_takes_turns(host: Host) -> None:
    host.programs.grant([granted(NOW), granted(NOW + 1, NEAR)])
    assert host.label(segment()) == LABEL
    assert {host.label(segment(0)) for _ in range(8)} == set(INTER_POD)
    host.set(slot=NOW + 1, into=0.005)
    assert host.label(segment()) == LABEL  # it has passed the gate at the end of its slot
    assert host.label(segment(dst=NEAR)) == LABEL
    host.set(slot=NOW + 1, into=0.02)
    assert host.label(segment()) in INTER_POD
    host.set(slot=NOW + 1, lease=-1)
    assert {host.label(segment()) for _ in range(8)} == set(INTER_POD)
    assert host.label(segment(dst=HERE)) is not None
    assert host.label(segment(dst="192.0.2.1")) is None


def test_what_is_sent_again_counts_against_the_path_that_carried_it_granted_or_not(host: Host) -> None:
    host.programs.grant([granted(NOW)])
    assert host.own.busy() == []
    assert host.label(segment(seq=1000)) == LABEL
    assert host.own.busy() == [(2, 1)]
    host.set(slot=NOW + 1, into=0.02)  # no slot of its own
    other = host.label(segment(seq=2460))
    assert other in INTER_POD
    assert host.own.sent_again() == []
    host.set()
    host.label(segment(seq=1000))
    host.label(segment(seq=2460))
    assert host.own.sent_again() == [SentAgain((2, 1), LABEL), SentAgain((2, 1), other)]
    host.own.busy()
    host.label(segment(dst=SAME_RACK))  # no choice of a path: there is none to leave
    assert host.own.busy() == []


# -- sockets ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def connect(pair: Pair) -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    with ExitStack() as closing:

        def make() -> tuple[socket.socket, socket.socket]:
            with inside(pair.peer), socket.create_server((PEER_ADDRESS, 0)) as server:
                with inside(pair.host):
                    client = closing.enter_context(socket.create_connection(server.getsockname(), 10))
                accepted = closing.enter_context(server.accept()[0])
            accepted.setblocking(False)
            return client, accepted

        yield make


def received(end: socket.socket) -> int:
    """Return how many bytes are there, without taking them."""
    try:
        return len(end.recv(1 << 20, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


def test_tcp_keeps_what_is_held_and_sends_it_in_the_slot(
    pair: Pair, connect: Callable[[], tuple[socket.socket, socket.socket]]
) -> None:
    peer = IPv4Address(PEER_ADDRESS)
    with Host(every_socket=False, netns=pair.host) as host:
        host.set(slot_ns=10**9, into=0.0)
        host.programs.attach()
        client, end = connect()
        client.sendall(b"first")
        eventually(lambda: received(end), 5)  # a connection's first packet does not wait
        assert host.counts() == {"passed_in_guard": 1}
        client.sendall(bytes(50_000))
        [unsent] = host.programs.unsent()
        assert (unsent.destination, unsent.payload, unsent.user) == (int(peer), 50_000, os.getuid())
        assert unsent.bytes == unsent.frames(50_000) > 50_000
        assert (unsent.own_port, unsent.port) == (client.getsockname()[1], client.getpeername()[1])
        assert received(end) == 5
        before = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        host.set()
        host.programs.grant([granted(NOW, PEER_ADDRESS, 1 << 20)])
        with inside(pair.host):
            prepared = host.programs.sender.prepare()
        host.programs.sender.run(prepared)
        eventually(lambda: received(end), 50_005)
        assert host.programs.unsent() == []
        host.programs.watch([peer])
        [idle] = host.programs.unsent()
        assert (idle.bytes, idle.written - unsent.written) == (0, 0)
        host.programs.watch([])
        assert host.programs.unsent() == []
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        after = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        assert struct.unpack_from("=I", after, 80)[0] >= struct.unpack_from("=I", before, 80)[0]  # the window
        assert struct.unpack_from("=I", after, 100)[0] == 0  # retransmissions
        host.programs.detach()
        host.programs.forget()
        client.sendall(bytes(1000))
        eventually(lambda: received(end), 51_005)


def test_other_destinations_and_namespaces_sockets_stay_as_they_are(
    pair: Pair, connect: Callable[[], tuple[socket.socket, socket.socket]]
) -> None:
    with Host(every_socket=False, netns=pair.host) as host:
        host.set()
        host.programs.attach()
        client, end = connect()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(b"first")
        eventually(lambda: received(end), 5)
        client.sendall(bytes(3000))
        host.programs.grant([granted(NOW, NEAR)])
        with inside(pair.host):
            host.programs.sender.run(host.programs.sender.prepare())
        assert received(end) == 5
        host.programs.grant([granted(NOW, PEER_ADDRESS, 1 << 20)])
        with inside(pair.peer):
            host.programs.sender.run(host.programs.sender.prepare())
        assert received(end) == 5
        end.sendall(b"not gated: another namespace's")
        eventually(lambda: received(client), 30)
        with inside(pair.host):
            host.programs.sender.run(host.programs.sender.prepare())
        eventually(lambda: received(end), 3005)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_what_tcp_sends_again_does_not_wait_for_a_slot(
    pair: Pair, connect: Callable[[], tuple[socket.socket, socket.socket]]
) -> None:
    with Host(every_socket=False, netns=pair.host) as host:
        host.set(slot_ns=10**9, into=0.0)
        host.programs.attach()
        client, end = connect()
        pair.on_peer(f"ip addr del {PEER_ADDRESS}/8 dev peer0")  # what is sent to it is lost
        client.sendall(b"lost")
        eventually(lambda: host.counts().get("passed_in_guard", 0), 3)
        assert "held" not in host.counts()
        pair.on_peer(f"ip addr add {PEER_ADDRESS}/8 dev peer0")
        eventually(lambda: received(end), 4)
