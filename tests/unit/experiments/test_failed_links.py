"""Links that have failed before the start: as many as asked for, the same for a seed, and no rack without a path."""

from dataclasses import replace

import pytest

from experiments.workloads import Plan, Scale, WorkloadError, named, with_failed_links
from topologies import Clos, Failures, FatTree, Level

SCALE = Scale(1000.0, 1.0)
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
    plan = named("asymmetric").build(tree, 1, SCALE)
    failed = with_failed_links(plan, tree, 1, 10).failed
    assert failed[:1] == plan.failed
    assert len(set(failed)) == 4
    of_switch = with_failed_links(replace(NOTHING, failed=("a0_0",)), tree, 3, 20).failed
    assert not any("a0_0" in name for name in of_switch[1:])


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(
        WorkloadError, match="without 2 links between switches, some racks of a k=2 fat-tree have no path"
    ):
        with_failed_links(NOTHING, FatTree(2), 1, 50)
    with pytest.raises(WorkloadError, match="a0_0 fails during the run"):
        with_failed_links(named("failure-permutation").build(FatTree(4), 1, SCALE), FatTree(4), 1, 5)
