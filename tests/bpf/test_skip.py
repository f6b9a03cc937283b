"""The policy sopa-skip: a path that has lost a packet loses turns, and without losses every turn is that of round-robin."""

import random
import socket
import struct
from collections import Counter
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from experiments.emulation.bad_links import BadLinks
from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy, WayOut
from tests.bpf.labelling import labelling
from tests.bpf.test_bad_link import LINK, LOWER, TwoEnds
from tests.bpf.test_own_traffic import again, segment, send
from tests.helpers.frames import FAR, HERE, INTER_POD, INTER_RACK, NEAR, TCP, table
from tests.helpers.path_tables import flow_positions
from tests.helpers.veth import PEER_ADDRESS, Pair
from tests.helpers.waiting import PATIENCE_SECONDS, eventually

LOSS, MOST, MOST_SKIPPED = 4, 15, 64
SLOTS, MIX = 4096, 0x9E3779B97F4A7C15
MANY = tuple((up1, up2) for up2 in range(24) for up1 in range(24))
HEAVY = (*INTER_POD, (0, 0), (1, 0))
"""Two paths with twice the weight of the others."""
SKIPPING = table(policy=Policy.SOPA_SKIP)


def slot(rack: tuple[int, int], label: Label) -> int:
    return (int.from_bytes(bytes([*rack, *label]), "big") * MIX % (1 << 64)) >> 52


def counters(labeller: Labeller) -> dict[int, int]:
    """Those above 0, by slot."""
    skips = labeller._object.map_fd("skips")
    values = (int.from_bytes(libbpf.lookup(skips, struct.pack("=I", at), 4) or b"", "little") for at in range(SLOTS))
    return {at: value for at, value in enumerate(values) if value}


def set_counter(labeller: Labeller, label: Label, value: int, rack: tuple[int, int] = (2, 1)) -> None:
    libbpf.update(labeller._object.map_fd("skips"), struct.pack("=I", slot(rack, label)), struct.pack("=I", value))


class Model:
    """The counters of a host, and the turns of its flows."""

    def __init__(self, its: PathTable) -> None:
        self.table = its
        self.left, self.turns = Counter[int](), Counter[FlowKey]()

    def choose(self, key: FlowKey) -> Label:
        _, pod, edge, _ = IPv4Address(key.daddr).packed
        candidates, skipped = self.table.candidates(key.daddr) or (), 0
        while True:
            label = self.table.choose(key, self.turns[key])
            assert label is not None
            self.turns[key] += 1
            at = slot((pod, edge), label)
            if not self.left[at] or skipped == min(len(candidates), MOST_SKIPPED):
                return label
            self.left[at] -= 1
            skipped += 1

    def lost(self, rack: tuple[int, int], label: Label) -> None:
        at = slot(rack, label)
        self.left[at] = min(MOST, self.left[at] + LOSS)


@pytest.mark.parametrize("carrier", [Carrier.MAC, Carrier.OPTION, Carrier.SRV6])
@pytest.mark.parametrize("inter_pod", [INTER_POD, HEAVY, MANY], ids=len)
def test_program_and_model_skip_alike(carrier: Carrier, inter_pod: tuple[Label, ...]) -> None:
    """Retransmissions are those that the agent itself is told of; tables change meanwhile."""
    draw = random.Random(f"{carrier} {len(inter_pod)}")
    whole = table(policy=Policy.SOPA_SKIP, inter_pod=inter_pod)
    with Labeller("lo", carrier=carrier, fabric_mtu=9000) as labeller:
        model, following, losses = Model(whole), Counter[int](), 0
        for number in range(5000):
            if number % 1000 == 0:
                model.table = whole if number % 2000 == 0 else table(policy=Policy.SOPA_SKIP, inter_pod=inter_pod[1:])
                labeller.swap(model.table)
            if draw.random() < 0.01:  # all of them: there is a path nevertheless
                for label in inter_pod:
                    set_counter(labeller, label, MOST)
                    model.left[slot((2, 1), label)] = MOST
            sport, dst = draw.randrange(40000, 40006), draw.choice((FAR, FAR, NEAR))
            sport += 10 * (dst == NEAR)
            seq = following[sport]
            if draw.random() < 0.1:
                seq = max(0, seq - 100 * draw.randrange(1, 30))
            chosen = model.choose(FlowKey.of(HERE, dst, TCP, sport, 5001))
            assert send(labeller, segment(seq, 100, sport=sport, dst=dst)) == chosen
            following[sport] = max(following[sport], seq + 100)
            for rack, label in again(labeller):
                losses += 1
                model.lost(rack, label)
        assert losses > 200
        assert counters(labeller) == +model.left
        assert flow_positions(labeller) == model.turns


def test_a_loss_takes_exactly_four_turns_from_its_path_and_no_more(fresh: Labeller) -> None:
    fresh.swap(SKIPPING)
    order = [send(fresh, segment(100 * number, 100)) for number in range(4)]
    assert sorted(order) == sorted(INTER_POD)
    assert send(fresh, segment(100, 100)) == order[0]  # that of the second one is lost
    rest, without = order[2:], [label for label in order if label != order[1]]
    wanted = [*rest, *without * 3, *order * 5]
    assert [send(fresh, segment(1000 + 100 * number, 100)) for number in range(len(wanted))] == wanted
    assert counters(fresh) == {}


def test_a_healthy_fabric_has_the_turns_of_round_robin(fresh: Labeller) -> None:
    fresh.swap(SKIPPING)
    flows = {sport: FlowKey.of(HERE, FAR, TCP, sport, 5001) for sport in range(40000, 40050)}
    for number in range(40):
        for sport, key in flows.items():
            assert send(fresh, segment(100 * number, 100, sport=sport)) == table().choose(key, number)
    assert counters(fresh) == {}


def test_losses_keep_a_counter_at_fifteen(fresh: Labeller) -> None:
    fresh.swap(SKIPPING)
    send(fresh, segment(0, 100))
    for _ in range(200):
        fresh.run(segment(0, 100))
        assert max(counters(fresh).values()) <= MOST
    assert fresh.counters()["labelled"] == 201


@pytest.mark.parametrize("rack", [(2, 0), (3, 1)])
def test_the_same_label_to_another_rack_loses_nothing(fresh: Labeller, rack: tuple[int, int]) -> None:
    fresh.swap(SKIPPING)
    for label in INTER_POD:
        set_counter(fresh, label, MOST)
    dst = f"10.{rack[0]}.{rack[1]}.2"
    key = FlowKey.of(HERE, dst, TCP, 40000, 5001)
    assert [send(fresh, segment(100 * at, 100, dst=dst)) for at in range(8)] == [table().choose(key, at) for at in range(8)]


def test_packets_on_their_way_out_skip_by_their_gateways_rack(fresh: Labeller) -> None:
    way = WayOut(bytes.fromhex("02000a030102"), INTER_POD)
    fresh.swap(SKIPPING._replace(destinations=(-1,) * 8, ways_out=(way,)))
    set_counter(fresh, (0, 1), 2, rack=(3, 1))
    taken = Counter(send(fresh, segment(100 * at, 100, dst="192.0.2.9")) for at in range(14))
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
        inside(pair.peer),
        socket.create_server((PEER_ADDRESS, 5001)) as server,
        inside(pair.host),
        socket.create_connection((PEER_ADDRESS, 5001), PATIENCE_SECONDS) as client,
    ):
        with server.accept()[0] as accepted:
            client.sendall(b"before")
            assert accepted.recv(6, socket.MSG_WAITALL) == b"before"
            bad.set_loss(LINK, LOWER, 1.0, seed=1)
            client.sendall(b"unacknowledged")
            eventually(lambda: MOST in counters(labeller).values())
            assert len(again(labeller)) <= 3  # one of them by a tail loss probe
            bad.set_loss(LINK, LOWER, 0.0, seed=1)
            client.sendall(b"and on")
            assert accepted.recv(20, socket.MSG_WAITALL) == b"unacknowledgedand on"
