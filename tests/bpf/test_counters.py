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
    """Of every kind, and also after another table is in force; without a path under none."""
    labeller = make_labeller(carrier=carrier)
    carried: Counter[Label] = Counter()
    for inter_pod in (INTER_POD, INTER_POD[:1]):
        labeller.swap(table(inter_pod=inter_pod))
        frames = [tcp(sport=number % 7, dst=(FAR, NEAR, SAME_RACK)[number % 3]) for number in range(100)]
        frames += [ip(ports(1, 2), proto=proto) for proto in (UDP, SCTP)] + [echo(9), tcp(fragment=0x2000)]
        for number, frame in enumerate(frames):
            labelled = labeller.run(frame, gso_segments=5 * (number == 0)).data
            carried[(labelled[10], labelled[11]) if carrier is Carrier.MAC else (labelled[36], labelled[37])] += 1
        for frame in (tcp(dst="192.0.2.1"), tcp()[:36], tcp()[:12] + b"\x08\x06" + tcp()[14:]):
            labeller.run(frame)
    if carrier is Carrier.OPTION:
        labeller.run(tcp(options=bytes([1] * 40)))  # a full header
    assert set(carried) == {*INTRA_RACK, *INTER_RACK, *INTER_POD}
    assert counted(labeller) == carried
    assert sum(carried.values()) == labeller.counters()["labelled"]


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
