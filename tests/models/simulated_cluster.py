"""Several controllers' cores on the same switches in memory, and an engine that is a few variables.

A member that has lost its leadership may not know it yet, and what it has sent may still be on its way: only the switches' roles
and the engine's comparison stop it then, as they have to stop a process that was stopped and goes on.
"""

from collections.abc import Collection

from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.messages import AddFlow, AddGroup, DeleteFlow, DeleteGroup, Message, ModifyGroup
from sopa_ryu.fabric.view import View
from tests.models.memory_switch import Channel, Event, MemorySwitch, Role
from tests.models.simulated_fabric import SETTLE_SECONDS, SimulatedFabric

COMMANDS = AddFlow | DeleteFlow | AddGroup | ModifyGroup | DeleteGroup


class WatchedSwitch(MemorySwitch):
    def _start(self) -> None:
        super()._start()
        self.changed_by: list[int] = []

    def handle(self, channel: Channel, message: Message) -> list[Event]:
        if isinstance(message, COMMANDS) and channel.role is not Role.SLAVE:
            assert channel.role is Role.MASTER, "a command of a controller that was never made the master"
            assert self.generation is not None
            self.changed_by.append(self.generation)
        return super().handle(channel, message)


class MemberFabric(SimulatedFabric):
    """A member: a controller's core that stands by until it is told to lead."""

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
        assert member.state.commitment is not None
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
            assert commitment is not None
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
