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
