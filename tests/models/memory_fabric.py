"""Assertions about the controller's core with switches in memory.

What must be true of every message and every effect is asserted as it happens; `MemoryFabric.check` asserts what must be true at
rest, against what is really there.
"""

from __future__ import annotations

from flowrules.model import Flow
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    BarrierRequest,
    DeleteFlow,
    DeleteGroup,
    Installed,
    InstalledState,
    Message,
    ModifyGroup,
    RoleRequest,
    SendProbe,
)
from sopa_ryu.fabric.switch_manager import Effects
from sopa_ryu.fabric.switch_session import Phase, SwitchSession
from tests.models.memory_switch import Channel, MemorySwitch, Place, Role
from tests.models.simulated_fabric import SimulatedFabric
from topologies import Link, Switch
from topologies.failures import Reason

REST_SECONDS = 120.0
"""An answer overdue (30), the longest retry (60), the longest hold-down (8); a wrong cable is forgotten within 45."""


class MemoryFabric(SimulatedFabric):
    """A simulated fabric that checks what the controller does."""

    # -- what must be true of each message and effect -----------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        assert effects.tell_agents or self.state.version == self.run.version
        assert self.state.settled or not effects.tell_agents
        super()._carry_out(effects)
        for change in effects.in_force:
            assert self.run.in_force.count(change.version) == 1, "a version is reported in force twice"
            kept = [session for session in self.core.switches.sessions.values() if session.phase in _WITH_RULES]
            late = [session.name for session in kept if session.version < change.version]
            assert not late, f"version {change.version} is reported in force before {late} have confirmed it"

    def _check_due(self, session: SwitchSession, messages: list[Message]) -> None:
        channel = session.connection
        assert isinstance(channel, Channel)
        for message in messages:
            if isinstance(message, SendProbe):
                assert (session.switch, message.port) in self.plan, "a probe goes out of a host's port"
            assert channel not in self.run.taken or isinstance(message, RoleRequest), "another controller is its master"
        changes = [
            message
            for message in messages
            if isinstance(message, AddFlow | DeleteFlow | AddGroup | ModifyGroup | DeleteGroup)
        ]
        if not changes:
            return
        assert isinstance(messages[-1], BarrierRequest)
        if not self.state.settled and channel.role is Role.MASTER:  # otherwise the switch refuses all of them
            ours = [entry for entry in channel.switch.entries.values() if rule_changes.is_ours(entry.installed)]
            assert not ours, "an earlier controller's rules are changed before it is known what has failed"
        ranks = [_RANKS[type(message)] for message in changes]
        assert ranks == sorted(ranks), "something is withdrawn before what replaces it is there"
        added = {place_of(message.flow) for message in changes if isinstance(message, AddFlow)}
        deleted = {place_of(message.entry) for message in changes if isinstance(message, DeleteFlow)}
        assert added.isdisjoint(deleted), "an entry is deleted that has been overwritten"

    # -- what must be true at rest ------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Have answers flow again, give everything time, and check."""
        for channel in self._channels.values():
            channel.holds_messages = channel.holds_answers = False
        self.notice_lost()
        self.settle()
        self.advance(REST_SECONDS)
        self.check()

    def check(self) -> None:
        """Check the controller's view and the switches' rules against what is really there."""
        state, run = self.state, self.run
        present = self._present()
        self.unclear = {
            switch
            for switch, device in self.switches.items()
            if switch in self.unclear and (switch not in present or device.limits or self._is_taken(device))
        }
        if state.settled and run.heard & present:
            found = {name: reason for name, reason in state.failures.items() if self._is_clear(name)}
            expected = {name: reason for name, reason in self.expected_failures().items() if self._is_clear(name)}
            assert found == expected
            assert run.sent == state.view
            assert self.agents == dict.fromkeys(self.agents, state.view)
        assert run.in_force == sorted(run.in_force)
        assert [version for version in run.begun if version not in run.in_force] == [], "never in force"
        for switch in present - self.unclear:
            self._check_switch(switch)
        for switch in present:
            assert not self._is_taken(self.switches[switch]) or switch not in state.connected, "it is another's"
        for stranger in self._strangers:
            assert not stranger.switch.handled

    def _present(self) -> set[Switch]:
        """Return the switches that are connected, and had the planned ports once since."""
        return {
            switch for switch, channel in self._channels.items() if channel.is_open and channel in self.run.accepted
        }

    def _is_taken(self, device: MemorySwitch) -> bool:
        return device.generation is not None and device.generation > self.state.epoch

    def _is_clear(self, name: str) -> bool:
        element = self.tree.element(name)
        return self.unclear.isdisjoint(element if isinstance(element, Link) else [element])

    def _check_switch(self, switch: Switch) -> None:
        device, session, name = self.switches[switch], self.session(switch), self.tree.name(switch)
        assert session.phase is Phase.IN_FORCE, f"{name} is {session.phase}"
        assert session.version == self.state.version
        assert switch in self.state.connected
        wanted = switch_rules(self.tree, switch, self.state.failures, self._settings[2])
        entries = {place: entry.flow for place, entry in device.entries.items() if entry.flow is not None}
        assert {place: repr(flow) for place, flow in entries.items()} == {
            place_of(flow): repr(flow) for flow in wanted.flows
        }, f"{name} has other entries"
        assert device.groups == {group.id: group for group in wanted.groups}
        assert rule_changes.reconcile(wanted, _installed(device), 1) == []

    def expected_failures(self) -> dict[str, Reason]:
        """Return what has failed, from switches, cables and operators alone."""
        present = self._present()
        broken: dict[Switch | Link, Reason] = {}
        for end, ear in self.run.ears.items():
            if ear.wrong_at is not None:
                broken[self.tree.link(end[0], self.plan[end][0])] = Reason.MISWIRED
        for switch in present:
            for port, neighbour in self.tree.ports(switch).items():
                link = self.tree.link(switch, neighbour)
                trouble = self.switches[switch].ports.get(port, Reason.DOWN)
                if trouble is not None and broken.get(link) is not Reason.DOWN:
                    broken[link] = trouble
        for switch in self.switches.keys() - present:
            broken[switch] = Reason.DOWN if switch in self.run.heard else Reason.NOT_CONNECTED
        return dict.fromkeys(self.drained, Reason.DRAINED) | {
            self.tree.name(element): reason
            for element, reason in broken.items()
            if not (isinstance(element, Link) and any(end in broken for end in element if isinstance(end, Switch)))
        }


_WITH_RULES = Phase.IN_FORCE, Phase.UPDATING
_RANKS: dict[type, int] = {AddGroup: 0, ModifyGroup: 0, AddFlow: 1, DeleteFlow: 2, DeleteGroup: 3}


def place_of(entry: Flow | Installed) -> Place:
    """Return what identifies a flow entry."""
    return int(entry.table), entry.priority, frozenset(entry.match)


def _installed(device: MemorySwitch) -> InstalledState:
    groups = {number: tuple(bucket.port for bucket in group.buckets) for number, group in device.groups.items()}
    return InstalledState([entry.installed for entry in device.entries.values()], groups)
