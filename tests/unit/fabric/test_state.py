"""What the fabric's state says without switches and with an engine; what counts as failed otherwise is in `scripts/coordinator`."""

from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.state import Change, FabricState
from tests.models.memory_switch import MemorySwitch
from topologies import Failures, FatTree

TREE = FatTree(4)


def clustered() -> FabricState:
    return FabricState(TREE, 0, HoldDown(1.0, 60.0), commitment=Commitment("sopa"))


def test_what_only_the_former_leader_has_found_is_held_down_before_it_is_used() -> None:
    state = clustered()
    for switch in TREE.switches():
        state.switch_heard(switch, {}, 0.0)
    state.settle(0.0)
    state.follow(1, 3, Failures(TREE, {"e0_0-a0_0": "down"}), 1.0)
    state.lead(2, 2.0)
    for switch in TREE.switches():
        state.switch_ready(switch, 2.0)
    first = state.commitment.propose(state.version)
    assert state.committed(first)
    assert dict(first.failures) == {"e0_0-a0_0": "down"}
    state.tick(2.9)
    assert state.commitment.propose(state.version) is None
    state.tick(3.1)
    assert not state.commitment.propose(state.version).failures


def test_a_number_stands_for_one_proposal_of_one_term() -> None:
    commitment = Commitment("sopa")
    commitment.lead(5)
    commitment.want(Failures(TREE, {"a0_0": "down"}), Failures(TREE), 0.0)
    first, second = commitment.propose(1), commitment.propose(1)  # the outcome of the first is not known
    assert (second.version, second.observed) == (first.version + 1, first.observed)
    commitment.lead(6)
    assert not commitment.adopt(second)
    assert not commitment.is_known


def test_agents_are_told_of_no_version_that_the_engine_has_not_got() -> None:
    state = clustered()
    core = Coordinator(state, settle_seconds=3.0)
    core.lead(5, 0.0)
    core.switch_connected(MemorySwitch(TREE.dpid(TREE.switch("a0_0")), dict.fromkeys(range(1, 5))).connect(), 0.0)
    assert not core.tick(60.0).tell_agents
    assert state.settled
    assert core.committed(state.commitment.propose(state.version), 61.0).tell_agents


def test_a_change_is_acknowledged_by_agents_that_it_was_sent_to() -> None:
    state = FabricState(TREE, 0)
    core = Coordinator(state, settle_seconds=3.0)
    state.version = 2
    state.changes.append(Change(2, 0.0, 10.0, {"a0_0": "down"}, []))
    assert core.acknowledged(2, 11.0) == []
    core.sent_to_agents(core.state.version, 3)
    assert core.acknowledged(1, 12.0) == []
    [change] = core.acknowledged(2, 13.0)
    assert (change.agents, change.acknowledged_ms) == (3, 3000.0)
    assert core.acknowledged(2, 14.0) == []


def test_without_switches_operators_and_hosts_say_what_has_failed() -> None:
    state = FabricState(TREE, epoch=1, without_switches=True)

    def left(host: str, *links: str) -> dict[str, str]:
        state.host_left(TREE.host(host), links, 0)
        return dict(state.failures)

    assert (state.fabric()["no_switches"], state.missing, state.no_channel) == (True, [], [])
    assert state.drain(["a1_1"], 0)
    assert dict(state.failures) == {"a1_1": "drained"}
    state.drain([], 0)
    assert left("h0_0_2", "a0_0-c0_0") == left("h0_0_3", "a0_0-c0_0", "e3_0-a3_0") == {}  # one rack
    assert left("h2_0_2", "a0_0-c0_0") == {"a0_0-c0_0": "silent"}
    version = state.version
    assert left("h2_1_2", "a0_0-c0_0") == {"a0_0-c0_0": "silent"}
    assert state.version == version
    # a pod's last way up stays
    assert left("h0_0_2", "a0_0-c0_0", "a0_0-c0_1") == {"a0_0-c0_0": "silent"}
    assert left("h2_0_2", "a0_0-c0_0", "a0_0-c0_1") == {"a0_0-c0_0": "silent"}
    # one rack's word keeps nothing out
    for host in ("h0_0_2", "h0_0_3", "h2_1_2"):
        left(host)
    assert left("h2_0_2") == {}
    assert state.drain(["c0_0"], 1)
    # one that connects nevertheless is this controller's, as all others then
    state.switch_heard(TREE.switch("a0_0"), {}, 2)
    assert ("no_switches" in state.fabric(), len(state.missing)) == (False, 20)


def test_a_controller_that_has_lost_all_switches_changes_nothing() -> None:
    state = FabricState(TREE, epoch=1)
    assert not state.settle(0)
    assert not state.drain(["c0_0"], 0)
    assert dict(state.failures) == {}
