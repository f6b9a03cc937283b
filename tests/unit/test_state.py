"""The fabric's state: what counts as failed, and when it is a new version."""

from sopa_ryu.state import FabricState
from topologies import FatTree


def connected(k: int = 4) -> FabricState:
    state = FabricState(FatTree(k), epoch=1)
    for switch in state.tree.switches():
        assert not state.switch_connected(switch, [])
    return state


def test_switches_that_have_not_connected_yet_are_missing_but_not_failed() -> None:
    state = FabricState(FatTree(4), epoch=1)
    assert not state.failures
    assert len(state.fabric()["missing"]) == 20


def test_both_ends_of_a_link_tell_of_one_failure_and_it_heals_when_both_are_up() -> None:
    state = connected()
    lower, upper = state.tree.switch("a1_0"), state.tree.switch("c0_1")
    assert state.port_changed(lower, 4, up=False)
    assert not state.port_changed(upper, 2, up=False)
    assert dict(state.failures) == {"a1_0-c0_1": "down"}
    assert state.version == 2
    assert not state.port_changed(lower, 4, up=True)
    assert state.port_changed(upper, 2, up=True)
    assert not state.failures
    assert state.version == 3


def test_a_lost_switch_is_failed_until_it_is_back() -> None:
    state = connected()
    switch = state.tree.switch("c1_1")
    assert state.switch_lost(switch)
    assert dict(state.failures) == {"c1_1": "down"}
    assert state.fabric()["connected"] == 19
    assert state.switch_connected(switch, [])
    assert not state.failures


def test_a_switch_taken_by_another_controller_is_not_failed() -> None:
    state = connected()
    state.switch_taken(state.tree.switch("c1_1"))
    assert not state.failures
    assert state.fabric()["missing"] == ["c1_1"]


def test_a_hosts_link_is_named_from_the_host() -> None:
    state = connected()
    assert state.port_changed(state.tree.switch("e0_0"), 1, up=False)
    assert state.fabric()["failures"] == [{"name": "h0_0_2-e0_0", "kind": "link", "reason": "down"}]


def test_the_snapshot_says_all_that_an_agent_needs() -> None:
    state = connected()
    state.port_changed(state.tree.switch("a0_0"), 3, up=False)
    assert state.snapshot() == {"type": "snapshot", "epoch": 1, "version": 2, "k": 4, "failures": {"a0_0-c0_0": "down"}}
