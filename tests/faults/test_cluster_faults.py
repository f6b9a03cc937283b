"""Faults of controllers, relays and etcd's nodes, and invariants of all that was committed, commanded and put in force."""

from collections import Counter

import pytest

from experiments.emulation.agents_log import InForce
from sopa_ryu.fabric.rule_changes import COOKIE_MARK
from tests.faults.cluster_harness import FaultyCluster
from tests.faults.cluster_history import Committed, wrong_agents, wrong_commits, wrong_switches
from tests.faults.cluster_plan import CUTS, KINDS, MAX_DOWN, Step, plan
from tests.faults.harness import Wrong
from tests.helpers.waiting import eventually
from topologies import Clos, FatTree
from topologies.lab.isolation import isolated

STEPS = (
    "partition leader inf etcd both; pause relay 1.5; -a0_0-c0_1",
    "stale leader inf; kill etcd-leader 1; +a0_0-c0_1",
)
TREE = FatTree(4)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_plan_replays_from_its_text_and_leaves_every_link_up(seed: int) -> None:
    steps = list(plan(TREE, seed, 200))
    assert [str(Step.parse(str(step))) for step in steps] == [str(step) for step in steps]
    assert [str(step) for step in plan(TREE, seed, 200)] == [str(step) for step in steps]
    down: set[str] = set()
    for step in steps:
        for name, up in step.links:
            assert (name in down) == up
            (down.remove if up else down.add)(name)
        assert len(down) <= MAX_DOWN
    assert not down
    faults = [fault for step in steps for fault in step.faults]
    assert len(faults) == 200
    deck = sum(KINDS.values())
    assert Counter(fault.kind for fault in faults[:deck]) == KINDS
    cuts = {(fault.role, fault.what[0]) for fault in faults if fault.kind == "partition"}
    assert len(cuts) > 0.6 * sum(map(len, CUTS.values()))


def in_force(*entries: tuple[str, int, int]) -> list[InForce]:
    return [InForce(0.0, agent, term, version) for agent, term, version in entries]


def test_terms_and_versions_of_the_engine_only_rise() -> None:
    assert wrong_commits([Committed(5, 1, 1), Committed(7, 1, 2), Committed(9, 2, 3)]) == []
    assert len(wrong_commits([Committed(5, 1, 1), Committed(7, 1, 1)])) == 1
    assert len(wrong_commits([Committed(5, 2, 1), Committed(7, 1, 2)])) == 1


def test_an_agent_that_goes_back_or_has_what_nobody_committed_is_found() -> None:
    committed = {(1, 1), (1, 2), (2, 3)}
    assert wrong_agents(in_force(("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("b", 2, 3)), committed) == []
    assert "after version 3 of term 2" in wrong_agents(in_force(("a", 2, 3), ("a", 1, 2)), committed)[0]
    assert "no leader had committed" in wrong_agents(in_force(("a", 2, 4)), committed)[0]
    assert "no leader had committed" in wrong_agents(in_force(("a", 1, 3)), committed)[0]


def test_a_switch_that_takes_a_lower_version_or_one_that_nobody_committed_is_found() -> None:
    assert wrong_switches({"c0_0": [1, 1, 2, 5], "c0_1": []}, {1, 2, 5}) == []
    assert wrong_switches({"c0_0": [1, 2, 1]}, {1, 2}) == [
        "switch c0_0 took an entry of version 1 after one of version 2"
    ]
    assert len(wrong_switches({"c0_0": [1, 3]}, {1, 2})) == 1


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_faults_all_follow_one_leader_and_nothing_ever_went_back() -> None:
    assert isolated(_faults_of_a_cluster) == 0


def _faults_of_a_cluster() -> int:
    with FaultyCluster(Clos(2, 2, 2, 4, 2)) as lab:
        for text in STEPS:
            lab.do(Step.parse(text))
        checked = lab.checked()
        assert checked["terms"] >= 3, checked
        assert min(checked["put_in_force"], checked["entries_written"], checked["packets"]) > 0, checked
        # an entry that a leader of an earlier term would write
        committed = {each.version for each in lab.commits.values()}
        assert wrong_switches(lab.monitors.follow(), committed) == []
        lab.its.lab.ovs.ofctl("add-flow", "c1_1", f"cookie={COOKIE_MARK << 56 | 1 << 32 | 1:#x},table=9,actions=drop")
        eventually(lambda: wrong_switches({"c1_1": lab.monitors.follow()["c1_1"]}, committed))
        with pytest.raises(Wrong):
            lab.check()
    return 0
