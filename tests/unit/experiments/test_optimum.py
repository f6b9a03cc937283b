"""The best possible rates against networkx' max-flow and against what can be seen by hand."""

from itertools import pairwise

import networkx
import pytest

from experiments.bench.optimum import max_min
from experiments.workloads import inter_pod_permutation
from tests.helpers.random_fabrics import random_fabric
from topologies import FatTree


def test_flows_of_an_even_fabric_have_their_links() -> None:
    tree = FatTree(4)
    assert max_min(tree, inter_pod_permutation(tree, 1)) == pytest.approx([1.0] * 16)


def test_those_that_are_limited_leave_the_rest_to_others() -> None:
    tree = FatTree(4)
    a, b, c, d = (tree.host(name) for name in ("h0_0_2", "h1_0_2", "h1_1_2", "h2_0_2"))
    # two send to one host; one of them has another flow, which gets what is left of its link
    assert max_min(tree, [(a, b), (d, b), (d, c)]) == pytest.approx([0.5, 0.5, 0.5])
    assert max_min(tree, [(a, b), (d, b), (c, b), (d, c)]) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])


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
