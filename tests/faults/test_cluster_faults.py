"""Faults of controllers, relays and etcd's nodes, and invariants of all that was committed, commanded and put in force."""

import pytest

from sopa_ryu.fabric.rule_changes import COOKIE_MARK
from tests.faults.cluster_harness import FaultyCluster
from tests.faults.cluster_history import wrong_switches
from tests.faults.cluster_plan import Step
from tests.faults.harness import Wrong
from tests.helpers.waiting import eventually
from topologies import Clos
from topologies.lab.isolation import isolated

STEPS = (
    "partition leader inf etcd both; pause relay 1.5; -a0_0-c0_1",
    "stale leader inf; kill etcd-leader 1",
    "hostile c1_1 1 slave; +a0_0-c0_1",
)


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_faults_all_follow_one_leader_and_nothing_ever_went_back() -> None:
    assert isolated(_faults_of_a_cluster) == 0


def _faults_of_a_cluster() -> int:
    mbit = {"host": 4, "edge": 4, "aggregation": 4}  # agents probe in proportion
    with FaultyCluster(Clos(2, 2, 2, 4, 2, mbit=mbit)) as lab:
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
