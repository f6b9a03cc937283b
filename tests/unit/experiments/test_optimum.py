"""The best possible rates against networkx' max-flow; those of several flows stand beside Hedera's in test_hedera_placement.py."""

from itertools import pairwise

import networkx
import pytest

from experiments.bench.optimum import max_min
from tests.helpers.random_fabrics import random_fabric


@pytest.mark.parametrize("seed", range(15))
def test_a_flow_alone_has_the_maximum_flow_of_its_candidate_paths(seed: int) -> None:
    tree = random_fabric(seed)
    src, dst = next(tree.hosts()), list(tree.hosts())[-1]
    if src == dst:
        return
    ways: networkx.DiGraph[str] = networkx.DiGraph()
    ways.add_node("source")
    for path in tree.candidate_paths(src, dst):
        nodes = [tree.name(src), *path.hops, tree.name(dst)]
        for one, other in pairwise(nodes):
            ways.add_edge(one, other, capacity=tree.capacity(tree.link(tree.node(one), tree.node(other))))
    best = networkx.maximum_flow_value(ways, tree.name(src), tree.name(dst)) if ways.edges else 0.0
    assert max_min(tree, [(src, dst)]) == pytest.approx([best])
