"""What a new leader takes over from the former one."""

from __future__ import annotations

from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.state import FabricState
from topologies import Failures, FatTree

TREE = FatTree(4)


def proposed(state: FabricState) -> dict[str, str]:
    assert state.commitment is not None
    proposal = state.commitment.propose(state.version)
    assert proposal is not None
    assert state.committed(proposal)
    return dict(proposal.failures)


def test_what_only_the_former_leader_has_found_is_held_down_before_it_is_used() -> None:
    state = FabricState(TREE, 0, HoldDown(1.0, 60.0), commitment=Commitment("sopa"))
    for switch in TREE.switches():
        state.switch_heard(switch, {}, 0.0)
    state.settle(0.0)
    state.follow(1, 3, Failures(TREE, {"e0_0-a0_0": "down"}), 1.0)
    state.lead(2, 2.0)
    for switch in TREE.switches():
        state.switch_ready(switch, 2.0)
    assert proposed(state) == {"e0_0-a0_0": "down"}
    state.tick(2.9)
    assert state.commitment is not None
    assert state.commitment.propose(state.version) is None
    state.tick(3.1)
    assert proposed(state) == {}


def test_a_proposal_of_a_former_term_counts_no_more() -> None:
    commitment = Commitment("sopa")
    commitment.lead(5)
    commitment.want(Failures(TREE, {"a0_0": "down"}), Failures(TREE), 0.0)
    proposal = commitment.propose(1)
    assert proposal is not None
    commitment.lead(6)
    assert not commitment.adopt(proposal)
    assert not commitment.is_known
