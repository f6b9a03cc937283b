"""The fabric's state: every change of what has failed is one version; `scripts/coordinator` shows what counts as failed."""

import random

import networkx
import pytest

from sopa_ryu.fabric.state import FabricState
from topologies import FatTree
from topologies.failures import Reason

DOWN = Reason.DOWN


def connected(k: int = 4) -> FabricState:
    """A fabric whose switches are all there, at second 0; nothing is held down."""
    state = FabricState(FatTree(k), epoch=1)
    for switch in state.tree.switches():
        state.switch_heard(switch, {}, 0)
        state.switch_ready(switch, 0)
    assert len(state.evidence.heard) == state.tree.switch_count
    assert not state.settle(0)
    return state


@pytest.mark.parametrize("seed", range(10))
def test_failures_are_what_is_observed_and_every_change_is_one_version(seed: int) -> None:
    draw = random.Random(f"{seed} state")
    state = connected(k=draw.choice([2, 4, 6]))
    tree, down, lost = state.tree, set(), set()
    version = state.version
    switches = list(tree.switches())
    for second in range(60):
        switch = draw.choice(switches)
        before = dict(state.failures)
        if draw.random() < 0.2 and len(lost) < 3:
            changed = (state.switch_ready if switch in lost else state.switch_refuses)(switch, second)
            lost ^= {switch}
        elif switch in lost:
            continue
        else:
            port = draw.choice(list(tree.ports(switch)))
            down ^= {(switch, port)}
            changed = state.port_changed(switch, port, DOWN if (switch, port) in down else None, second)
        assert changed == (dict(state.failures) != before)
        version += changed
        assert state.version == version
        # the graph without what is broken, computed in two ways
        left = tree.graph()
        left.remove_nodes_from(map(tree.name, lost))
        left.remove_edges_from((tree.name(who), tree.name(tree.neighbour(who, port))) for who, port in down)
        told = tree.graph()
        told.remove_nodes_from(name for name in state.failures if "-" not in name)
        told.remove_edges_from(name.split("-") for name in state.failures if "-" in name)
        assert networkx.utils.graphs_equal(left, told)


def test_without_switches_operators_and_hosts_say_what_has_failed() -> None:
    tree = FatTree(4)
    state = FabricState(tree, epoch=1, without_switches=True)

    def left(host: str, *links: str) -> dict[str, str]:
        state.host_left(tree.host(host), links, 0)
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
    state.switch_heard(tree.switch("a0_0"), {}, 2)
    assert ("no_switches" in state.fabric(), len(state.missing)) == (False, 20)


def test_a_controller_that_has_lost_all_switches_changes_nothing() -> None:
    state = FabricState(FatTree(4), epoch=1)
    assert not state.settle(0)
    assert not state.drain(["c0_0"], 0)
    assert dict(state.failures) == {}
