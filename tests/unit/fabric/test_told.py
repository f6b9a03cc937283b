"""When agents are told of a version, when it counts as theirs, and which answer says that a switch is alive."""

from __future__ import annotations

from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.installation import Sent
from sopa_ryu.fabric.messages import EchoRequest
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.switch_session import SwitchSession
from tests.models.memory_switch import MemorySwitch
from topologies import FatTree

TREE = FatTree(4)


def test_agents_are_told_of_no_version_that_the_engine_has_not_got() -> None:
    state = FabricState(TREE, 0, HoldDown(1.0, 60.0), commitment=Commitment("sopa"))
    core = Coordinator(state, settle_seconds=3.0)
    core.lead(5, 0.0)
    core.switch_connected(MemorySwitch(TREE.dpid(TREE.switch("a0_0")), dict.fromkeys(range(1, 5))).connect(), 0.0)
    assert not core.tick(60.0).tell_agents
    assert state.settled
    assert state.commitment is not None
    proposal = state.commitment.propose(state.version)
    assert proposal is not None
    assert core.committed(proposal, 61.0).tell_agents


def test_a_change_is_acknowledged_by_agents_that_it_was_sent_to() -> None:
    state = FabricState(TREE, 0)
    core = Coordinator(state, settle_seconds=3.0)
    state.version = 2
    state.changes.append(Change(2, 0.0, 10.0, {"a0_0": "down"}, []))
    assert core.acknowledged(2, 11.0) == []
    core.sent_to_agents(3)
    assert core.acknowledged(1, 12.0) == []
    [change] = core.acknowledged(2, 13.0)
    assert (change.agents, change.acknowledged_ms) == (3, 3000.0)
    assert core.acknowledged(2, 14.0) == []


def test_only_the_answer_to_the_last_question_says_that_a_switch_is_alive() -> None:
    session = SwitchSession(MemorySwitch(1, {}).connect(), TREE.switch("e0_0"), "e0_0", Sent(), 0.0)
    questions = []
    for _ in range(2):
        session.ask_alive()
        questions += session.take_echo()
    first, last = questions
    assert isinstance(first, EchoRequest)
    assert isinstance(last, EchoRequest)
    assert not session.is_alive(first)
    assert session.is_alive(last)
    assert not session.is_alive(last)
