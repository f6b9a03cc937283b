"""Workloads with bad or failed links: which ones they are, and from when on."""

from dataclasses import replace
from itertools import islice, pairwise

import pytest

from experiments.core.draws import DrawKind, drawn, hits, stream, threshold
from experiments.workloads import BadLink, Plan, Scale, WorkloadError, named, with_failed_links
from experiments.workloads.bad_links import crossed, with_bad_link
from experiments.workloads.plan import Transfer
from topologies import Clos, Failures, FatTree, Level

SCALE = Scale(4.0, 30.0)
LEAF_SPINE = Clos(1, 4, 2, 0, 3)


def built(name: str, tree: Clos | None = None, seed: int = 1) -> Plan:
    return named(name).build(tree or FatTree(4), seed, SCALE)


def bad(name: str, tree: Clos | None = None, seed: int = 1) -> BadLink:
    [found] = built(name, tree, seed).bad
    return found


@pytest.mark.parametrize("tree", [FatTree(4), LEAF_SPINE], ids=lambda tree: tree.title)
def test_the_seed_draws_a_direction_between_switches_that_data_may_cross(tree: Clos) -> None:
    drawn_links = set()
    for seed in range(15):
        plan = built("grey-link", tree, seed)
        [its] = plan.bad
        sender = next(end for end in its.link.split("-") if end != its.towards)
        assert not its.link.startswith("h")
        crossing = {
            number
            for number, one in enumerate(plan.transfers)
            if any((sender, its.towards) in pairwise(path.hops) for path in tree.candidate_paths(one.src, one.dst))
        }
        assert set(its.transfers) == crossing
        assert crossing
        assert (bad("slow-link", tree, seed).link, bad("slow-link", tree, seed).towards) == (its.link, its.towards)
        drawn_links.add((its.link, its.towards))
    assert len(drawn_links) > 6
    assert {towards[0] for _, towards in drawn_links} == set("aec") if tree.cores else set("ae")


def test_only_what_transfers_cross_is_drawn() -> None:
    tree = FatTree(4)
    one_way = (Transfer(tree.host("h0_0_2"), tree.host("h0_1_2")),)
    assert set(crossed(tree, one_way)) == {
        ("e0_0-a0_0", "a0_0"), ("e0_0-a0_1", "a0_1"), ("e0_1-a0_0", "e0_1"), ("e0_1-a0_1", "e0_1"),
    }  # fmt: skip
    with pytest.raises(WorkloadError, match="no link between switches carries anything"):
        with_bad_link(Plan((Transfer(tree.host("h0_0_2"), tree.host("h0_0_3")),), 1.0), tree, 1)


def test_draws_are_splitmix64() -> None:
    # Vigna's reference implementation with this seed
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [drawn(1234567, number) for number in range(4)] == expected


@pytest.mark.parametrize("probability", [0.01, 0.1])
def test_as_many_are_hit_as_the_probability_says(probability: float) -> None:
    count = 2000
    last = list(islice(hits(stream(5, "a0_0-c0_0", "c0_0", DrawKind.LOSS), probability), count))[-1]
    deviation = (count * (1 - probability)) ** 0.5 / probability
    assert abs(last - count / probability) < 5 * deviation
    assert list(hits(1, 0.0)) == []
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            threshold(wrong)


@pytest.mark.parametrize("tree", [FatTree(4), LEAF_SPINE], ids=lambda tree: tree.title)
def test_lossy_links_are_all_between_switches_in_both_directions_from_the_start(tree: Clos) -> None:
    plan = built("all-to-all+4+lossy=0.5", tree)
    assert plan.transfers == built("all-to-all+4", tree).transfers
    assert {(one.after, one.loss, one.corruption, one.rate) for one in plan.bad} == {(0.0, 0.005, 0.0, 1.0)}
    ways = sorted((one.link, one.towards) for one in plan.bad)
    assert ways == sorted((tree.name(link), tree.name(end)) for link in tree.switch_links() for end in link)


@pytest.mark.parametrize("name", ["permutation-anywhere", "tornado-transfers", "all-to-all+8", "incast-transfers+8"])
def test_slow_links_are_those_of_all_core_switches_towards_one_aggregation_switch(name: str) -> None:
    tree = FatTree(8)
    plan, healthy = built(f"{name}+slow=25", tree), built(name, tree)
    assert plan.transfers == healthy.transfers
    [towards] = {one.towards for one in plan.bad}
    assert towards[0] == "a"
    assert [one.link for one in plan.bad] == [tree.name(link) for link in tree.links_above(tree.switch(towards))]
    assert {(one.after, one.loss, one.rate) for one in plan.bad} == {(0.0, 0.0, 0.25)}
    receivers = {number for number, one in enumerate(plan.transfers) if tree.name(tree.edge_of(one.dst))[1] == towards[1]}
    assert {number for one in plan.bad for number in one.transfers} <= receivers
    for text in ("0", "101", "x", ""):
        with pytest.raises(WorkloadError, match=r"write .*\+slow=PERCENT, above 0 and at most 100"):
            named(f"{name}+slow={text}")
    with pytest.raises(WorkloadError, match="leave out"):
        built("grey-link+slow=25", tree)
    with pytest.raises(WorkloadError, match="no core link carries anything"):
        built(f"{name}+slow=25", LEAF_SPINE)


NOTHING = Plan((), 1.0)


@pytest.mark.parametrize("percent", [1, 5, 25])
@pytest.mark.parametrize("tree", [FatTree(4), FatTree(6), Clos(1, 8, 4, 0, 2), Clos(3, 2, 3, 6, 2)], ids=repr)
def test_so_many_links_between_switches_fail_and_racks_stay_connected(tree: Clos, percent: float) -> None:
    drawn = {with_failed_links(NOTHING, tree, seed, percent).failed for seed in range(3)}
    assert len(drawn) > 1
    for failed in drawn:
        assert len(set(failed)) == len(failed) == max(1, round(percent / 100 * tree.switch_link_count))
        assert {tree.link_by_name(name) for name in failed} <= set(tree.switch_links())
        failures = Failures(tree, dict.fromkeys(failed, "down"))
        assert all(all(failures.choices_from(edge).values()) for edge in tree.switches(Level.EDGE))
    assert with_failed_links(NOTHING, tree, 1, percent) == with_failed_links(NOTHING, tree, 1, percent)


def test_links_beyond_those_that_a_workload_has_failed_already() -> None:
    tree = FatTree(4)
    plan = named("asymmetric").build(tree, 1, Scale(1000.0, 1.0))
    failed = with_failed_links(plan, tree, 1, 10).failed
    assert failed[:1] == plan.failed
    assert len(set(failed)) == 4
    of_switch = with_failed_links(replace(NOTHING, failed=("a0_0",)), tree, 3, 20).failed
    assert not any("a0_0" in name for name in of_switch[1:])


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(WorkloadError, match="without 2 links between switches, some racks of a k=2 fat-tree have no path"):
        with_failed_links(NOTHING, FatTree(2), 1, 50)
    with pytest.raises(WorkloadError, match="a0_0 fails during the run"):
        with_failed_links(named("failure-permutation").build(FatTree(4), 1, Scale(1000.0, 1.0)), FatTree(4), 1, 5)
