"""A fabric's numbers against those that networkx and the candidate paths give."""

import random
from collections import Counter
from itertools import combinations

import networkx
import pytest

from tests.helpers.random_fabrics import random_fabric
from topologies import Clos, Level, Switch
from topologies.fabric_summary import Summary

SEEDS = range(30)


def narrowest(tree: Clos) -> float:
    """Return the least capacity between two halves of the pods, or racks of one pod, of all divisions."""
    parts = tree.pods if tree.pods > 1 else tree.edges
    graph = networkx.DiGraph()
    for link in tree.switch_links():
        for one, other in (link, link[::-1]):
            graph.add_edge(one, other, capacity=tree.capacity(link))
    found = []
    for half in combinations(range(parts), parts // 2):
        inside = [edge for edge in tree.switches(Level.EDGE) if (edge.pod if tree.pods > 1 else edge.index) in half]
        divided = graph.copy()
        for edge in tree.switches(Level.EDGE):
            divided.add_edge(*(("from", edge) if edge in inside else (edge, "to")))
        divided.add_nodes_from(("from", "to"))
        found.append(networkx.maximum_flow_value(divided, "from", "to"))
    return min(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bisection_is_the_narrowest_cut(seed: int) -> None:
    tree = random_fabric(seed, most=16, rates=bool(seed % 2))
    found = Summary(tree).bisection()
    assert found.mbit == pytest.approx(narrowest(tree)) if found.exact else found.mbit >= narrowest(tree) - 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_of_racks_are_counted_as_their_candidate_paths_are(seed: int) -> None:
    tree = random_fabric(seed, most=30)
    summary = Summary(tree)
    alone = set(summary.cut_off())
    counted: dict[str, Counter[int]] = {}
    for one, other in combinations(tree.switches(Level.EDGE), 2):
        if one in alone or other in alone:
            continue
        src, dst = (next(tree.hosts_of(edge)) for edge in (one, other))
        counted.setdefault(tree.kind(src, dst), Counter())[len(tree.candidate_paths(src, dst))] += 1
    paths = summary.paths()
    assert {kind: {its.paths: its.pairs for its in counts} for kind, counts in paths.items()} == counted
    for counts in paths.values():
        for its in counts:
            src, dst = (next(tree.hosts_of(tree.switch(name))) for name in its.example)
            assert len(tree.candidate_paths(src, dst)) == its.paths


@pytest.mark.parametrize("seed", SEEDS)
def test_capacities_are_the_sums_of_the_links(seed: int) -> None:
    tree = random_fabric(seed, rates=True)
    summary = Summary(tree)
    below, above = Counter[Switch](), Counter[Switch]()
    for link in tree.links():
        below[link.upper] += tree.capacity(link)  # type: ignore[assignment]
        if isinstance(link.lower, Switch):
            above[link.lower] += tree.capacity(link)  # type: ignore[assignment]
    for switch in tree.switches():
        assert (summary.below(switch), summary.above(switch)) == (below[switch], above[switch])
    for level in (Level.EDGE, Level.AGGREGATION)[: 2 if tree.cores else 1]:
        ratios = [below[its] / above[its] if above[its] else float("inf") for its in tree.switches(level)]
        found = summary.oversubscription(level)
        assert (found.least, found.most) == (min(ratios), max(ratios))


def test_a_fabric_of_many_different_racks_takes_no_longer_than_a_few() -> None:
    choose = random.Random(1)
    racks = [(pod, edge) for pod in range(64) for edge in range(32)]
    links = {f"e{pod}_{edge}-a{pod}_{j}": "absent" for pod, edge in racks for j in choose.sample(range(32), 3)}
    summary = Summary(Clos(64, 32, 32, 1024, 32, links=links))
    assert summary.paths() is None
    found = summary.bisection()
    assert not found.exact
