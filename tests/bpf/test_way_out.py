"""Packets that leave the fabric by gateways, packet by packet (BPF_PROG_TEST_RUN), against their twin in Python."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, FlowKey
from sopa_ryu.agent.paths.path_table import PARAMETERS, PathTable, Policy, WayOut
from tests.helpers.frames import (
    ETHERNET,
    HERE,
    INTER_POD,
    INTER_RACK,
    INTRA_RACK,
    TCP,
    UDP,
    echo,
    ip,
    ports,
    table,
    tcp,
    word_of,
)
from tests.helpers.path_tables import read_table

OUTSIDE = "198.51.100.7"
MACS = [bytes.fromhex(f"02000a{pod:02x}0002") for pod in range(4)]
WAYS = (WayOut(MACS[0], INTRA_RACK), WayOut(MACS[1], INTER_POD), WayOut(MACS[2], INTER_RACK))
MakeLabeller = Callable[..., Labeller]


def leaving(ways: tuple[WayOut, ...] = WAYS, policy: Policy = Policy.ROUND_ROBIN, **fields: object) -> PathTable:
    return table(policy=policy)._replace(ways_out=ways, **fields)


def flows(count: int, seed: int = 1) -> list[tuple[bytes, FlowKey]]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        dst = str(IPv4Address(draw.choice([draw.randrange(1 << 24, 10 << 24), draw.randrange(11 << 24, 0xE << 28)])))
        proto, sport, dport = draw.choice((TCP, UDP)), draw.randrange(1 << 16), draw.randrange(1 << 16)
        found.append((ip(ports(sport, dport), dst=dst, proto=proto), FlowKey.of(HERE, dst, proto, sport, dport)))
    return found


@pytest.mark.parametrize("carrier", Carrier)
@pytest.mark.parametrize("policy", [each for each in Policy if each is not Policy.LEAST_USED])
def test_the_program_writes_the_gateway_and_the_label_that_its_twin_says(
    make_labeller: MakeLabeller, policy: Policy, carrier: Carrier
) -> None:
    labeller, its = make_labeller(carrier=carrier), leaving(policy=policy, parameter=PARAMETERS.get(policy, 0))
    labeller.swap(its)
    gateways: Counter[bytes] = Counter()
    for frame, key in flows(400):
        sent = labeller.run(frame).data
        way = its.way_out(key)
        assert way is not None
        if carrier is Carrier.MAC:
            assert (sent[:6], word_of(sent), sent[12:]) == (way.mac, its.choose(key, 0), frame[12:])
        else:
            assert sent[:12] == way.mac + ETHERNET[6:]
            assert struct.unpack_from("BBBB", sent, 34) == (0x9E, 4, *(its.choose(key, 0) or ()))
        assert its._replace(seed=77).way_out(key) == way  # the agent restarts
        gateways[way.mac] += 1
    assert len(gateways) == 3
    assert min(gateways.values()) > 80


def test_all_packets_of_a_flow_go_to_one_gateway_by_all_its_paths(labeller: Labeller) -> None:
    labeller.swap(leaving())
    frame, _ = next(flow for flow in flows(50) if leaving().way_out(flow[1]) == WAYS[1])
    sent = [labeller.run(frame).data for _ in range(40)]
    assert {each[:6] for each in sent} == {MACS[1]}
    assert Counter(map(word_of, sent)) == dict.fromkeys(INTER_POD, 10)


@pytest.mark.parametrize(
    ("dst", "ways"),
    [(OUTSIDE, ()), *((dst, WAYS) for dst in ("224.0.0.251", "239.1.2.3", "255.255.255.255", "240.0.0.1"))],
)
def test_without_a_gateway_and_to_a_group_packets_go_out_as_they_are(
    labeller: Labeller, dst: str, ways: tuple[WayOut, ...]
) -> None:
    labeller.swap(leaving(ways))
    frame = tcp(dst=dst)
    assert labeller.run(frame).data == frame
    assert labeller.counters()["outside"] == 1


def test_packets_within_the_fabric_keep_their_ethernet_destination(labeller: Labeller) -> None:
    labeller.swap(leaving())
    for frame in (tcp(), tcp(dst="10.0.1.9"), tcp(dst="10.0.0.9"), echo(1)):
        assert labeller.run(frame).data[:6] == ETHERNET[:6]


def test_the_fragments_between_two_addresses_go_to_one_gateway(labeller: Labeller) -> None:
    its = leaving()
    labeller.swap(its)
    for last in range(1, 30):
        dst = f"198.51.100.{last}"
        sent = set()
        for ident in range(20):
            for fragment in (0x2000, 0x2010, 0x0020):
                frame = ip(ports(ident, 53), dst=dst, proto=UDP, fragment=fragment, ident=ident)
                sent.add(labeller.run(frame).data[:6])
                way = its.way_out(FlowKey(*map(int, map(IPv4Address, (HERE, dst))), ident, UDP | FRAGMENT_KEY))
                assert way is not None
                assert sent == {way.mac}


def test_a_gateway_labels_what_it_brings_in_and_no_other_forwarded_packet(labeller: Labeller) -> None:
    # BPF_PROG_TEST_RUN has packets with a socket; test_forwarded.py has forwarded ones
    its = leaving((), leads_out=True)
    labeller.swap(its)
    frame = tcp(src=OUTSIDE)
    sent = labeller.run(frame).data
    assert word_of(sent) in INTER_POD
    assert sent[:6] == ETHERNET[:6]


def test_the_table_in_the_kernel_is_the_encoded_one(labeller: Labeller) -> None:
    for its in (leaving(), leaving(()), leaving((), leads_out=True), leaving(WAYS[:1])):
        labeller.swap(its)
        assert read_table(labeller) == its
        assert len(its.encode()) == 8 * its.words
