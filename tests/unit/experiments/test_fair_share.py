"""Max-min fair shares: small cases by hand, and what defines them, for any."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads.pairs import inter_pod_permutation
from tests.models.fair_share import Hop, hashed, max_min
from topologies import FatTree, Level, Switch

SWITCHES = [Switch(Level.CORE, 0, index) for index in range(8)]
HOPS: list[Hop] = [(a, b) for a in SWITCHES[:3] for b in SWITCHES[3:5]]


def test_flows_share_a_link_and_get_what_another_cannot_use() -> None:
    a, b = HOPS[:2]
    assert max_min([[a], [a]]) == [0.5, 0.5]
    assert max_min([[a], [a], [a, b], [b]]) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])
    assert max_min([[], [a]]) == [float("inf"), 1.0]
    assert max_min([]) == []


@given(st.lists(st.sets(st.sampled_from(HOPS), min_size=1), min_size=1, max_size=12))
def test_every_flow_has_a_full_link_on_which_no_flow_has_more(ways: list[set[Hop]]) -> None:
    rates = max_min([list(way) for way in ways])
    loads: Counter[Hop] = Counter()
    most: dict[Hop, float] = {}
    for way, rate in zip(ways, rates, strict=True):
        for hop in way:
            loads[hop] += rate  # type: ignore[assignment]
            most[hop] = max(most.get(hop, 0.0), rate)
    assert all(load <= 1 + 1e-9 for load in loads.values())
    for way, rate in zip(ways, rates, strict=True):
        assert any(loads[hop] > 1 - 1e-9 and rate >= most[hop] - 1e-9 for hop in way)


def test_hashing_wastes_a_third_and_the_same_seed_wastes_the_same() -> None:
    tree = FatTree(4)
    pairs = inter_pod_permutation(tree, 1)
    rates = hashed(tree, pairs, 1)
    assert rates == hashed(tree, pairs, 1)
    assert rates != hashed(tree, pairs, 2)
    assert all(0 < rate <= 1 for rate in rates)
    means = [sum(hashed(tree, pairs, seed)) / len(pairs) for seed in range(20)]
    assert 0.4 < sum(means) / len(means) < 0.75
