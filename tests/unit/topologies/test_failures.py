"""The candidate paths that a failure excludes, compared with the graph without the failed elements."""

import random

import networkx
import pytest

from topologies import Failures, FatTree, Host, Level, Link, Switch, TopologyError
from topologies.failures import Reason


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


def random_failures(tree: FatTree, choose: random.Random, most: int = 6) -> Failures:
    names = [tree.name(link) for link in tree.links()] + [tree.name(switch) for switch in tree.switches()]
    reasons = ["down", "silent", "miswired", "missing", Reason.DRAINED]
    failed = choose.sample(names, choose.randint(0, min(most, len(names))))
    return Failures(tree, {name: choose.choice(reasons) for name in failed})


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_what_is_asked_of_some_pods_is_what_is_said_of_them_among_all(k: int) -> None:
    tree, choose = FatTree(k), random.Random(k)
    for _ in range(20):
        failures = random_failures(tree, choose)
        edge = choose.choice(list(tree.switches(Level.EDGE)))
        pods = choose.sample(range(k), choose.randint(0, k))
        some, everything = failures.choices_from(edge, pods), failures.choices_from(edge)
        assert list(some.items()) == [(rack, ups) for rack, ups in everything.items() if rack.pod in pods]


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("seed", range(10))
def test_a_change_is_known_by_recomputing_the_affected_pods_alone(k: int, seed: int) -> None:
    tree, choose = FatTree(k), random.Random(seed)
    before, after = random_failures(tree, choose, 4), random_failures(tree, choose, 4)
    if seed % 2:  # or what fails is added to what had failed
        after = Failures(tree, {**before, **after})
    changed = before.keys() ^ after.keys()
    for edge in tree.switches(Level.EDGE):
        affected = after.pods_affected(edge, changed)
        untouched = set(range(k)) - affected
        assert before.choices_from(edge, untouched) == after.choices_from(edge, untouched)
        recomputed = after.choices_from(edge, affected)
        assert before.choices_from(edge) | recomputed == after.choices_from(edge)
        assert before.pods_affected(edge, changed) == affected


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        (["h1_0_2-e1_0", "h2_0_2-e2_0"], set()),
        (["c0_1"], {0, 2, 3}),
        (["a1_1-c1_0"], {0, 2, 3}),
        (["e1_0"], {0, 1, 2, 3}),
        (["e1_0-a1_1"], {0, 1, 2, 3}),
        (["a1_0"], {0, 1, 2, 3}),
        (["e1_1"], {1}),
        (["e1_1-a1_0"], {1}),
        (["a3_1-c1_0"], {3}),
        (["a3_1"], {3}),
        (["e3_0"], {3}),
        (["e3_0-a3_1"], {3}),
        (["e3_0-a3_1", "e1_1", "h0_0_2-e0_0"], {1, 3}),
        ([], set()),
    ],
)
def test_a_change_affects_no_more_pods_than_it_can(changed: list[str], affected: set[int]) -> None:
    tree = FatTree(4)
    assert Failures(tree).pods_affected(tree.switch("e1_0"), changed) == affected


def test_the_pods_affected_by_a_failure_are_those_that_lose_paths() -> None:
    tree = FatTree(4)
    healthy = Failures(tree)
    for name in [tree.name(link) for link in tree.links()] + [tree.name(switch) for switch in tree.switches()]:
        failed = healthy.with_failed(name)
        for edge in tree.switches(Level.EDGE):
            before, after = healthy.choices_from(edge), failed.choices_from(edge)
            felt = {rack.pod for rack in before if before[rack] != after[rack]}
            assert failed.pods_affected(edge, [name]) == felt


def test_a_change_of_nothing_known_is_refused() -> None:
    tree = FatTree(4)
    with pytest.raises(TopologyError):
        Failures(tree).pods_affected(tree.switch("e0_0"), ["a0_0-c1_0"])


def test_what_is_drained_is_the_only_failure_that_is_not_hard() -> None:
    tree = FatTree(4)
    hard = {"a0_0": "down", "a0_1-c1_0": "silent", "a1_0-c0_0": "miswired", "c1_1": "missing"}
    failures = Failures(tree, {**hard, "a2_0": Reason.DRAINED, "e3_0-a3_1": Reason.DRAINED})
    assert failures.hard == Failures(tree, hard)
    assert failures.hard.hard is failures.hard
    assert len(Failures(tree, {"a2_0": Reason.DRAINED}).hard) == 0


@pytest.mark.parametrize("k", [2, 4])
def test_a_link_is_the_same_from_either_end(k: int) -> None:
    tree = FatTree(k)
    cables = set(tree.links())
    nodes = [*tree.hosts(), *tree.switches()]
    for one in nodes:
        for other in nodes:
            found = {Link(one, other), Link(other, one)} & cables  # type: ignore[arg-type]
            if found:
                assert tree.link(one, other) == tree.link(other, one) == found.pop()
            else:
                with pytest.raises(TopologyError):
                    tree.link(one, other)
