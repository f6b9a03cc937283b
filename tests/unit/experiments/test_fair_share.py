"""Max-min fair shares: what defines them, for any flows."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads.pairs import inter_pod_permutation
from tests.models.fair_share import Hop, hashed, max_min
from topologies import FatTree, Level, Switch

SWITCHES = [Switch(Level.CORE, 0, index) for index in range(8)]
HOPS: list[Hop] = [(a, b) for a in SWITCHES[:3] for b in SWITCHES[3:5]]


def test_a_flow_without_links_has_no_bound() -> None:
    assert max_min([[], HOPS[:1]]) == [float("inf"), 1.0]
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
