"""The fabric's state: what counts as failed, when it is a new version, and when it is over."""

from __future__ import annotations

import random

import networkx
import pytest

from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.state import FabricState
from topologies import FatTree, TopologyError
from topologies.failures import Reason

DOWN, SILENT, MISSING, NO_RULES, MISWIRED, DRAINED, _, NO_CHANNEL = Reason


def connected(k: int = 4, hold: float = 0.0) -> FabricState:
    """A fabric whose switches are all there, at second 0."""
    state = FabricState(FatTree(k), epoch=1, damping=HoldDown(hold, 10 * hold))
    for switch in state.tree.switches():
        state.switch_heard(switch, {}, 0)
        state.switch_ready(switch, 0)
    assert state.all_heard
    assert not state.settle(0)
    return state


def test_no_version_is_announced_before_the_fabric_has_settled() -> None:
    state = FabricState(FatTree(4), epoch=1)
    *present, absent = state.tree.switches()
    for switch in present:
        assert not state.switch_heard(switch, {3: DOWN} if switch == state.tree.switch("a0_0") else {}, 0)
    assert not state.failures
    assert not state.all_heard
    assert state.settle(9)
    assert dict(state.failures) == {"a0_0-c0_0": DOWN, state.tree.name(absent): MISSING}
    assert state.version == 2
    # heard is not enough: it has to hold its rules
    assert not state.switch_heard(absent, {}, 10)
    assert state.switch_ready(absent, 11)
    assert dict(state.failures) == {"a0_0-c0_0": DOWN}


def test_a_controller_that_hears_no_switch_at_all_changes_nothing() -> None:
    state = connected()
    state.port_changed(state.tree.switch("a0_0"), 4, DOWN, 0)
    for switch in state.tree.switches():
        assert not state.switch_lost(switch, 1)
    assert dict(state.failures) == {"a0_0-c0_1": DOWN}
    assert not state.miswired(["a1_0-c0_1"], 2)
    assert not state.tick(1000)


def test_a_link_failure_ends_when_both_ends_are_up() -> None:
    state = connected()
    lower, upper = state.tree.switch("a1_0"), state.tree.switch("c0_1")
    assert state.port_changed(lower, 4, DOWN, 1)
    assert not state.port_changed(upper, 2, DOWN, 1)
    assert dict(state.failures) == {"a1_0-c0_1": DOWN}
    assert state.version == 2
    assert not state.port_changed(lower, 4, None, 2)
    assert state.port_changed(upper, 2, None, 2)
    assert not state.failures
    assert state.version == 3


def test_down_outweighs_silent_at_the_other_end_of_a_link() -> None:
    state = connected()
    state.port_changed(state.tree.switch("a1_0"), 4, SILENT, 1)
    assert dict(state.failures) == {"a1_0-c0_1": SILENT}
    state.port_changed(state.tree.switch("c0_1"), 2, DOWN, 1)
    assert dict(state.failures) == {"a1_0-c0_1": DOWN}


def test_a_lost_channel_takes_nothing_away() -> None:
    state = connected()
    switch = state.tree.switch("c1_1")
    assert not state.switch_lost(switch, 1)
    assert (state.fabric()["connected"], state.fabric()["missing"], state.fabric()["no_channel"]) == (
        19,
        ["c1_1"],
        ["c1_1"],
    )
    assert not state.switch_heard(switch, {}, 2)
    assert not state.switch_ready(switch, 3)
    assert state.fabric()["no_channel"] == []


def test_a_dead_switch_is_all_its_links_so_they_are_not_named_one_by_one() -> None:
    state = connected()
    state.switch_lost(state.tree.switch("a2_0"), 1)
    for name, port in (("e2_0", 3), ("e2_1", 3), ("c0_0", 3)):
        assert state.port_changed(state.tree.switch(name), port, SILENT, 1.3)
    assert set(state.failures) == {"e2_0-a2_0", "e2_1-a2_0", "a2_0-c0_0"}
    assert state.port_changed(state.tree.switch("c0_1"), 3, SILENT, 1.4)
    assert dict(state.failures) == {"a2_0": DOWN}
    assert state.fabric()["no_channel"] == []
    # its links are back, but it may have restarted
    for name, port in (("e2_0", 3), ("e2_1", 3), ("c0_0", 3), ("c0_1", 3)):
        assert not state.port_changed(state.tree.switch(name), port, None, 5)
    assert dict(state.failures) == {"a2_0": DOWN}
    state.switch_heard(state.tree.switch("a2_0"), {}, 6)
    state.switch_ready(state.tree.switch("a2_0"), 6)
    assert not state.failures


def test_a_switch_that_refuses_its_rules_is_not_relied_on() -> None:
    state = connected()
    assert state.switch_refuses(state.tree.switch("e0_0"), 1)
    assert dict(state.failures) == {"e0_0": NO_RULES}


def test_a_switch_taken_by_another_controller_is_not_failed() -> None:
    state = connected()
    state.switch_taken(state.tree.switch("c1_1"))
    assert not state.failures
    assert state.fabric()["missing"] == ["c1_1"]


def test_a_hosts_link_is_named_from_the_host() -> None:
    state = connected()
    assert state.port_changed(state.tree.switch("e0_0"), 1, DOWN, 1)
    assert state.fabric()["failures"] == [{"name": "h0_0_2-e0_0", "kind": "link", "reason": "down"}]


def test_a_drained_element_that_fails_is_still_drained_afterwards() -> None:
    state = connected()
    assert state.drain(["a0_0-c0_1"], 1)
    assert dict(state.failures) == {"a0_0-c0_1": DRAINED}
    assert not state.drain(["a0_0-c0_1"], 1)
    assert state.port_changed(state.tree.switch("a0_0"), 4, DOWN, 2)
    assert dict(state.failures) == {"a0_0-c0_1": DOWN}
    assert state.port_changed(state.tree.switch("a0_0"), 4, None, 3)
    assert dict(state.failures) == {"a0_0-c0_1": DRAINED}
    assert state.drain([], 4)
    assert not state.failures


def test_a_miswired_link_is_kept_out() -> None:
    state = connected()
    assert state.miswired(["a0_0-c0_0", "a0_0-c0_1"], 1)
    assert dict(state.failures) == {"a0_0-c0_0": MISWIRED, "a0_0-c0_1": MISWIRED}
    assert state.miswired([], 2)
    assert not state.failures


@pytest.mark.parametrize("name", ["a0_0-c1_0", "c0_1-a0_0", "banana", "a9_0", "", "a0_0-c0_1-e0_0", "-", "a0_0-"])
def test_what_does_not_exist_cannot_be_drained(name: str) -> None:
    with pytest.raises(TopologyError):
        connected().drainable(name)


def test_a_hosts_only_link_cannot_be_drained() -> None:
    with pytest.raises(ValueError, match="only link"):
        connected().drainable("h0_0_2-e0_0")


# -- flap damping -----------------------------------------------------------------------------------------------------


def test_going_down_counts_at_once_and_coming_back_after_the_hold_down() -> None:
    state = connected(hold=2)
    port = state.tree.switch("a0_0"), 4
    assert state.port_changed(*port, DOWN, 10)
    assert not state.port_changed(*port, None, 11)
    assert state.next_tick == 13
    assert state.failure_list(now=11.5)[0]["held_seconds"] == 1.5
    assert not state.tick(12.9)
    assert state.tick(13)
    assert not state.failures
    assert state.next_tick == float("inf")


def test_the_hold_down_of_a_flapping_link_doubles_up_to_a_bound() -> None:
    state = connected(hold=2)
    port = state.tree.switch("a0_0"), 4
    waits = []
    for second in range(10, 16):
        state.port_changed(*port, DOWN, second)
        state.port_changed(*port, None, second + 0.5)
        assert state.next_tick is not None
        waits.append(state.next_tick - second - 0.5)
    assert waits == [2, 4, 8, 16, 20, 20]
    assert state.version == 2
    assert state.tick(36)
    assert state.version == 3
    # long in use, it is as good as new
    state.port_changed(*port, DOWN, 60)
    state.port_changed(*port, None, 61)
    assert state.next_tick == 63


def test_failures_are_what_is_observed_and_every_change_is_one_version() -> None:
    for seed in range(20):
        draw = random.Random(f"{seed} state")
        state = connected(k=draw.choice([2, 4, 6]))
        tree, down, lost = state.tree, set(), set()
        version = state.version
        switches = list(tree.switches())
        for second in range(60):
            switch = draw.choice(switches)
            before = dict(state.failures)
            if draw.random() < 0.2 and len(lost) < 3:
                if switch in lost:
                    changed = state.switch_ready(switch, second)
                    lost.discard(switch)
                else:
                    changed = state.switch_refuses(switch, second)
                    lost.add(switch)
            elif switch in lost:
                continue
            else:
                port = draw.choice(list(tree.ports(switch)))
                up = (switch, port) in down
                changed = state.port_changed(switch, port, None if up else DOWN, second)
                down ^= {(switch, port)}
            assert changed == (dict(state.failures) != before)
            version += changed
            assert state.version == version
            # the graph without what is broken, computed in two ways
            left = tree.graph()
            left.remove_nodes_from(map(tree.name, lost))
            for who, port in down:
                ends = tree.name(who), tree.name(tree.neighbour(who, port))
                if who not in lost and left.has_edge(*ends):
                    left.remove_edge(*ends)
            told = tree.graph()
            for name in state.failures:
                told.remove_edge(*name.split("-")) if "-" in name else told.remove_node(name)
            assert networkx.utils.graphs_equal(left, told)


def test_every_version_is_kept_with_what_failed_and_healed() -> None:
    state = connected()
    state.port_changed(state.tree.switch("a0_0"), 4, DOWN, 5)
    state.port_changed(state.tree.switch("a0_0"), 4, None, 6)
    latest, first = state.change_list()
    assert (first["version"], first["failed"], first["healed"]) == (2, {"a0_0-c0_1": DOWN}, [])
    assert (latest["version"], latest["failed"], latest["healed"]) == (3, {}, ["a0_0-c0_1"])
