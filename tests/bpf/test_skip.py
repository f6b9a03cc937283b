"""The policy sopa-skip: a path that loses packets loses turns, and without losses every turn is that of round-robin."""

import random
import socket
import struct
from collections import Counter as Counts
from collections import defaultdict
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.emulation.bad_links import BadLinks
from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.own_traffic import SentAgain
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FlowKey, flow_hash, mix64, scaled
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy, WayOut
from tests.bpf.labelling import connection, labelling
from tests.bpf.test_bad_link import LINK, LOWER, TwoEnds
from tests.bpf.test_own_traffic import RINGS, SEGMENTS, again, segment, send
from tests.helpers.frames import FAR, HERE, INTER_POD, NEAR, TCP, table
from tests.helpers.path_tables import flow_positions
from tests.helpers.veth import Pair
from tests.helpers.waiting import eventually

LOSS, MOST, MOST_SKIPPED = 4, 15, 64
CHANCE, REMEMBERED = 3, 64
SLOTS, MIX = 4096, 0x9E3779B97F4A7C15
COUNTER = struct.Struct("=IHH")
MANY = tuple((up1, up2) for up2 in range(24) for up1 in range(24))
HEAVY = (*INTER_POD, (0, 0), (1, 0))
"""Two paths with twice the weight of the others."""
SKIPPING = table(policy=Policy.SOPA_SKIP)


def slot(rack: tuple[int, int], label: Label) -> int:
    return (int.from_bytes(bytes([*rack, *label]), "big") * MIX % (1 << 64)) >> 52


class Counter(NamedTuple):
    """A path's turns to lose, losses, and draws."""

    turns: int = 0
    lost: int = 0
    drawn: int = 0


def counters(labeller: Labeller) -> dict[int, Counter]:
    """Those that are not all 0, by slot."""
    skips = labeller._object.map_fd("skips")
    found = {}
    for at in range(SLOTS):
        value = libbpf.lookup(skips, struct.pack("=I", at), COUNTER.size)
        if value and any(value):
            found[at] = Counter(*COUNTER.unpack(value))
    return found


def set_counter(
    labeller: Labeller, label: Label, turns: int, lost: int = 0, drawn: int = 0, rack: tuple[int, int] = (2, 1)
) -> None:
    libbpf.update(labeller._object.map_fd("skips"), struct.pack("=I", slot(rack, label)), COUNTER.pack(turns, lost, drawn))


class Model:
    """The counters of a host, and the turns and segments of its flows."""

    def __init__(self, its: PathTable) -> None:
        self.table = its
        self.counters: defaultdict[int, Counter] = defaultdict(Counter)
        self.turns, self.sent = Counts[FlowKey](), defaultdict[FlowKey, list[Label]](list)

    def choose(self, key: FlowKey) -> Label:
        _, pod, edge, _ = IPv4Address(key.daddr).packed
        candidates, skipped = self.table.candidates(key.daddr) or (), 0
        while True:
            label = self.table.choose(key, self.turns[key])
            assert label is not None
            self.turns[key] += 1
            at = slot((pod, edge), label)
            its = self.counters[at]
            if not its.turns or skipped == min(len(candidates), MOST_SKIPPED):
                return label
            self.counters[at] = its._replace(turns=its.turns - 1)
            skipped += 1

    def lost(self, key: FlowKey, seq: int, found: SentAgain) -> bool:
        """Note a retransmission, before it is noted as sent; return whether it takes turns."""
        sent = self.sent[key]
        draw = scaled(mix64((seq + len(sent)) % (1 << 64)) >> 32, min(len(sent), SEGMENTS))
        other, its = (slot(found.rack, label) for label in (sent[-1 - draw], found.label))
        self._add(other, drawn=1)
        self._add(its, lost=1)
        counter = self.counters[its]
        takes = counter.lost > 2 * counter.drawn + CHANCE
        if takes:
            self.counters[its] = counter._replace(turns=min(MOST, counter.turns + LOSS))
        return takes

    def _add(self, at: int, lost: int = 0, drawn: int = 0) -> None:
        its = self.counters[at]
        its = its._replace(lost=its.lost + lost, drawn=its.drawn + drawn)
        if its.lost + its.drawn >= REMEMBERED:
            its = its._replace(lost=its.lost // 2, drawn=its.drawn // 2)
        self.counters[at] = its


@pytest.mark.parametrize("carrier", [Carrier.MAC, Carrier.OPTION, Carrier.SRV6])
@pytest.mark.parametrize("inter_pod", [INTER_POD, HEAVY, MANY], ids=len)
def test_program_and_model_skip_alike(carrier: Carrier, inter_pod: tuple[Label, ...]) -> None:
    """One path loses more packets than the others, while path tables are swapped.

    The model counts the retransmissions that the program reports to the agent.
    """
    draw = random.Random(f"{carrier} {len(inter_pod)}")
    whole = table(policy=Policy.SOPA_SKIP, inter_pod=inter_pod)
    flows = [FlowKey.of(HERE, dst, TCP, sport, 5001) for sport in range(40000, 40004) for dst in (FAR, FAR, NEAR)]
    assert len({flow_hash(key, whole.seed) % RINGS for key in flows}) == len(set(flows))
    with Labeller("lo", carrier=carrier, fabric_mtu=9000) as labeller:
        model, following, losses, judged = Model(whole), Counts[FlowKey](), 0, 0
        carriers = defaultdict[FlowKey, dict[int, Label]](dict)
        for number in range(5000):
            if number % 1000 == 0:
                model.table = whole if number % 2000 == 0 else table(policy=Policy.SOPA_SKIP, inter_pod=inter_pod[1:])
                labeller.swap(model.table)
            if draw.random() < 0.01:  # all of them: there is a path nevertheless
                for label in inter_pod:
                    its = model.counters[slot((2, 1), label)]._replace(turns=MOST)
                    model.counters[slot((2, 1), label)] = its
                    set_counter(labeller, label, *its)
            key = draw.choice(flows)
            seq, carried = following[key], carriers[key]
            if carried and draw.random() < 0.15:
                bad = [seq for seq, label in carried.items() if label == inter_pod[1]][-5:]
                seq = draw.choice(bad if bad and draw.random() < 0.8 else [*carried][-20:])
            chosen = model.choose(key)
            frame = segment(seq, 100, sport=key.ports >> 16, dst=str(IPv4Address(key.daddr)))
            assert send(labeller, frame) == chosen
            for found in again(labeller):
                losses += 1
                judged += model.lost(key, seq, found)
            following[key] = max(following[key], seq + 100)
            model.sent[key].append(chosen)
            carried[seq] = chosen
        assert losses > 200
        assert judged > 50 or inter_pod == MANY
        assert counters(labeller) == {at: its for at, its in model.counters.items() if any(its)}
        assert flow_positions(labeller) == model.turns


def turns(labeller: Labeller) -> list[int]:
    return [its.turns for its in counters(labeller).values() if its.turns]


def test_packets_on_their_way_out_skip_by_their_gateways_rack(fresh: Labeller) -> None:
    way = WayOut(bytes.fromhex("02000a030102"), INTER_POD)
    fresh.swap(SKIPPING._replace(destinations=(-1,) * 8, ways_out=(way,)))
    set_counter(fresh, (0, 1), 2, rack=(3, 1))
    taken = Counts(send(fresh, segment(100 * at, 100, dst="192.0.2.9")) for at in range(14))
    assert taken == {(0, 0): 4, (1, 0): 4, (1, 1): 4, (0, 1): 2}


def test_other_policies_skip_nothing(fresh: Labeller) -> None:
    fresh.swap(table())
    for label in INTER_POD:
        set_counter(fresh, label, MOST)
    key = FlowKey.of(HERE, FAR, TCP, 40000, 5001)
    assert [send(fresh, segment(100 * at, 100)) for at in range(8)] == [table().choose(key, at) for at in range(8)]


def test_a_timeout_of_tcp_takes_fifteen_turns(pair: Pair, tmp_path: Path) -> None:
    """Acknowledgements are lost. Each retransmission takes another path, so that losses alone would need a dozen of them."""
    ends = TwoEnds(pair)
    with (
        labelling(pair, tmp_path, paths=SKIPPING) as labeller,
        BadLinks(ends, ends.netns) as bad,
        connection(pair) as (client, accepted),
    ):
        client.sendall(b"before")
        assert accepted.recv(6, socket.MSG_WAITALL) == b"before"
        bad.set_loss(LINK, LOWER, 1.0, seed=1)
        client.sendall(b"unacknowledged")
        eventually(lambda: MOST in turns(labeller))
        assert len(again(labeller)) <= 3  # one of them by a tail loss probe
        bad.set_loss(LINK, LOWER, 0.0, seed=1)
        client.sendall(b"and on")
        assert accepted.recv(20, socket.MSG_WAITALL) == b"unacknowledgedand on"
