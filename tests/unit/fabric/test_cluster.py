"""Several controllers' cores on the same switches in memory, and an engine that is a few variables (docs/cluster.md).

A member that has lost its leadership may not know it yet, and what it has sent may still be on its way: only the switches' roles
and the engine's comparison stop it then, as they have to stop a process that was stopped and goes on.
"""

import random
from collections.abc import Collection

import pytest

from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.messages import AddFlow, AddGroup, DeleteFlow, DeleteGroup, Message, ModifyGroup
from sopa_ryu.fabric.switch_session import SwitchPhase
from sopa_ryu.fabric.view import View
from tests.models.memory_switch import Channel, Event, MemorySwitch, Role, place_of
from tests.models.simulated_fabric import SETTLE_SECONDS, SimulatedFabric
from topologies import Failures
from topologies.failures import Reason

COMMANDS = AddFlow | DeleteFlow | AddGroup | ModifyGroup | DeleteGroup


class WatchedSwitch(MemorySwitch):
    def _start(self) -> None:
        super()._start()
        self.changed_by: list[int] = []

    def handle(self, channel: Channel, message: Message) -> list[Event]:
        if isinstance(message, COMMANDS) and channel.role is not Role.SLAVE:
            assert channel.role is Role.MASTER, "a command of a controller that was never made the master"
            self.changed_by.append(self.generation)
        return super().handle(channel, message)


class MemberFabric(SimulatedFabric):
    """A controller's core as a member of a cluster. It is a standby until it becomes the leader."""

    outranked = ""
    knows_leader = 0

    def _start(self) -> None:
        super()._start()
        self.state.commitment = Commitment("sopa")
        self.state.epoch = 0
        self.core.switches.leads = False
        self.core.switches.generation.number = 0

    def _carry_out(self, effects: Effects) -> None:
        super()._carry_out(effects)
        if effects.outranked and self.core.switches.leads:
            self.outranked, self.knows_leader = effects.outranked, 0
            self._carry_out(self.core.stand_by(self.now))


class Cluster:
    """Members on the same switches; the engine knows the latest term, the leader, and what was committed."""

    def __init__(self, size: int, k: int = 4) -> None:
        self.members = [MemberFabric(k) for _ in range(size)]
        self.tree = self.members[0].tree
        devices = self.members[0].switches.items()
        self.switches = {switch: WatchedSwitch(device.dpid, device.ports) for switch, device in devices}
        self.term = 0
        self.leader: int | None = None
        self.history: list[View] = []
        for member in self.members:
            member.switches.clear()
            member.switches.update(self.switches)
            member.connect_all()
        self.advance(SETTLE_SECONDS + 1.0)

    def advance(self, seconds: float) -> None:
        for member in self.members:
            member.advance(seconds)

    def settle(self, members: Collection[MemberFabric] = ()) -> None:
        while any(member.steps() for member in members or self.members):
            for member in members or self.members:
                member.settle()

    def elect(self, number: int) -> None:
        """Make a member the leader; the former one does not know it yet."""
        member = self.members[number]
        self.term = max(self.term, member.core.switches.highest_generation) + 1
        self.leader = number
        self.follow(number)
        member.knows_leader, member.outranked = self.term, ""
        member._carry_out(member.core.lead(self.term, member.now))

    def depose(self, number: int) -> None:
        member = self.members[number]
        member.knows_leader, member.outranked = 0, ""
        member._carry_out(member.core.stand_by(member.now))

    def commit(self, number: int) -> bool:
        """Have a member commit what it proposes, as far as the engine lets it; return whether there was anything."""
        member = self.members[number]
        proposal = member.state.commitment.propose(member.state.version)
        if proposal is None:
            return False
        if self.leader != number or proposal.term != self.term:
            self.depose(number)
            return True
        self.history.append(View(proposal.term, proposal.version, proposal.failures))
        member._carry_out(member.core.committed(proposal, member.now))
        return True

    def follow(self, number: int) -> None:
        member = self.members[number]
        if self.history and not member.knows_leader:
            view = self.history[-1]
            commitment = member.state.commitment
            if (view.epoch, view.version) > (commitment.term, member.state.version) or not commitment.is_known:
                member._carry_out(member.core.followed(view.epoch, view.version, view.failures, member.now))

    def rest(self, seconds: float = 30.0) -> None:
        """Let the members know who leads, and everything be committed and installed."""
        for number, member in enumerate(self.members):
            if member.knows_leader and number != self.leader:
                self.depose(number)
        for _ in range(20):
            if self.leader is None or not self.members[self.leader].knows_leader:
                self.elect(self.leader or 0)
            self.settle()
            while self.leader is not None and self.commit(self.leader):
                self.settle()
            for number in range(len(self.members)):
                self.follow(number)
            self.advance(seconds / 20)


DOWN = {"a0_0-c0_0": "down"}


@pytest.fixture
def cluster() -> Cluster:
    """Three members, of which the first leads a healthy fabric."""
    its = Cluster(3)
    its.elect(0)
    its.rest()
    return its


def cut(cluster: Cluster) -> None:
    """Take down the port of a0_0 that leads to c0_0."""
    cluster.switches[cluster.tree.switch("a0_0")].set_port(3, Reason.DOWN)


def failures(cluster: Cluster, number: int) -> dict[str, str]:
    return dict(cluster.members[number].state.failures)


def check(cluster: Cluster, expected: dict[str, str]) -> None:
    """Check that everything is as the leader's version says, and that this is the truth."""
    view = cluster.history[-1]
    for member in cluster.members:
        assert member.state.view[:2] == view[:2]
        assert dict(member.state.failures) == expected
        assert {its and its[:2] for its in member.agents.values()} == {view[:2]}
    for switch, device in cluster.switches.items():
        wanted = switch_rules(cluster.tree, switch, Failures(cluster.tree, expected), ()).flows
        entries, planned = ({place_of(flow): repr(flow) for flow in its} for its in (device.flows(), wanted))
        assert entries == planned
        assert device.generation == view.epoch
        assert device.changed_by == sorted(device.changed_by), "a command of a lower term took effect last"


def test_a_standby_is_the_slave_of_every_switch_and_follows_what_the_leader_has_committed(cluster: Cluster) -> None:
    for standby in cluster.members[1:]:
        sessions = standby.core.switches.sessions.values()
        assert {session.phase for session in sessions} == {SwitchPhase.STANDING_BY}
        assert {session.connection.role for session in sessions} == {Role.SLAVE}  # type: ignore[attr-defined]
    cut(cluster)
    cluster.settle()
    assert not any(failures(cluster, number) for number in range(3)), "a version counts before it is committed"
    assert cluster.commit(0)
    for number in (1, 2):
        cluster.follow(number)
    assert all(failures(cluster, number) == DOWN for number in range(3))


@pytest.mark.parametrize("found", [{}, DOWN])
def test_the_first_version_of_a_term_is_what_nobody_has_committed_yet(cluster: Cluster, found: dict[str, str]) -> None:
    leader, version = cluster.members[1], cluster.members[0].state.version
    if found:
        cut(cluster)
        cluster.settle()
    cluster.elect(1)
    assert not leader.state.is_known, "agents would be sent a version that this leader has not committed"
    assert cluster.commit(1)
    assert leader.state.is_known
    assert (cluster.history[-1][:2], failures(cluster, 1)) == ((2, version + 1), found)
    cluster.rest()
    check(cluster, found)


def test_a_former_leader_that_goes_on_changes_nothing(cluster: Cluster) -> None:
    former = cluster.members[0]
    cut(cluster)
    former.settle()
    assert cluster.commit(0)  # its rules are due, and it is stopped here
    assert former.steps()
    cluster.elect(1)
    cluster.settle(cluster.members[1:])
    installed = [dict(device.entries) for device in cluster.switches.values()]
    former.settle()
    assert [dict(device.entries) for device in cluster.switches.values()] == installed
    assert former.outranked, "it has not noticed that switches have another master"
    cluster.rest()
    check(cluster, DOWN)


@pytest.mark.parametrize(("knowing", "ahead"), [(1, 5000), (10, 5000), (11, 5000), (10, 1 << 62), (11, 1 << 61)])
def test_only_most_switches_depose_a_leader_and_the_next_term_is_above_theirs(cluster: Cluster, knowing: int, ahead: int) -> None:
    for device in list(cluster.switches.values())[:knowing]:
        device.generation = ahead
    cluster.elect(1)
    cluster.settle()
    cluster.advance(10.0)
    leader = cluster.members[1]
    assert bool(leader.outranked) is (knowing > 10), "what half of the switches say is taken for the fabric's, or most are ignored"
    assert len(leader.state.connected) == 20 - knowing or leader.outranked
    assert (leader.core.switches.highest_generation == ahead) is (knowing > 10 or ahead == 5000)
    if leader.core.switches.highest_generation:
        cluster.elect(1)
        cluster.rest()
        assert cluster.term > ahead
        check(cluster, {})


@pytest.mark.parametrize("seed", range(12))
def test_at_rest_all_is_as_the_last_leader_says_whatever_happened_before(seed: int) -> None:
    rng, cluster = random.Random(seed), Cluster(3)
    links = list(cluster.tree.switch_links())
    down: set[str] = set()
    for _ in range(60):
        leading = [number for number, member in enumerate(cluster.members) if member.knows_leader]
        match rng.randrange(8):
            case 0:
                cluster.elect(rng.randrange(3))
            case 1:
                if deposed := [number for number in leading if number != cluster.leader]:
                    cluster.depose(rng.choice(deposed))
            case 2 | 3:
                link = rng.choice(links)
                down ^= {cluster.tree.name(link)}
                trouble = Reason.DOWN if cluster.tree.name(link) in down else None
                for end, other in (link, link[::-1]):
                    cluster.switches[end].set_port(cluster.tree.port(end, other), trouble)
            case 4:
                if leading:
                    cluster.commit(rng.choice(leading))
            case 5:
                cluster.follow(rng.randrange(3))
            case 6:
                cluster.advance(rng.choice([0.1, 1.0, 5.0]))
            case _:
                for _ in range(rng.randrange(30)):
                    if steps := [step for member in cluster.members for step in member.steps()]:
                        rng.choice(steps)()
    cluster.rest(60.0)
    check(cluster, dict.fromkeys(sorted(down), "down"))
    assert [view[:2] for view in cluster.history] == sorted({view[:2] for view in cluster.history})
