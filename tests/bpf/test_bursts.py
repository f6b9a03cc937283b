"""The packets of a burst that is cut (bpf/burst.h): which path each takes, and what its retransmission counts against."""

import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.kernel.own_traffic import SentAgain
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_table import PathTable, Policy, WayOut
from tests.bpf.labelling import connection, labelling
from tests.bpf.test_own_traffic import again, busy, segment, send
from tests.helpers.frames import FAR, FAR6, HERE, HERE6, INTER_POD, NEAR, PREFIX, TCP, chained6, ip, label_of, table, word_of
from tests.helpers.path_tables import flow_positions
from tests.helpers.veth import IPV4, Pair, frames, raw_socket
from tests.helpers.waiting import eventually

REDIRECTED = 7
LOOPBACK = 1
NEAR6 = "fd53:4f50:4100:1::2"
MANY = tuple((up1, up2) for up2 in range(5) for up1 in range(7))
CUTTING = (Carrier.MAC, Carrier.OPTION, Carrier.SRV6)


class Flow(NamedTuple):
    """TCP between two hosts, by either family, or with a header that is no usual one."""

    src: str
    dst: str
    sport: int
    options: bytes = b""

    @property
    def key(self) -> FlowKey:
        return FlowKey.of(self.src, self.dst, TCP, self.sport, 5001, PREFIX)

    def packet(self, seq: int, size: int) -> bytes:
        header = struct.pack("!HHIIBBHHH", self.sport, 5001, seq % (1 << 32), 1, 5 << 4, 0x10, 500, 0, 0) + bytes(size)
        if ":" in self.src:
            return chained6(header, TCP, src=self.src, dst=self.dst)
        return ip(header, src=self.src, dst=self.dst, options=self.options)


class Sender:
    """Sends for flows, and knows the path of each packet: the next one of its flow, a burst's all at once.

    A packet of the last burst's flow is taken for one of that burst's until all of them have come, or the table is another one.
    """

    def __init__(self, labeller: Labeller) -> None:
        self._labeller = labeller
        self.turns, self._seq, self._noted = Counter[FlowKey](), Counter[Flow](), Counter[Flow]()
        self._burst: tuple[Flow, range] | None = None

    def follow(self, its: PathTable) -> None:
        self._table, self._burst = its, None
        self._labeller.swap(its)

    def burst(self, flow: Flow, packets: int) -> None:
        self._seq[flow] = self._noted[flow]  # not what a burst before has had, or it is sent again
        frame = flow.packet(self._seq[flow], packets * 100)
        self._noted[flow] += packets * 100
        assert self._labeller.run(frame, gso_segments=packets).retval == REDIRECTED
        several = len(self._table.candidates(flow.key.daddr) or ()) > 1
        self._burst = None
        if several and not flow.options and self._table.policy is Policy.ROUND_ROBIN:
            first = self.turns[flow.key]
            self._burst, self.turns[flow.key] = (flow, range(first, first + packets)), first + packets

    def packet(self, flow: Flow) -> None:
        its, left = self._burst or (None, range(0))
        if its == flow and left:
            turn, self._burst = left[0], (flow, left[1:])
        else:
            turn = self.turns[flow.key]
            self.turns[flow.key] += len(self._table.candidates(flow.key.daddr) or ()) > 1
        frame = flow.packet(self._seq[flow], 100)
        self._seq[flow] += 100
        self._noted[flow] = max(self._noted[flow], self._seq[flow])
        assert label_of(self._labeller.run(frame).data) == self._table.choose(flow.key, turn), (flow, turn)


@pytest.mark.parametrize("policy", [Policy.ROUND_ROBIN, Policy.RANDOM])
@pytest.mark.parametrize("carrier", CUTTING)
def test_the_packets_of_bursts_take_their_flows_paths_in_turn_whatever_comes_between(
    make_labeller: Callable[..., Labeller], carrier: Carrier, policy: Policy
) -> None:
    draw = random.Random(f"{carrier} {policy} bursts")
    prefix = None if carrier is Carrier.OPTION else PREFIX
    sender = Sender(labeller := make_labeller(carrier=carrier, fabric_mtu=9000, cut_by=LOOPBACK))
    flows = [Flow(HERE, dst, sport) for dst in (FAR, NEAR) for sport in (1024, draw.randrange(1025, 65536))]
    flows += [Flow(HERE, FAR, 1000, bytes(8))] + [Flow(HERE6, dst, 7) for dst in (FAR6, NEAR6) if prefix]
    for number in range(300):
        if number % 30 == 0:
            paths = draw.choice((INTER_POD, INTER_POD[1:], MANY, MANY[::3]))
            sender.follow(table(policy=policy, inter_pod=paths)._replace(prefix=prefix))
        flow, packets = draw.choice(flows), draw.choice((2, 3, 7, 33))
        sender.burst(flow, packets)
        for _ in range(packets if draw.random() < 0.6 else draw.randrange(packets + 3)):
            if draw.random() < 0.02:
                sender.follow(table(policy=policy, inter_pod=draw.choice((INTER_POD, MANY)))._replace(prefix=prefix))
            sender.packet(flow if draw.random() < 0.9 else draw.choice(flows))
    assert {key: count for key, count in flow_positions(labeller).items() if count} == +sender.turns


@pytest.mark.parametrize("carrier", CUTTING)
def test_what_a_bursts_packets_lose_counts_against_their_own_paths(carrier: Carrier) -> None:
    """Also of one of several bursts behind each other, and where packets are sent again as a burst."""
    with Labeller("lo", carrier=carrier, fabric_mtu=9000, cut_by=LOOPBACK) as labeller:
        for base, paths in enumerate((INTER_POD, MANY)):
            its, start = table(inter_pod=paths), base << 24
            labeller.swap(its)
            labels, size, packets, bursts = [], 73, 45, 20
            for number in range(bursts):
                burst = segment(start + number * packets * size, packets * size)
                assert labeller.run(burst, gso_segments=packets).retval == REDIRECTED
                for each in range(number * packets, (number + 1) * packets):
                    labels.append(send(labeller, segment(start + each * size, size)))
            assert again(labeller) == []
            lost = (0, 1, 44, 45, 46, packets * bursts - 1)
            for each in lost:
                send(labeller, segment(start + each * size, size))
            assert again(labeller) == [SentAgain((2, 1), labels[each]) for each in lost]
            assert labeller.run(segment(start + 100 * size, 3 * size), gso_segments=3).retval == REDIRECTED
            assert again(labeller) == []
            for each in (100, 101, 102):
                send(labeller, segment(start + each * size, size))
            assert again(labeller) == [SentAgain((2, 1), labels[each]) for each in (100, 101, 102)]
        assert busy(labeller) == [(2, 1)]


def test_a_bursts_packets_count_against_no_path_of_a_table_that_came_later(make_labeller: Callable[..., Labeller]) -> None:
    labeller = make_labeller(cut_by=LOOPBACK)
    again(labeller)

    def burst(first: int) -> list[SentAgain]:
        labeller.run(segment(first * 100, 1000), gso_segments=10)
        return [SentAgain((2, 1), send(labeller, segment((first + each) * 100, 100))) for each in range(10)]

    def sent_again(number: int) -> list[SentAgain]:
        send(labeller, segment(number * 100, 100))
        return again(labeller)

    labeller.swap(table())
    before = burst(1000)
    assert sent_again(1003) == [before[3]]
    labeller.swap(table(inter_pod=INTER_POD[1:]))
    assert sent_again(1004) == []
    after = burst(1010)
    assert (sent_again(1005), sent_again(1013)) == ([], [after[3]])


def test_a_bursts_packets_on_their_way_out_take_the_gateways_paths(make_labeller: Callable[..., Labeller]) -> None:
    way_out = WayOut(bytes.fromhex("02000a030102"), INTER_POD)
    labeller = make_labeller(cut_by=LOOPBACK)
    labeller.swap(table()._replace(ways_out=(way_out,)))
    assert labeller.run(segment(0, 800, dst="192.0.2.9"), gso_segments=8).retval == REDIRECTED
    frames = [labeller.run(segment(number * 100, 100, dst="192.0.2.9")).data for number in range(8)]
    assert Counter(map(label_of, frames)) == dict.fromkeys(INTER_POD, 2)
    assert {frame[:6] for frame in frames} == {way_out.mac}
    send(labeller, segment(300, 100, dst="192.0.2.9"))
    assert again(labeller) == [SentAgain((3, 1), label) for label in [label_of(frames[3])] if label]


def test_on_the_wire_the_short_packet_at_a_bursts_end_counts_against_its_own_path(pair: Pair, tmp_path: Path) -> None:
    whole, rest = 8948, 600
    with labelling(pair, tmp_path) as labeller, connection(pair) as (client, server):
        assert labeller.own is not None
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair.on_peer("ip route add blackhole 10.0.0.2/32")  # no acknowledgement comes: TCP sends the last packet again (RFC 8985)
        with raw_socket(pair.peer, "peer0", IPV4) as wire:
            client.sendall(bytes(whole + rest))
            found: list[SentAgain] = []
            eventually(lambda: found.extend(labeller.own.sent_again()) or found)
            first = word_of(frames(wire)[0])
        pair.on_peer("ip route del blackhole 10.0.0.2/32")
        received = 0
        while received < whole + rest:
            received += len(server.recv(1 << 20))
        assert labeller.counted.by_reason()[Handling.CUT] > 0
    assert first is not None
    assert found[0] == SentAgain((2, 1), INTER_POD[(INTER_POD.index(first) + 1) % 4])
