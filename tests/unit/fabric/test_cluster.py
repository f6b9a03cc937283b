"""Several controllers' cores on the same switches: one commands, the others follow and take over (docs/cluster.md)."""

from __future__ import annotations

import random

import pytest

from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.phase import Phase
from tests.models.memory_fabric import place_of
from tests.models.memory_switch import Role
from tests.models.simulated_cluster import Cluster
from topologies import Failures
from topologies.failures import Reason


@pytest.fixture
def cluster() -> Cluster:
    """Three members, of which the first leads a healthy fabric."""
    its = Cluster(3)
    its.elect(0)
    its.rest()
    return its


def failures(cluster: Cluster, number: int) -> dict[str, str]:
    return dict(cluster.members[number].state.failures)


def check(cluster: Cluster, expected: dict[str, str]) -> None:
    """Check that everything is as the leader's version says, and that this is the truth."""
    assert cluster.leader is not None
    tree, leader = cluster.first.tree, cluster.members[cluster.leader]
    assert dict(leader.state.failures) == expected
    view = cluster.history[-1]
    for member in cluster.members:
        assert member.state.view[:2] == view[:2]
        assert dict(member.state.failures) == expected
        for known in member.agents.values():
            assert known is not None
            assert (known.epoch, known.version) == (view.epoch, view.version)
    for switch, device in cluster.first.switches.items():
        wanted = switch_rules(tree, switch, Failures(tree, expected), ())
        entries = {place: entry.flow for place, entry in device.entries.items() if entry.flow is not None}
        assert {place: repr(flow) for place, flow in entries.items()} == {
            place_of(flow): repr(flow) for flow in wanted.flows
        }
        assert device.generation == view.epoch
    for device in cluster.devices():
        assert device.changed_by == sorted(device.changed_by), "a command of a lower term took effect last"


def test_a_standby_is_the_slave_of_every_switch_and_follows_what_the_leader_has_committed(cluster: Cluster) -> None:
    for standby in cluster.members[1:]:
        assert {session.phase for session in standby.core.switches.sessions.values()} == {Phase.STANDING_BY}
        assert {standby.channel(switch).role for switch in standby.switches} == {Role.SLAVE}  # type: ignore[union-attr]
    tree = cluster.first.tree
    cluster.first.switches[tree.switch("a0_0")].set_port(3, Reason.DOWN)
    cluster.settle()
    assert all(failures(cluster, number) == {} for number in range(3)), "a version counts before it is committed"
    assert cluster.commit(0)
    for number in (1, 2):
        cluster.follow(number)
    assert all(failures(cluster, number) == {"a0_0-c0_0": "down"} for number in range(3))


def test_a_failure_that_nobody_has_committed_is_the_next_leaders_first_version(cluster: Cluster) -> None:
    tree, version = cluster.first.tree, cluster.members[0].state.version
    cluster.first.switches[tree.switch("a0_0")].set_port(3, Reason.DOWN)
    cluster.settle()
    cluster.elect(1)
    assert cluster.commit(1)
    assert cluster.history[-1][:2] == (2, version + 1)
    assert failures(cluster, 1) == {"a0_0-c0_0": "down"}
    cluster.rest()
    check(cluster, {"a0_0-c0_0": "down"})


def test_the_first_version_of_a_term_is_committed_even_if_nothing_has_changed(cluster: Cluster) -> None:
    version = cluster.members[0].state.version
    cluster.elect(2)
    assert not cluster.members[2].state.is_known, "agents would be sent a version that this leader has not committed"
    assert cluster.commit(2)
    assert cluster.history[-1][:2] == (2, version + 1)
    assert cluster.members[2].state.is_known


def test_a_former_leader_that_goes_on_changes_nothing(cluster: Cluster) -> None:
    tree, former = cluster.first.tree, cluster.members[0]
    cluster.first.switches[tree.switch("a0_0")].set_port(3, Reason.DOWN)
    former.settle()
    assert cluster.commit(0)  # its rules are due, and it is stopped here
    before = former.steps()
    assert before
    cluster.elect(1)
    while any(member.steps() for member in cluster.members[1:]):
        for member in cluster.members[1:]:
            member.settle()
    installed = {device.dpid: dict(device.entries) for device in cluster.devices()}
    former.settle()
    assert {device.dpid: dict(device.entries) for device in cluster.devices()} == installed
    assert former.outranked, "it has not noticed that switches have another master"
    cluster.rest()
    check(cluster, {"a0_0-c0_0": "down"})


def test_a_number_stands_for_one_proposal_though_its_outcome_is_not_known(cluster: Cluster) -> None:
    leader, tree = cluster.members[0], cluster.first.tree
    commitment = leader.state.commitment
    assert commitment is not None
    cluster.first.switches[tree.switch("a0_0")].set_port(3, Reason.DOWN)
    leader.settle()
    first = commitment.propose(leader.state.version)
    second = commitment.propose(leader.state.version)
    assert first is not None
    assert second is not None
    assert second.version == first.version + 1
    assert second.observed == first.observed


def test_what_has_healed_while_nobody_led_is_held_down_and_used_again(cluster: Cluster) -> None:
    device = cluster.first.switches[cluster.first.tree.switch("a0_0")]
    device.set_port(3, Reason.DOWN)
    cluster.rest()
    check(cluster, {"a0_0-c0_0": "down"})
    device.set_port(3, None)
    cluster.settle()
    cluster.elect(1)
    cluster.commit(1)
    assert failures(cluster, 1) == {"a0_0-c0_0": "down"}
    cluster.rest()
    check(cluster, {})


def test_a_switch_that_knows_a_higher_id_makes_the_leader_step_down_and_the_next_term_is_above_it(
    cluster: Cluster,
) -> None:
    device = next(cluster.devices())
    device.generation = 5000
    cluster.elect(1)
    cluster.settle()
    assert "5000" in cluster.members[1].outranked
    cluster.rest()
    assert cluster.term > 5000
    check(cluster, {})


@pytest.mark.parametrize("seed", range(12))
def test_at_rest_all_is_as_the_last_leader_says_whatever_happened_before(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(3)
    tree = cluster.first.tree
    links = list(tree.switch_links())
    down: set[str] = set()
    for _ in range(60):
        match rng.randrange(8):
            case 0:
                cluster.elect(rng.randrange(3))
            case 1:
                deposed = [n for n, m in enumerate(cluster.members) if m.knows_leader and n != cluster.leader]
                if deposed:
                    cluster.depose(rng.choice(deposed))
            case 2 | 3:
                link = rng.choice(links)
                fails = tree.name(link) not in down
                for end, other in ((link.lower, link.upper), (link.upper, link.lower)):
                    cluster.first.switches[end].set_port(tree.port(end, other), Reason.DOWN if fails else None)  # type: ignore[index,arg-type]
                (down.add if fails else down.discard)(tree.name(link))
            case 4:
                leading = [number for number, member in enumerate(cluster.members) if member.knows_leader]
                if leading:
                    cluster.commit(rng.choice(leading))
            case 5:
                cluster.follow(rng.randrange(3))
            case 6:
                cluster.advance(rng.choice([0.1, 1.0, 5.0]))
            case _:
                for _ in range(rng.randrange(30)):
                    steps = [step for member in cluster.members for step in member.steps()]
                    if steps:
                        rng.choice(steps)()
    cluster.rest(60.0)
    check(cluster, dict.fromkeys(sorted(down), "down"))
    assert [view[:2] for view in cluster.history] == sorted({view[:2] for view in cluster.history})
