"""Weights of candidate paths against the linear program, and the sequences in which packets take them."""

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import all_to_all
from topologies import Clos, Failures, FatTree, Host, Level
from topologies.balance import Balance
from topologies.weights import MAX_SEQUENCE, PRECISION, rounded, sequence, weights, weights_from

SEEDS = range(24)


def test_all_to_all_traffic_gets_nearly_the_optimum() -> None:
    """The bandwidth that weights reach as part of the optimum, hosts' links included."""
    parts = {}
    for seed in SEEDS:
        failures = all_to_all.uneven(seed)
        limit = all_to_all.of_hosts(failures)
        best, reached = (min(of(failures), limit) for of in (all_to_all.optimum, all_to_all.of_weights))
        parts[seed] = reached / best if best < float("inf") else 1.0  # no rack reaches another
    worst = min(parts, key=lambda seed: parts[seed])
    assert max(parts.values()) < 1 + 1e-6, "more than the optimum"
    assert median(parts.values()) > 0.95
    assert parts[worst] > 0.85, all_to_all.uneven(worst)


def test_the_bandwidth_that_the_rounds_count_is_that_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topologies.weights.rounded", lambda raw: tuple(one / sum(raw) for one in raw))
    monkeypatch.setattr("topologies.balance.ROUNDS", 0)
    for seed in SEEDS:
        failures = all_to_all.uneven(seed)
        least = [one for one in Balance(failures, 1).least if not failures.tree.even or failures]
        if least:
            monkeypatch.setattr("topologies.weights._balance", lambda *_, failures=failures: Balance(failures, 0))
            assert all_to_all.of_weights(failures) * failures.tree.hosts_per_edge**2 == pytest.approx(least[0]), seed


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_belong_to_the_usable_paths(seed: int) -> None:
    failures = all_to_all.uneven(seed)
    tree = failures.tree
    for src in list(tree.switches(Level.EDGE))[:3]:
        choices, all_weights = failures.choices_from(src), weights_from(failures, src)
        assert list(all_weights) == list(choices)
        for dst, its in all_weights.items():
            assert len(its) == len(choices[dst])
            assert not its or sum(its) == pytest.approx(1)
            hosts = next(tree.hosts_of(src)), list(tree.hosts_of(dst))[-1]
            if hosts[0] != hosts[1]:
                assert weights(failures, *hosts) == its
            # what a pair sends is spread as what it receives
            assert weights_from(failures, dst, [src.pod])[src] == its
        assert weights_from(failures, src, [0]) == {rack: its for rack, its in all_weights.items() if rack.pod == 0}


@pytest.mark.parametrize("fabric", [FatTree(4), FatTree(8), Clos(1, 32, 4, 0, 48), Clos(3, 4, 2, 8, 2, mbit={"edge": 40})])
def test_an_even_fabric_without_failures_has_equal_weights(fabric: Clos) -> None:
    failures = Failures(fabric)
    edge = next(fabric.switches(Level.EDGE))
    choices = failures.choices_from(edge)
    for rack, its in weights_from(failures, edge).items():
        assert its == (1 / len(choices[rack]),) * len(choices[rack])
        assert sequence(choices[rack], its) == choices[rack]


def test_a_failure_that_costs_no_bandwidth_leaves_weights_equal() -> None:
    failures = Failures(FatTree(48), {"a0_0-c0_1": "down"})
    assert weights(failures, Host(0, 0, 2), Host(3, 1, 2)) == (1 / 575,) * 575


def test_in_a_pod_with_a_lost_core_link_inner_traffic_makes_room() -> None:
    by_first, by_second = weights(Failures(FatTree(4), {"a0_0-c0_1": "down"}), Host(0, 0, 2), Host(0, 1, 2))
    assert by_first > by_second


def test_racks_that_nothing_distinguishes_share_one_tuple() -> None:
    tree = FatTree(16)
    failures = Failures(tree, {"a1_0-c0_1": "down", "e2_0-a2_1": "down", "c3_3": "drained"})
    assert len(set(map(id, weights_from(failures, next(tree.switches(Level.EDGE))).values()))) < 10


WEIGHTS = st.lists(st.floats(0.001, 1), min_size=1, max_size=24)


@given(WEIGHTS)
def test_rounding_is_precise_and_stays(raw: list[float]) -> None:
    shares = rounded(tuple(raw))
    assert sum(shares) == pytest.approx(1)
    for share, one in zip(shares, raw, strict=True):
        assert abs(share / max(shares) - one / max(raw)) <= PRECISION * 1.001


@settings(max_examples=40)
@given(WEIGHTS, st.integers(1, 5))
def test_every_window_of_a_sequence_is_even(raw: list[float], switches: int) -> None:
    shares = rounded(tuple(raw))
    choices = tuple((index % switches, index // switches) for index in range(len(raw)))
    order = sequence(choices, shares)
    assert len(order) <= max(MAX_SEQUENCE, len(choices))
    for choice, share in zip(choices, shares, strict=True):
        ahead, seen = [0.0], 0
        for number, path in enumerate(order, start=1):
            seen += path == choice
            ahead.append(seen - share * number)
        assert abs(ahead[-1]) < 1e-6, "the sequence does not repeat evenly"
        # a window's error is the difference of two of these
        assert max(ahead) - min(ahead) < 2


@pytest.mark.parametrize(("firsts", "shares", "repeats"), [
    ((0, 1, 2), (0.5, 0.25, 0.25), 0),
    ((0, 1, 2, 3), (0.25, 0.25, 0.25, 0.25), 0),
    ((0, 1, 0, 1, 0, 1), rounded((2, 1, 2, 3, 1, 1)), 0),
    ((0, 1), (0.6, 0.4), 1),  # others have no room
    ((0, 1), (0.75, 0.25), 2),
])  # fmt: skip
def test_the_aggregation_switch_changes_with_every_packet(firsts: tuple[int, ...], shares: tuple[float, ...], repeats: int) -> None:
    order = sequence(tuple((first, number // 2) for number, first in enumerate(firsts)), shares)
    assert sum(order[at][0] == order[at - 1][0] for at in range(len(order))) == repeats


@pytest.mark.parametrize("slow", [0.3, 0.55, 0.7, 0.9])
@pytest.mark.parametrize("paths", [8, MAX_SEQUENCE // 8, MAX_SEQUENCE // 3])
def test_a_slow_path_gets_hardly_more_than_its_share_where_a_sequence_has_little_room(slow: float, paths: int) -> None:
    shares = rounded((1.0,) * (paths - 1) + (slow,))
    assert sum(shares) == pytest.approx(1)
    assert shares[-1] <= 1.04 * slow * shares[0]
