"""Counters by path of the labelling programs: every labelled packet is counted under its label, and no other packet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.counters import OTHERS
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import Label
from tests.helpers.frames import (
    FAR,
    INTER_POD,
    INTER_RACK,
    INTRA_RACK,
    NEAR,
    SAME_RACK,
    SCTP,
    UDP,
    echo,
    ip,
    ports,
    table,
    tcp,
)
from topologies import Clos, FatTree

MakeLabeller = Callable[..., Labeller]
HALF = 2


def counted(labeller: Labeller, half: int = HALF) -> dict[Label, int]:
    return {word: packets for word, packets in labeller.counted.by_path(FatTree(2 * half)).items() if packets}


@pytest.mark.parametrize("carrier", Carrier)
def test_a_packet_counts_under_the_word_that_it_carries(make_labeller: MakeLabeller, carrier: Carrier) -> None:
    labeller = make_labeller(carrier=carrier)
    labeller.swap(table())
    carried: Counter[Label] = Counter()
    for number in range(300):
        frame = tcp(sport=number % 7, dst=(FAR, NEAR, SAME_RACK)[number % 3])
        labelled = labeller.run(frame).data
        carried[(labelled[10], labelled[11]) if carrier is Carrier.MAC else (labelled[36], labelled[37])] += 1
    assert set(carried) == {*INTRA_RACK, *INTER_RACK, *INTER_POD}
    assert counted(labeller) == carried
    assert sum(carried.values()) == labeller.counters()["labelled"]


@pytest.mark.parametrize("carrier", Carrier)
def test_what_goes_out_without_a_path_counts_under_none(make_labeller: MakeLabeller, carrier: Carrier) -> None:
    labeller = make_labeller(carrier=carrier)
    labeller.run(tcp())  # no table yet
    labeller.swap(table())
    full_header = tcp(options=bytes([1] * 40))
    for frame in (tcp(dst="192.0.2.1"), tcp()[:36], tcp()[:12] + b"\x08\x06" + tcp()[14:]):
        labeller.run(frame)
    if carrier is Carrier.OPTION:
        labeller.run(full_header)
    assert counted(labeller) == {}
    assert labeller.counters()["labelled"] == 0


def test_every_kind_of_packet_counts_once_whatever_happens_to_its_turn(make_labeller: MakeLabeller) -> None:
    labeller = make_labeller(flows=1)
    labeller.swap(table())
    frames = [ip(ports(1, 2), proto=proto) for proto in (UDP, SCTP)] + [echo(9), tcp(fragment=0x2000), tcp(vlan=5)]
    for frame in frames:
        labeller.run(frame)
    labeller.run(tcp(), gso_segments=5)
    assert sum(counted(labeller).values()) == labeller.counters()["labelled"] == len(frames) + 1


def test_the_largest_fat_trees_words_have_counters_of_their_own(labeller: Labeller) -> None:
    half = 64
    words = ((0, 0), (0, 63), (63, 0), (63, 63), (62, 63), (63, 62))
    labeller.swap(table(inter_pod=words))
    for _ in range(6):
        labeller.run(tcp())
    labeller.run(tcp(dst=SAME_RACK))
    assert counted(labeller, half) == dict.fromkeys((*words, (0xFF, 0xFF)), 1)
    assert len(labeller.counted.by_path(FatTree(2 * half))) == half * half + half + 1


def test_labels_of_uplinks_above_63_have_one_counter_together(labeller: Labeller) -> None:
    words = ((0, 36), (0, 64), (64, 0), (100, 200), (253, 253))
    labeller.swap(table(inter_pod=words))
    for _ in range(5):
        labeller.run(tcp())
    found = labeller.counted.by_path(Clos(pods=2, edges=2, aggregations=254, cores=254 * 254, hosts=2))
    assert {label: packets for label, packets in found.items() if packets} == {(0, 36): 1, OTHERS: 4}


def test_a_new_table_sets_no_counter_back(labeller: Labeller) -> None:
    labeller.swap(table())
    for _ in range(8):
        labeller.run(tcp())
    labeller.swap(table(inter_pod=INTER_POD[:1]))
    for _ in range(8):
        labeller.run(tcp())
    assert counted(labeller) == {INTER_POD[0]: 10} | dict.fromkeys(INTER_POD[1:], 2)
