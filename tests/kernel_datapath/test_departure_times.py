"""CFR on interfaces with the qdisc fq: data leaves in its slot, not before it, and fq keeps the begin, however late a thread wakes.

Only a kernel with fq runs these, so that no other target selects them: ``make test-kernel`` boots one.
"""

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import pytest

from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.qdiscs import qdiscs
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.slots.cfr_grants import LATE_NS, Gate, ahead_of
from sopa_ryu.agent.slots.cfr_sender import SlotSender
from sopa_ryu.agent.slots.departure_times import instead_of_fq
from sopa_ryu.channel.slots import Granted
from tests.helpers.cfr_fabric import CLOCK_NS, SENDERS, Capture, cfr_fabric, flows, judge
from tests.helpers.frames import HERE, NEAR, table
from tests.helpers.slot_arbiter import SlotArbiter
from tests.helpers.veth import PEER_ADDRESS, Pair, Stream, veth_pair
from tests.helpers.waiting import SLOWER, eventually

SLOT_NS = 20_000_000  # an emulated machine runs through its sockets in several milliseconds
EVERY = 3
"""Each third slot is the peer's, another one is granted for another host."""
ROUNDS = 200
BUDGET, LARGE = 2 * 1514, 20 * 1514
PACED = 20_000
"""Bytes a second: a packet in 76 ms, longer than from one slot to the next."""
PEER = IPv4Address(PEER_ADDRESS)


@pytest.fixture(autouse=True, scope="module")
def objects() -> None:
    build()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        for on, interface in ((made.on_host, "host0"), (made.on_peer, "peer0")):
            on(f"ip link set {interface} mtu 1500")
            on(f"ip link set {interface} gso_max_segs 1")  # what the agent does for slots of few packets
            on(f"ethtool -K {interface} tso off gro off")
        yield made


class Kept(NamedTuple):
    late_ns: list[int]
    slots: int
    early: int
    elsewhere: int
    over: int
    clock_error_ns: int


def follow_schedule(pair: Pair, departure_times: bool, budget: int, pacing: int = 0) -> Kept:
    """Send through a granted schedule; each slot has a label of its own, by which its packets are known."""
    slot_of: dict[tuple[int, int], int] = {}
    late: list[int] = []
    elsewhere = early = over = 0
    with ExitStack() as closing:
        labeller = closing.enter_context(Labeller("host0", netns=pair.host, cfr=True))
        programs = labeller.cfr
        assert programs is not None
        labeller.swap(table())
        labeller.attach()
        sender = SlotSender()
        closing.callback(sender.close)
        wire = Capture((pair.peer, "peer0"))
        closing.enter_context(Stream(pair.host, pair.peer, PEER_ADDRESS, pacing=pacing))
        closing.callback(labeller.detach)  # what the socket holds may leave then

        def put_in_force() -> None:
            ahead = ahead_of(SLOT_NS) if departure_times else 0
            gate = Gate(SLOT_NS, 0, time.monotonic_ns() + 60 * 10**9, first, LATE_NS, ahead)
            programs.set_gate(IPv4Address(HERE), gate)
            sender.follow(programs, gate, own)

        first = time.monotonic_ns() // SLOT_NS + 10
        slots = list(range(first, first + EVERY * ROUNDS, EVERY))
        for begin in range(0, ROUNDS, 100):
            own = slots[begin : begin + 100]
            for n, slot in enumerate(own, begin):
                label = (n % 100, 100 + n // 100)
                slot_of[label] = slot
                programs.grant([Granted(slot, *label, PEER, budget), Granted(slot + 1, 222, 222, IPv4Address(NEAR), BUDGET)])
            put_in_force()
            while time.monotonic_ns() < (own[-1] + EVERY) * SLOT_NS:
                time.sleep(0.5)
        found = [its for its in wire.close() if its.at >= first * SLOT_NS]
    for its in found:
        slot = slot_of.get(its.label) if its.label else None
        if slot is None:
            elsewhere += 1
            continue
        late.append(its.at - slot * SLOT_NS)
        early += its.at < slot * SLOT_NS - wire.clock.error_ns
        over += its.at > (slot + 1) * SLOT_NS + LATE_NS
    used = Counter(its.label for its in found if its.label in slot_of)
    # the first one may have what passed the gate just before it closed
    assert max(count for label, count in used.items() if label and slot_of[label] > first) <= budget // 1514
    return Kept(sorted(late), len(used), early, elsewhere, over, wire.clock.error_ns)


def described(kept: Kept) -> str:
    its = kept.late_ns
    at = {name: its[min(len(its) - 1, int(len(its) * share))] / 1e3 for name, share in (("median", 0.5), ("p99", 0.99))}
    return (
        f"{len(its)} packets in {kept.slots} of {ROUNDS} slots; after its begin by {its[0] / 1e3:.0f} us at least, "
        f"median {at['median']:.0f}, p99 {at['p99']:.0f}, most {its[-1] / 1e3:.0f}; {kept.early} early, {kept.elsewhere} elsewhere"
        f", {kept.over} after the slot; clocks known to {kept.clock_error_ns / 1e3:.0f} us"
    )


def test_fq_keeps_data_until_its_slot_begins(pair: Pair) -> None:
    cases = (("fq", True, BUDGET), ("fq", False, BUDGET), ("pfifo", False, BUDGET), ("fq", True, LARGE), ("fq", False, LARGE))
    for qdisc, departure_times, budget in cases:
        pair.on_host(f"tc qdisc replace dev host0 root {qdisc}")
        with inside(pair.host):
            assert instead_of_fq(qdiscs(socket.if_nametoindex("host0"))) == ("" if qdisc == "fq" else qdisc)
        kept = follow_schedule(pair, departure_times, budget)
        again = pair.on_host("nstat -z TcpRetransSegs").split("TcpRetransSegs")[1].split()[0]
        print(
            f"{qdisc}, departure times {'on' if departure_times else 'off'}, {budget // 1514} packets a slot: "
            f"{described(kept)}; sent again {again}",
            flush=True,
        )
        assert kept.slots > ROUNDS // 2
        assert kept.early == 0
        assert kept.elsewhere <= 1  # the connection's first packet


def test_what_tcp_paces_leaves_in_the_slot_of_its_departure(pair: Pair) -> None:
    pair.on_host("tc qdisc replace dev host0 root fq")
    kept = follow_schedule(pair, True, BUDGET, PACED)
    print(f"paced to {PACED} bytes a second: {described(kept)}", flush=True)
    assert kept.slots > ROUNDS // 4
    assert kept.early == kept.elsewhere == 0
    # after a pause TCP lets half of a packet's time go; and 10 packets pass before it paces
    assert len(kept.late_ns) <= 10 + 2 * PACED * ROUNDS * EVERY * SLOT_NS / 10**9 / 1448


def test_an_agent_uses_fq_where_it_is_and_while_it_is(tmp_path: Path) -> None:
    with cfr_fabric(tmp_path) as fabric:
        for sender in SENDERS:
            fabric.rack.on(sender, "tc qdisc replace dev eth0 root handle 1: tbf rate 4mbit burst 3100 limit 150000")
            fabric.rack.on(sender, "tc qdisc replace dev eth0 parent 1:1 handle 2: fq")
        with (
            SlotArbiter(fabric.arbiter_port, slot_ns=SLOT_NS, mbit=1.3, lease_ms=20_000) as arbiter,
            fabric.agent(),
            fabric.streams() as streams,
        ):
            eventually(fabric.closed, [1.0, 1.0])
            assert fabric.metrics("departure_times{.*}") == [1.0, 1.0]
            flows(streams)
            wire = fabric.wire()
            flows(streams, 200_000)
            late, elsewhere = judge(wire.close(), arbiter, round(SLOWER * CLOCK_NS))
            known_ns = max(fabric.metrics("round_trip_seconds{.*}")) / 2 * 1e9
            print(
                f"agent: {len(late)} packets, late by {late[len(late) // 2] / 1e3:.0f}, p99 "
                f"{late[len(late) * 99 // 100] / 1e3:.0f} us by the arbiter's clock, known to {known_ns / 1e3:.0f} us; "
                f"{elsewhere} elsewhere",
                flush=True,
            )
            assert elsewhere <= len(late) // 20
            fabric.rack.on(SENDERS[0], "tc qdisc replace dev eth0 root pfifo")
            eventually(lambda: fabric.metrics("departure_times{.*}"), lambda its: sorted(its) == [0.0, 1.0])
            flows(streams)
            assert "has the qdisc fq no more (pfifo)" in fabric.log()
            fabric.rack.on(SENDERS[0], "tc qdisc replace dev eth0 root fq")
            eventually(lambda: fabric.metrics("departure_times{.*}"), [1.0, 1.0])
            flows(streams)
