"""Assertions about the controller's core with switches in memory.

What must be true of every message and every effect is asserted as it happens; `MemoryFabric.check` asserts what must be true at
rest, against what is really there.
"""

from collections.abc import Callable, Iterator
from functools import partial

from flowrules import label
from flowrules.model import SwitchRules
from flowrules.switch_rules import renews_cache, switch_rules
from sopa_ryu.fabric import messages as to
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.switch_session import SwitchPhase, SwitchSession
from sopa_ryu.fabric.wiring import PATIENCE_ROUNDS
from tests.models.flow_table import TableSwitch, ipv4_packet
from tests.models.memory_switch import Answered, Channel, Event, MemorySwitch, PortChanged, ProbeHeard, Refused, Role, place_of
from tests.models.reports import Reports, Run
from tests.models.simulated_fabric import SimulatedFabric
from topologies import Host, Level, Link, Switch
from topologies.failures import Reason

REST_SECONDS = 120.0
"""An answer overdue (30), the longest retry (60), the longest hold-down (8); a wrong cable is forgotten within 45."""


class MemoryFabric(SimulatedFabric):
    """A simulated fabric that checks what the controller does."""

    def _start(self) -> None:
        self.run = Run(Reports(self.tree))
        # another controller has or may have claimed them, or their tables are limited: what is said of them is not checked
        self.unclear: set[Switch] = {switch for switch, device in self.switches.items() if device.limits}
        super()._start()

    def take(self, switch: Switch) -> Channel:
        self.unclear.add(switch)
        return super().take(switch)

    def _look_at(self, channel: Channel) -> None:
        switch = self.tree.switch_by_dpid(channel.dpid)
        if channel.ports().keys() == self.tree.ports(switch).keys():
            self.run.accepted.add(channel)
            self.run.heard.add(switch)

    def _note_sent(self, message: to.Message) -> None:
        if isinstance(message, to.RoleRequest):
            self.run.asked[message] = self.now

    def _note_received(self, channel: Channel, event: Event) -> None:
        run, switch = self.run, self.tree.switch_by_dpid(channel.dpid)
        known = self.core.switches.session(channel) is not None
        match event:
            case Answered(to.RoleRequest() as request, answer) if run.in_time(request, self.now):
                (run.taken.discard if answer else run.taken.add)(channel)
            case Refused(to.RoleRequest() as request, _) if run.in_time(request, self.now):
                run.taken.add(channel)
            case PortChanged(port, trouble, deleted):
                trouble = Reason.DOWN if deleted else trouble
                if trouble is Reason.DOWN and known:
                    run.wrong.pop((switch, port), None)
                if known and port in self.tree.ports(switch):
                    run.reports.port((switch, port), trouble, self.now)
                if channel not in self._impostors:
                    self._look_at(channel)
            case ProbeHeard(port, probe) if known:
                planned, far_port = self.plan[switch, port]
                since, patience = run.wrong.get((switch, port)), PATIENCE_ROUNDS * self.core.discovery.interval
                if (probe.dpid, probe.port) != (self.tree.dpid(planned), far_port):
                    run.wrong[switch, port] = self.now
                elif since is not None and self.now - since >= patience:
                    del run.wrong[switch, port]  # once nothing but planned ones were heard for so long

    def observe(self, observe: Callable[..., Effects], *what: object) -> None:
        """Hand an observation to the core, note what it has learned of channels and rules by that, and carry out what follows."""
        super().observe(partial(self._note_learned, observe), *what)

    def _note_learned(self, observe: Callable[..., Effects], *what: object) -> Effects:
        reports, sessions = self.run.reports, self.core.switches.sessions
        before, phases = dict(sessions), {session: session.phase for session in sessions.values()}
        failed = set(self.state.evidence.out)
        effects = observe(*what)
        for switch, session in sessions.items():
            if before.get(switch) is not session:
                reports.connects(switch, dict(session.connection.ports()), self.now)
            elif phases[session] is SwitchPhase.READING and session.phase is not SwitchPhase.READING:
                in_use = switch in reports.confirmed or reports.operating
                if session.installation.is_of_sopa:
                    reports.operating = True
                elif session.phase is SwitchPhase.WAITING and in_use and switch not in reports.stays_out:
                    reports.is_empty(switch)
            if session.phase is SwitchPhase.BACKING_OFF and self.state.evidence.out.get(switch) is Reason.NO_RULES:
                reports.is_empty(switch)
            if session.phase in _WITH_RULES and switch in self.state.connected:
                reports.confirms(switch)
            if session.phase is SwitchPhase.TAKEN and session.connection not in self.run.taken:
                self._check_presumed(session)
        for switch in reports.present - self.state.evidence.heard:
            reports.loses(switch, self.now)
        if self.state.settled and reports.present:
            fault, new = self.state.management.in_grace, self.state.evidence.out.keys() - failed - sessions.keys()
            reports.conclude(judge=not fault)
            assert not (fault and new & reports.confirmed), "a switch is taken away in a fault of the management network"
        return effects

    def _carry_out(self, effects: Effects) -> None:
        state, run = self.state, self.run
        if state.version != run.version:
            if any(session.phase is not SwitchPhase.TAKEN for session in self.core.switches.sessions.values()):
                run.begun += range(run.version + 1, state.version + 1)
            run.version = state.version
            assert effects.tell_agents
        if effects.tell_agents:
            assert state.settled
            run.sent = state.view
        super()._carry_out(effects)
        for change in effects.in_force:
            assert change.version not in run.in_force, "a version is reported in force twice"
            run.in_force.append(change.version)
            kept = [session for session in self.core.switches.sessions.values() if session.phase in _WITH_RULES]
            late = [session.name for session in kept if session.version < change.version]
            assert not late, f"version {change.version} is reported in force before {late} have confirmed it"

    def _check_presumed(self, session: SwitchSession) -> None:
        """Check that a switch is left to another controller without being claimed only for good reason.

        It knows a generation id that is ahead, and another switch has another master (docs/architecture.md, section 10).
        """
        channel = session.connection
        assert isinstance(channel, Channel)
        theirs = channel.switch.generation or 0
        assert self.core.switches.generation.is_behind(theirs), f"{session.name} is given up, but knows no later controller"
        others = {other for other in [*self._channels.values(), *self._lost] if other.dpid != channel.dpid}
        assert others & self.run.taken, f"{session.name} is given up, but no other switch has another master"
        self.run.taken.add(channel)
        self.unclear.add(session.switch)

    def _check_due(self, session: SwitchSession, messages: list[to.Message]) -> None:
        channel = session.connection
        assert isinstance(channel, Channel)
        for message in messages:
            if isinstance(message, to.SendProbe):
                assert (session.switch, message.port) in self.plan, "a probe goes out of a host's port"
            harmless = to.RoleRequest | to.GenerationRequest | to.EchoRequest
            assert channel not in self.run.taken or isinstance(message, harmless), "another controller is its master"
        changes = [its for its in messages if type(its) in _RANKS]
        if not changes:
            return
        assert isinstance(messages[-1], to.BarrierRequest)
        if not self.state.settled and channel.role is Role.MASTER:  # otherwise the switch refuses all of them
            ours = filter(rule_changes.is_ours, channel.switch.installed().flows)
            assert not any(ours), "an earlier controller's rules are changed before it is known what has failed"
        ranks = [_rank(message) for message in changes]
        assert ranks == sorted(ranks), "something is withdrawn before what replaces it is there"
        added = {place_of(message.flow) for message in changes if isinstance(message, to.AddFlow)}
        deleted = {place_of(message.entry) for message in changes if isinstance(message, to.DeleteFlow)}
        assert added.isdisjoint(deleted), "an entry is deleted that has been overwritten"

    def rest(self) -> None:
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
            reasons = (state.failures, self.expected_failures())
            found, expected = ({its: why for its, why in each.items() if self._is_clear(its)} for each in reasons)
            found = {its: why for its, why in found.items() if why != Reason.NO_CHANNEL}
            self._check_labels(present)
            assert found == expected
            assert run.sent == state.view
            assert self.agents == dict.fromkeys(self.agents, state.view)
        assert run.in_force == sorted(run.in_force)
        # a switch whose tables are full is tried again and again: versions made since the last time wait for the next
        if all(session.phase is not SwitchPhase.BACKING_OFF for session in self.core.switches.sessions.values()):
            assert [version for version in run.begun if version not in run.in_force] == [], "never in force"
        for switch in present - self.unclear:
            self._check_switch(switch)
        for switch in present:
            assert not self._is_taken(self.switches[switch]) or switch not in state.connected, "it is another's"
        for stranger in self._strangers:
            assert not stranger.switch.handled

    def _present(self) -> set[Switch]:
        channels = self._channels.items()
        return {switch for switch, its in channels if its.is_open and its in self.run.accepted}

    def _is_taken(self, device: MemorySwitch) -> bool:
        channel = self._channels.get(self.tree.switch_by_dpid(device.dpid))
        return channel is None or channel.role is not Role.MASTER

    def _is_clear(self, name: str) -> bool:
        element = self.tree.element(name)
        return self.unclear.isdisjoint(element if isinstance(element, Link) else [element])

    def _check_switch(self, switch: Switch) -> None:
        device, session, name = self.switches[switch], self.session(switch), self.tree.name(switch)
        assert session.phase is SwitchPhase.IN_FORCE, f"{name} is {session.phase}"
        assert session.version == self.state.version
        assert switch in self.state.connected
        wanted = switch_rules(self.tree, switch, self.state.failures)
        entries, planned = ({place_of(flow): repr(flow) for flow in its} for its in (device.flows(), wanted.flows))
        assert entries == planned, f"{name} has other entries"
        assert device.groups == {group.id: group for group in wanted.groups}
        assert rule_changes.reconcile(wanted, device.installed(), 1) == []

    def expected_failures(self) -> dict[str, Reason]:
        present, reports = self._present(), self.run.reports
        broken: dict[Switch | Link, Reason] = {
            self.tree.link(end[0], self.plan[end][0]): Reason.MISWIRED for end in self.run.wrong
        } | {switch: why for switch, why in reports.stays_out.items() if switch not in present}
        for switch in (*present, *(self.switches.keys() - present)):
            for port, neighbour in self.tree.ports(switch).items():
                seen = self.switches[switch].ports.get(port, Reason.DOWN)
                trouble = seen if switch in present else reports.trouble((switch, port))
                if trouble is Reason.SILENT and isinstance(neighbour, Host):
                    continue  # no host of the model has ever answered BFD
                link = self.tree.link(switch, neighbour)
                if trouble is not None and broken.get(link) is not Reason.DOWN:
                    broken[link] = trouble
        return dict.fromkeys(self.drained, Reason.DRAINED) | {
            self.tree.name(element): reason
            for element, reason in broken.items()
            if not (isinstance(element, Link) and any(end in broken for end in element if isinstance(end, Switch)))
        }

    def _check_labels(self, present: set[Switch]) -> None:
        """Check that switches whose rules cannot be changed follow the labels of the candidate paths through them."""
        for name, reason in self.state.failures.items():
            if reason == Reason.NO_CHANNEL:
                link = self.tree.link_by_name(name)
                assert link.lower not in present or self._is_taken(self.switches[link.lower]), (
                    f"{name} is excluded although its switch can be given other rules"
                )
        # the rules that a switch had before the controller started are not known
        for switch in (self.switches.keys() & self.run.reports.confirmed) - present - self.unclear:
            device = self.switches[switch]
            if switch.level is Level.CORE or switch in self.run.reports.stays_out or not device.entries:
                continue
            table = TableSwitch(SwitchRules(tuple(device.flows()), tuple(device.groups.values())))
            edge = switch if switch.level is Level.EDGE else Switch(Level.EDGE, switch.pod, 0)
            src = next(self.tree.hosts_of(edge))
            for up, rack in self._paths_up(switch, edge):
                port = self.tree.uplink_port(switch.level, up[0 if switch is edge else 1])
                packet = ipv4_packet(self.tree, src, next(self.tree.hosts_of(rack)), eth_src=label.carrier_mac(up))
                left = [departure.port for departure in table.receive(packet, 1)]
                assert left == [port], f"{self.tree.name(switch)} sends a packet labelled {up} out of {left}, not {port}"

    def _paths_up(self, switch: Switch, edge: Switch) -> Iterator[tuple[tuple[int, ...], Switch]]:
        for rack, choices in self.state.failures.choices_from(edge).items():
            for up in choices:
                if up and (switch is edge or (len(up) > 1 and up[0] == switch.index)):
                    yield up, rack


_WITH_RULES = SwitchPhase.IN_FORCE, SwitchPhase.UPDATING
_RANKS: dict[type, int] = {to.AddGroup: 0, to.ModifyGroup: 0, to.AddFlow: 1, to.DeleteFlow: 2, to.DeleteGroup: 4}


def _rank(change: to.Message) -> int:
    """Return a number that rises within an update: what replaces, what is withdrawn, what renews the cache, groups' ends."""
    match change:
        case (to.AddFlow() | to.DeleteFlow()) as flow if renews_cache(flow[0].match):
            return 3
        case _:
            return _RANKS[type(change)]
