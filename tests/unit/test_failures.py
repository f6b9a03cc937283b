"""Which candidate paths a failure costs, held against the graph with the failed elements taken out."""

import random

import networkx
import pytest

from topologies import Failures, FatTree, Host, Level, Switch, TopologyError


@pytest.mark.parametrize("k", [4, 6, 8])
@pytest.mark.parametrize("seed", range(6))
def test_usable_paths_are_exactly_the_shortest_paths_that_are_left(k: int, seed: int) -> None:
    tree, choose = FatTree(k), random.Random(seed)
    names = [tree.name(link) for link in tree.links()] + [tree.name(switch) for switch in tree.switches()]
    failures = Failures(tree, dict.fromkeys(choose.sample(names, 6), "down"))
    graph = tree.graph()
    for name in failures:
        if "-" in name:
            graph.remove_edge(*name.split("-"))
    graph.remove_nodes_from([name for name in failures if "-" not in name])
    hosts = list(tree.hosts())
    for _ in range(20):
        src, dst = choose.sample(hosts, 2)
        usable, excluded = failures.split(src, dst)
        # valley-free paths only: a detour that the graph would find is not a candidate
        length = len(tree.candidate_paths(src, dst)[0].hops)
        ways = networkx.all_simple_paths(graph, tree.name(src), tree.name(dst), cutoff=length + 1)
        assert sorted(way[1:-1] for way in ways) == sorted(list(path.hops) for path in usable)
        assert len(usable) + len(excluded) == len(tree.choices(tree.kind(src, dst)))


def test_a_failure_says_what_it_costs_and_why() -> None:
    tree = FatTree(4)
    failures = Failures(tree, {"a0_0-c0_1": "down"}).with_failed("a2_1", "drained")
    usable, excluded = failures.split(Host(0, 0, 2), Host(2, 0, 2))
    assert [path.up for path in usable] == [(0, 0)]
    assert dict(excluded) == {
        (1, 0): "switch a2_1 drained",
        (0, 1): "link a0_0-c0_1 down",
        (1, 1): "switch a2_1 drained",
    }
    assert failures.without("a2_1") == Failures(tree, {"a0_0-c0_1": "down"})


def test_a_failure_of_nothing_known_is_refused() -> None:
    for name in ("a0_0-a0_1", "s1", "h0_0_2"):
        with pytest.raises(TopologyError):
            Failures(FatTree(4), {name: "down"})


@pytest.mark.parametrize("k", [2, 4, 6])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_said_of_racks_is_what_is_said_of_their_hosts(k: int, seed: int) -> None:
    tree, choose = FatTree(k), random.Random(seed)
    names = [tree.name(link) for link in tree.links() if isinstance(link.lower, Switch)]
    names += [tree.name(switch) for switch in tree.switches()]
    failures = Failures(tree, dict.fromkeys(choose.sample(names, min(seed, len(names))), "down"))
    for edge in tree.switches(Level.EDGE):
        src = next(tree.hosts_of(edge))
        choices = failures.choices_from(edge)
        assert list(choices) == list(tree.switches(Level.EDGE))
        for rack, ups in choices.items():
            assert list(ups) == [path.up for path in failures.split(src, next(tree.hosts_of(rack)))[0]]
