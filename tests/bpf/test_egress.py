"""The labelling program, packet by packet (BPF_PROG_TEST_RUN), against its Python twin, and the tables that it is given."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any

import pytest

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.counters import OTHERS
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy, WayOut
from tests.helpers.frames import FAR, HERE, INTER_POD, INTER_RACK, INTRA_RACK, PREFIX, SAME_RACK, TCP, table, tcp, word_of
from tests.helpers.path_tables import flow_positions, map_entries, read_table, set_flow
from topologies import Clos, FatTree

UNSPEC = 0xFFFFFFFF
MakeLabeller = Callable[..., Labeller]


def words(labeller: Labeller, frame: bytes, count: int) -> list[Label | None]:
    return [word_of(labeller.run(frame).data) for _ in range(count)]


def test_the_position_is_exact_beyond_32_bits_of_packets(labeller: Labeller) -> None:
    three = INTER_POD[:3]  # 2**32 is no multiple of 3: a 32-bit counter would stumble here
    labeller.swap(table(inter_pod=three))
    key = FlowKey.of(HERE, FAR, TCP, 40000, 5001)
    n = 2**32 - 5
    set_flow(labeller, key, turns=n)
    assert words(labeller, tcp(), 12) == [table(inter_pod=three).choose(key, n + step) for step in range(12)]


def test_a_full_flow_table_forgets_old_flows_and_labels_all_packets(make_labeller: MakeLabeller) -> None:
    labeller = make_labeller(flows=64)
    labeller.swap(table())
    for port in range(2000):
        assert words(labeller, tcp(sport=port), 1)[0] in INTER_POD
    assert 0 < len(flow_positions(labeller)) <= 64
    assert labeller.counters()["labelled"] == 2000


WAYS = tuple(WayOut(bytes.fromhex(f"02000a0{pod}0002"), labels) for pod, labels in enumerate((INTRA_RACK, INTER_POD, INTER_RACK)))
MANY_FLOWS = [tcp(sport=port) for port in range(1024, 5120)]


@pytest.mark.parametrize(
    ("policy", "frames"), [(Policy.RANDOM, [tcp()] * 4096), (Policy.HASH, MANY_FLOWS), (Policy.ROUND_ROBIN, MANY_FLOWS)], ids=str
)
def test_what_is_random_is_spread_evenly(labeller: Labeller, policy: Policy, frames: list[bytes]) -> None:
    labeller.swap(table(policy=policy))
    taken = Counter(word for frame in frames for word in words(labeller, frame, 1))
    assert set(taken) == set(INTER_POD)
    assert all(900 < count < 1150 for count in taken.values())  # 1024 expected, 4 standard deviations: 111


def test_without_a_table_packets_go_out_as_they_are(fresh: Labeller) -> None:
    assert read_table(fresh) is None
    assert fresh.run(tcp()).data == tcp()
    assert {name: count for name, count in fresh.counters().items() if count} == {"no_table": 1}


def test_the_kernel_holds_what_was_swapped_in(labeller: Labeller) -> None:
    many = tuple((up1, up2) for up2 in range(24) for up1 in range(24))
    destinations = tuple(2 - (at % 4 == 3) * 3 if at > 1 else at for at in range(1152))
    big = PathTable(IPv4Network("10.0.0.0/8"), 24, (INTRA_RACK, INTER_RACK, many), destinations, 99, Policy.RANDOM)
    ways = [table()._replace(ways_out=ways, leads_out=not ways, prefix=PREFIX) for ways in (WAYS, (), WAYS[:1])]
    for swapped in (table(), big, *ways, *(table(seed=3, policy=policy) for policy in Policy)):
        labeller.swap(swapped)
        assert read_table(labeller) == swapped
        assert len(swapped.encode()) == 8 * swapped.words


def test_a_table_of_at_most_the_same_size_is_swapped_in_without_waiting(fresh: Labeller) -> None:
    ready: list[bool] = []
    few, many = ((1, 1), (1, 2)), tuple((up1, up2) for up2 in range(24) for up1 in range(24))
    for candidates in (few, many, few, many, few):
        ready.append(fresh.tables.ready_for(table(inter_pod=candidates)))
        fresh.swap(table(inter_pod=candidates))
        assert not fresh.tables.ready_for(table(inter_pod=few))
        fresh.tables.settle()
    assert ready == [False, False, True, True, True]


def test_no_packet_sees_parts_of_two_tables(labeller: Labeller) -> None:
    # Sets, their places and their sizes differ: a mix of two tables would give words of neither, or none at all.
    small: tuple[Label, ...] = ((1, 1), (1, 2), (1, 3))
    large = tuple((2, up2) for up2 in range(200))
    tables = [table(inter_pod=small), table(inter_pod=large)._replace(sets=(large, INTRA_RACK, small, large))]
    tables[1] = tables[1]._replace(destinations=(1, 1, 3, 0, 3, 3, 0, 3))
    labeller.swap(tables[0])
    done = threading.Event()
    swaps = 0

    def keep_swapping() -> None:
        nonlocal swaps
        while not done.is_set():
            swaps += 1
            labeller.swap(tables[swaps % 2])
            if swaps % 3:
                labeller.tables.settle()

    swapper = threading.Thread(target=keep_swapping)
    swapper.start()
    try:
        seen: Counter[Label | None] = Counter()
        while swaps < 60 or not {*small} < {*seen}:
            seen[word_of(labeller.run(tcp(), repeat=7).data)] += 1
    finally:
        done.set()
        swapper.join()
    assert set(seen) <= {*small, *large}
    counters = labeller.counters()
    assert counters.pop("labelled") == 7 * seen.total()
    assert set(counters.values()) == {0}


def test_an_inactive_table_is_refilled_only_after_an_rcu_grace_period(fresh: Labeller, monkeypatch: pytest.MonkeyPatch) -> None:
    # No test can make a packet last long enough to be caught reading it, so what is seen here are the calls to the kernel: every
    # update of an array of maps waits, also one of the same map.
    calls: list[str] = []
    update, fill = libbpf.update, libbpf.fill_array
    size = 4

    def updating(fd: int, key: bytes, value: bytes) -> None:
        calls.append("turn" if map_entries(fd) == 1 else "wait")
        update(fd, key, value)

    def filling(*arguments: Any) -> None:
        calls.append("fill")
        fill(*arguments)

    monkeypatch.setattr(libbpf, "update", updating)
    monkeypatch.setattr(libbpf, "fill_array", filling)
    for turn in range(size):
        fresh.swap(table())
        if turn % 2:
            fresh.tables.settle()
    found = "".join(call[0] for call in calls)
    assert found.count("f") == found.count("t") == size
    assert "wftw" in found
    assert "tf" not in found


@pytest.mark.parametrize("version", [0, 2**24 - 3, 2**27 - 4])
def test_a_flow_that_knows_its_candidates_takes_those_of_the_table_in_force(labeller: Labeller, version: int) -> None:
    """Also if the table in force is in the place of the one that the flow knows, and when the versions begin anew."""
    labeller.tables._version = version
    draw = random.Random(version)
    key = FlowKey.of(HERE, FAR, TCP, 40000, 5001)
    sent = 0
    for _ in range(12):
        chosen_from = table(inter_pod=tuple(draw.sample(INTER_POD, draw.randrange(2, 5))))
        labeller.swap(chosen_from)
        packets = draw.randrange(4)  # none: two swaps in a row, to the same place
        assert words(labeller, tcp(), packets) == [chosen_from.choose(key, sent + n) for n in range(packets)]
        sent += packets


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stride": 0}, "stride"),
        ({"stride": 256}, "stride"),
        ({"seed": 1 << 32}, "seed"),
        ({"seed": -1}, "seed"),
        ({"policy": 8}, "Policy"),
        ({"destinations": (3,)}, "set outside"),
        ({"destinations": (-2,)}, "set outside"),
        ({"sets": (((0, 256),),), "destinations": (0,)}, "range"),
        ({"sets": (((0, 1),) * 8192,), "destinations": (0,)}, "room for 8191 candidates"),
        ({"policy": Policy.FLOWLET}, "needs a parameter"),
        ({"policy": Policy.FLOWCELL, "parameter": -1}, "needs a parameter"),
        ({"policy": Policy.FLOWLET, "parameter": 1 << 63}, "needs a parameter"),
    ],
)
def test_a_table_that_cannot_be_encoded_is_refused_and_the_old_one_stays(
    labeller: Labeller, change: dict[str, object], complaint: str
) -> None:
    labeller.swap(table())
    with pytest.raises(ValueError, match=complaint):
        labeller.swap(table()._replace(**change))  # type: ignore[arg-type]
    assert read_table(labeller) == table()


def test_words_of_the_largest_fat_tree_have_counters_of_their_own_and_above_63_one_together(labeller: Labeller) -> None:
    largest = ((0, 0), (0, 63), (63, 0), (63, 63), (62, 63), (63, 62))
    above = ((0, 36), (0, 64), (64, 0), (100, 200), (253, 253))
    for each in (largest, above):
        labeller.swap(table(inter_pod=each))
        for _ in each:
            labeller.run(tcp())
        labeller.run(tcp(dst=SAME_RACK))
    counted = labeller.counted.by_path(FatTree(128))
    assert +Counter(counted) == {**dict.fromkeys((*largest, (0, 36)), 1), (0xFF, 0xFF): 2}
    assert len(counted) == 64 * 64 + 64 + 1
    assert labeller.counted.by_path(Clos(pods=2, edges=2, aggregations=254, cores=254 * 254, hosts=2))[OTHERS] == 4
