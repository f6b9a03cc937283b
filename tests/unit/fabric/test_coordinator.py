"""The controller's core, rule by rule: each test is one thing that happens to a fabric of switches in memory."""

from __future__ import annotations

import pytest

from tests.models.memory_fabric import MemoryFabric
from topologies.failures import Reason


def settled(k: int = 4, **options: float) -> MemoryFabric:
    """Return a fabric whose switches all have their rules, a second after they have connected."""
    fabric = MemoryFabric(k, **options)
    fabric.connect_all()
    fabric.advance(1)
    assert fabric.state.settled
    assert not fabric.state.failures
    return fabric


@pytest.fixture
def fabric() -> MemoryFabric:
    return settled()


# -- switches that do not answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe_seconds", [0.0, 1.0])
def test_a_switch_that_does_not_answer_is_given_up_after_30_s(probe_seconds: float) -> None:
    fabric = settled(probe_seconds=probe_seconds)
    silent = fabric.tree.switch("a0_0")
    channel = fabric.channel(silent)
    assert channel is not None
    channel.holds_answers = True
    fabric.switches[fabric.tree.switch("c0_0")].set_port(2, Reason.DOWN)
    fabric.settle()
    fabric.advance(29.9)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN}
    fabric.advance(0.2)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN, "a0_0": Reason.NO_RULES}
    assert fabric.state.rejected == {channel.dpid: "a0_0: no answer to BarrierRequest in 30 s"}


# -- versions ---------------------------------------------------------------------------------------------------------


def test_of_two_versions_that_one_event_makes_both_are_reported(fabric: MemoryFabric) -> None:
    for name in ("a0_0", "a1_0"):
        channel = fabric.channel(fabric.tree.switch(name))
        assert channel is not None
        channel.holds_answers = True
    fabric.drain("c0_1")
    fabric.settle()
    fabric.advance(30)
    assert [list(change.failed) for change in fabric.state.changes] == [["c0_1"], ["a0_0"], ["a1_0"]]
    fabric.rest()
    assert fabric.run.in_force[:3] == [2, 3, 4]
    assert all(change.installed_ms is not None for change in fabric.state.changes)


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_controller_without_switches_does_not_wait_for_a_hold_down(fabric: MemoryFabric) -> None:
    device = fabric.switches[fabric.tree.switch("a0_0")]
    device.set_port(3, Reason.DOWN)
    device.set_port(3, None)
    fabric.settle()
    assert fabric.state.next_tick == fabric.now + 2  # it is held down
    for switch in fabric.switches:
        fabric.disconnect(switch)
    fabric.advance(10)
    assert fabric.core.next_tick > fabric.now


# -- connections ------------------------------------------------------------------------------------------------------


def test_a_rejected_connection_outlives_the_end_of_the_one_before(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    device = fabric.switches[switch]
    device.remove_port(4)
    fabric.connect(switch)
    assert fabric.state.rejected == {device.dpid: "a0_0 has ports 1-3, but a k=4 fat-tree's switch has 1-4"}
    fabric.notice_lost()
    assert device.dpid in fabric.state.rejected
    device.set_port(4, None)
    fabric.rest()
    assert not fabric.state.rejected
    assert not fabric.state.failures
