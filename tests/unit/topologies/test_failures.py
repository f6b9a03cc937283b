"""What failures exclude and leave, compared with the graph without the failed elements, and with links and racks one by one."""

import random
from itertools import combinations, pairwise

import pytest

from tests.helpers.random_fabrics import random_fabric, some_pairs
from topologies import Clos, Failures, FatTree, Level, TopologyError
from topologies.failures import Reason
from topologies.impact import groups, left, links_of

FABRICS = [*(FatTree(k) for k in (2, 4, 6, 8) for _ in range(3)), *(random_fabric(seed, most=30) for seed in range(12))]
some_fabric = pytest.mark.parametrize(
    ("tree", "seed"), [pytest.param(tree, seed, id=f"{tree.title} {seed}") for seed, tree in enumerate(FABRICS)]
)


def random_failures(tree: Clos, choose: random.Random, most: int = 6) -> Failures:
    names = [tree.name(each) for each in (*tree.links(), *tree.switches())]
    reasons = ["down", "silent", "miswired", "missing", Reason.DRAINED]
    failed = choose.sample(names, choose.randint(0, min(most, len(names))))
    return Failures(tree, {name: choose.choice(reasons) for name in failed})


@some_fabric
def test_usable_paths_are_exactly_the_candidate_paths_that_are_left(tree: Clos, seed: int) -> None:
    failures = random_failures(tree, random.Random(seed))
    graph = tree.graph()
    graph.remove_edges_from(name.split("-") for name in failures if "-" in name)
    graph.remove_nodes_from([name for name in failures if "-" not in name])
    for src, dst in some_pairs(tree, 8, seed):
        usable, excluded = failures.split(src, dst)
        paths = tree.candidate_paths(src, dst)
        assert len(usable) + len(excluded) == len(paths)
        here, there = tree.edge_of(src), tree.edge_of(dst)
        if failures.alive(tree.link(src, here), tree.link(dst, there)):  # what is said of hosts is said of their racks
            assert list(failures.choices_from(here)[there]) == [path.up for path in usable]
        for path in paths:
            nodes = [tree.name(src), *path.hops, tree.name(dst)]
            is_left = all(graph.has_edge(*hop) for hop in pairwise(nodes))
            assert (path in usable) == is_left == (path.up not in dict(excluded))
            if not is_left:
                _, name, reason = dict(excluded)[path.up].split(" ", 2)
                assert failures[name] == reason
                assert name in nodes or set(name.split("-")) in map(set, pairwise(nodes))


@some_fabric
def test_a_change_is_known_by_recomputing_the_affected_pods_alone(tree: Clos, seed: int) -> None:
    choose = random.Random(seed)
    before, after = random_failures(tree, choose, 4), random_failures(tree, choose, 4)
    if seed % 2:  # or what fails is added to what had failed
        after = Failures(tree, {**before, **after})
    changed = before.keys() ^ after.keys()
    edges = list(tree.switches(Level.EDGE))
    for edge in choose.sample(edges, min(6, len(edges))):
        affected = after.pods_affected(edge, changed)
        untouched = set(range(tree.pods)) - affected
        assert before.choices_from(edge, untouched) == after.choices_from(edge, untouched)
        assert list(after.choices_from(edge)) == edges
        recomputed = after.choices_from(edge, affected)
        assert before.choices_from(edge) | recomputed == after.choices_from(edge)
        assert {rack.pod for rack in recomputed} == affected
        assert before.pods_affected(edge, changed) == affected


def test_the_pods_affected_by_a_failure_are_those_that_lose_paths() -> None:
    tree = FatTree(4)
    healthy, edge = Failures(tree), tree.switch("e1_0")
    for name in [tree.name(each) for each in (*tree.links(), *tree.switches())]:
        failed = healthy.with_failed(name)
        before, after = healthy.choices_from(edge), failed.choices_from(edge)
        felt = {rack.pod for rack in before if before[rack] != after[rack]}
        assert failed.pods_affected(edge, [name]) == felt, name
        assert failed.without(name) == healthy
    assert healthy.pods_affected(edge, []) == set()
    assert healthy.pods_affected(edge, ["e3_0-a3_1", "e1_1", "h0_0_2-e0_0"]) == {1, 3}


def test_a_failure_or_change_of_nothing_known_is_refused() -> None:
    tree = FatTree(4)
    for name in ("a0_0-a0_1", "s1", "h0_0_2"):
        with pytest.raises(TopologyError):
            Failures(tree, {name: "down"})
    with pytest.raises(TopologyError):
        Failures(tree).pods_affected(tree.switch("e0_0"), ["a0_0-c1_0"])


@some_fabric
def test_pairs_without_a_path_are_those_without_candidate_paths(tree: Clos, seed: int) -> None:
    failures = random_failures(tree, random.Random(seed), 20)
    pairs = combinations(tree.switches(Level.EDGE), 2)
    counts = [len(failures.choices_from(one)[other]) for one, other in pairs]
    found = left(failures)
    assert (found.pairs, found.fewest) == (counts.count(0), min(filter(None, counts), default=None))
    for level, (worst, _) in found.oversubscription.items():
        ratios = []
        for switch in filter(failures.alive, tree.switches(Level[level.upper()])):
            above = sum(failures.alive(link, link.upper) for link in tree.links_above(switch))
            below = [link for link in links_of(tree, switch) if link.upper == switch and failures.alive(link, link.lower)]
            ratios.append((len(below) if below or level != "edge" else tree.hosts_per_edge) / above if above else float("inf"))
        assert worst == max(ratios)


@some_fabric
def test_groups_are_switches_of_which_every_link_has_failed_and_explain_each_of_them_once(tree: Clos, seed: int) -> None:
    draw = random.Random(seed)
    switches = draw.sample(list(tree.switches()), min(3, tree.switch_count))
    silent = {tree.name(link) for switch in switches for link in links_of(tree, switch)}
    failures = Failures(tree, dict.fromkeys(silent, "silent"))
    found = groups(failures)
    for group in found:
        assert sorted(group.links) == sorted(tree.name(link) for link in links_of(tree, tree.switch(group.switch)))
    of = [name for group in found for name in group.links]
    assert silent.issuperset(of)
    for switch in switches:  # one link may be left to another switch's group
        links = {tree.name(link) for link in links_of(tree, switch)}
        assert len(links - set(of)) < 2, switch
    some = draw.choice(sorted(silent)) if silent else ""
    assert not silent or all(some not in group.links for group in groups(failures.without(some)))
