"""What the labelling programs count by path: every labelled packet under the word that it carries, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from flowrules.word import Carrier
from sopa_ryu.agent.paths.path_table import Word
from sopa_ryu.agent.tagger import Tagger
from tests.bpf.packets import (
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

MakeTagger = Callable[..., Tagger]
HALF = 2


def counted(tagger: Tagger, half: int = HALF) -> dict[Word, int]:
    return {word: packets for word, packets in tagger.counted.by_path(half).items() if packets}


@pytest.mark.parametrize("carrier", Carrier)
def test_a_packet_counts_under_the_word_that_it_carries(make_tagger: MakeTagger, carrier: Carrier) -> None:
    tagger = make_tagger(carrier=carrier)
    tagger.swap(table())
    carried: Counter[Word] = Counter()
    for number in range(300):
        frame = tcp(sport=number % 7, dst=(FAR, NEAR, SAME_RACK)[number % 3])
        labelled = tagger.run(frame).data
        carried[(labelled[10], labelled[11]) if carrier is Carrier.MAC else (labelled[36], labelled[37])] += 1
    assert set(carried) == {*INTRA_RACK, *INTER_RACK, *INTER_POD}
    assert counted(tagger) == carried
    assert sum(carried.values()) == tagger.counters()["labelled"]


@pytest.mark.parametrize("carrier", Carrier)
def test_what_goes_out_without_a_path_counts_under_none(make_tagger: MakeTagger, carrier: Carrier) -> None:
    tagger = make_tagger(carrier=carrier)
    tagger.run(tcp())  # no table yet
    tagger.swap(table())
    full_header = tcp(options=bytes([1] * 40))
    for frame in (tcp(dst="192.0.2.1"), tcp()[:36], tcp()[:12] + b"\x08\x06" + tcp()[14:]):
        tagger.run(frame)
    if carrier is Carrier.OPTION:
        tagger.run(full_header)
    assert counted(tagger) == {}
    assert tagger.counters()["labelled"] == 0


def test_every_kind_of_packet_counts_once_whatever_happens_to_its_turn(make_tagger: MakeTagger) -> None:
    tagger = make_tagger(flows=1)
    tagger.swap(table())
    frames = [ip(ports(1, 2), proto=proto) for proto in (UDP, SCTP)] + [echo(9), tcp(fragment=0x2000), tcp(vlan=5)]
    for frame in frames:
        tagger.run(frame)
    tagger.run(tcp(), gso_segments=5)
    assert sum(counted(tagger).values()) == tagger.counters()["labelled"] == len(frames) + 1


def test_the_largest_fat_trees_words_have_counters_of_their_own(tagger: Tagger) -> None:
    half = 64
    words = ((0, 0), (0, 63), (63, 0), (63, 63), (62, 63), (63, 62))
    tagger.swap(table(inter_pod=words))
    for _ in range(6):
        tagger.run(tcp())
    tagger.run(tcp(dst=SAME_RACK))
    assert counted(tagger, half) == dict.fromkeys((*words, (0xFF, 0xFF)), 1)
    assert len(tagger.counted.by_path(half)) == half * half + half + 1


def test_a_new_table_sets_no_counter_back(tagger: Tagger) -> None:
    tagger.swap(table())
    for _ in range(8):
        tagger.run(tcp())
    tagger.swap(table(inter_pod=INTER_POD[:1]))
    for _ in range(8):
        tagger.run(tcp())
    assert counted(tagger) == {INTER_POD[0]: 10} | dict.fromkeys(INTER_POD[1:], 2)
