"""The controller's core with switches in memory, on a virtual clock: what `sopa_ryu.app` does around it, one step at a time.

What must be true of every message and every effect is asserted as it happens; `MemoryFabric.check` asserts what must be true at
rest, against what is really there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flowrules import label
from flowrules.model import Flow, SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.channel import protocol
from sopa_ryu.channel.notifier import Completed, Effect, Notifier, Wake
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.link_discovery import PATIENCE_ROUNDS
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    BarrierRequest,
    DeleteFlow,
    DeleteGroup,
    EchoRequest,
    GenerationRequest,
    Heard,
    Installed,
    InstalledState,
    Message,
    ModifyGroup,
    RoleRequest,
    SendProbe,
)
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import ANSWER_SECONDS, Phase, SwitchSession
from sopa_ryu.fabric.view import View
from tests.models.flow_table import TableSwitch, ipv4_packet
from tests.models.memory_switch import (
    Answered,
    Channel,
    MemorySwitch,
    Place,
    PortChanged,
    ProbeHeard,
    Refused,
    Role,
)
from tests.models.reports import Reports
from topologies import FatTree, Host, Level, Link, Switch
from topologies.failures import Reason

End = tuple[Switch, int]
Step = Callable[[], None]

START = 1000.0
SETTLE_SECONDS = 10.0
PROBE_SECONDS = 10.0
HOLD_SECONDS, MAX_HOLD_SECONDS = 2.0, 8.0
REST_SECONDS = 120.0
"""An answer overdue (30), the longest retry (60), the longest hold-down (8); a wrong cable is forgotten within 45."""
MAX_TICKS_AT_ONCE = 1000
MAX_ROUNDS = 10_000


@dataclass
class Ear:
    """What has arrived at a port between switches: when a wrong neighbour was heard last, if that still counts."""

    wrong_at: float | None = None


@dataclass
class Run:
    """What a run of the controller has done so far.

    Attributes
    ----------
    accepted : set of Channel
        Those that a switch of the fabric with the planned ports has connected by.
    heard : set of Switch
        Those that have connected to it so.
    taken : set of Channel
        Those over which it was told that another controller is the master.
    asked : dict of RoleRequest to float
        When the role was asked for.
    begun, in_force : list of int
        The versions that it has made while a switch could follow, and those that it has reported in force.
    sent : View or None
        What agents were sent last.
    reports : Reports
        What it was told of ports and channels.
    """

    reports: Reports
    accepted: set[Channel] = field(default_factory=set)
    heard: set[Switch] = field(default_factory=set)
    taken: set[Channel] = field(default_factory=set)
    asked: dict[RoleRequest, float] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    in_force: list[int] = field(default_factory=list)
    sent: View | None = None
    version: int = 1
    ears: dict[End, Ear] = field(default_factory=dict)


class MemoryFabric:
    """A fat-tree of switches in memory, its cables, and a controller.

    Parameters
    ----------
    k : int
    settle_seconds, probe_seconds : float
    no_label : collection of Host

    Attributes
    ----------
    now : float
        Monotonic seconds.
    switches : dict of Switch to MemorySwitch
    cables : dict of End to End
        Where a cable from each port between switches really leads.
    core : Coordinator
    agents : dict of Host to View or None
        Two hosts with agents that answer immediately, and what they have in force.
    drained : set of str
    unclear : set of Switch
        Switches that another controller has claimed, or whose tables are limited: what the controller says of them is not checked.
    """

    def __init__(
        self,
        k: int = 4,
        settle_seconds: float = SETTLE_SECONDS,
        probe_seconds: float = PROBE_SECONDS,
        no_label: Collection[Host] = (),
    ) -> None:
        self.tree = FatTree(k)
        self.now = START
        self.switches = {
            switch: MemorySwitch(self.tree.dpid(switch), dict.fromkeys(self.tree.ports(switch)))
            for switch in self.tree.switches()
        }
        self.cables: dict[End, End] = {}
        for link in self.tree.links():
            if isinstance(link.lower, Switch):
                low = link.lower, self.tree.port(link.lower, link.upper)
                high = link.upper, self.tree.port(link.upper, link.lower)
                self.cables |= {low: high, high: low}
        self.plan = dict(self.cables)
        self.drained: set[str] = set()
        first, *_, last = self.tree.hosts()
        self.agents: dict[Host, View | None] = {first: None, last: None}
        self.epoch = 0
        self._settings = settle_seconds, probe_seconds, no_label
        self._channels: dict[Switch, Channel] = {}
        self._strangers: list[Channel] = []
        self._lost: list[Channel] = []
        self._impostors: list[Channel] = []
        self._writing: dict[SwitchSession, deque[Message]] = {}
        self._again: set[SwitchSession] = set()
        self._start()

    def _start(self) -> None:
        settle, probes, no_label = self._settings
        self.epoch += 1000
        self.run = Run(Reports(self.tree))
        state = FabricState(self.tree, self.epoch, HoldDown(HOLD_SECONDS, MAX_HOLD_SECONDS))
        state.drain(self.drained, self.now)
        self.core = Coordinator(state, settle, probes, no_label)
        self.notifier = Notifier(self.tree, lambda: state.view if state.settled else None)
        for host in self.agents:
            address = str(self.tree.ip(host))
            self._carry_out_for_agents(self.notifier.connected(host, address, None, None, self.now)[1])
        self.unclear: set[Switch] = {switch for switch, device in self.switches.items() if device.limits}
        self._writing.clear()
        self._again.clear()

    @property
    def state(self) -> FabricState:
        return self.core.state

    def session(self, switch: Switch) -> SwitchSession:
        return self.core.switches.sessions[switch]

    # -- what happens to the controller -------------------------------------------------------------------------------

    def restart_controller(self) -> None:
        """Kill the controller and start it again: switches keep their entries and have to connect again."""
        for channel in [*self._channels.values(), *self._strangers, *self._impostors]:
            if channel.is_open:
                channel.close()
        self._channels.clear()
        self._strangers.clear()
        self._impostors.clear()
        self._lost.clear()
        self._start()

    def drain(self, name: str, drained: bool = True) -> None:
        """Drain or restore a link or switch."""
        (self.drained.add if drained else self.drained.discard)(name)
        self.observe(self.core.drained, self.drained)

    def read_rules(self, switch: Switch) -> InstalledState:
        """Return what is installed in a switch, as `RuleChecker` reads it."""
        return _installed(self.switches[switch])

    def check_rules(self, switch: Switch, found: InstalledState | None = None) -> None:
        """Hand the core what is installed in a switch, or was when it was read."""
        session = self.session(switch)
        self._carry_out(self.core.installed(session, found or self.read_rules(switch), self.now))

    def advance(self, seconds: float, deliver: bool = True) -> None:
        """Let time pass; unless ``deliver``, nothing is written, processed or received meanwhile."""
        end, ticks = self.now + seconds, 0
        while self.core.next_tick <= end:
            ticks = ticks + 1 if self.core.next_tick <= self.now else 0
            assert ticks < MAX_TICKS_AT_ONCE, "the controller's clock does not go on"
            self.now = max(self.now, self.core.next_tick)
            self.observe(self.core.tick)
            if deliver:
                self.settle()
        self.now = end

    # -- what happens to the switches ---------------------------------------------------------------------------------

    def channel(self, switch: Switch) -> Channel | None:
        """Return the connection of a switch to the controller, if there is one."""
        return self._channels.get(switch)

    def connect(self, switch: Switch) -> Channel:
        """Have a switch connect; a former connection breaks, which the controller notices later (`notice_lost`)."""
        former = self._channels.get(switch)
        if former is not None:
            self._break(former)
        channel = self._channels[switch] = self.switches[switch].connect()
        self._look_at(channel)
        self.observe(self.core.switch_connected, channel)
        return channel

    def connect_impostor(self, switch: Switch) -> Channel:
        """Have a device connect with the datapath id of a switch, and planned ports of which all are down."""
        ports = dict.fromkeys(self.tree.ports(switch), Reason.DOWN)
        channel = MemorySwitch(self.tree.dpid(switch), ports).connect("192.0.2.66")
        self._impostors.append(channel)
        self.observe(self.core.switch_connected, channel)
        return channel

    def stand_still(self, seconds: float, lost: Collection[Switch] = ()) -> None:
        """Stop the controller for a while and let it go on: some switches have closed their connections meanwhile."""
        for switch in lost:
            if switch in self._channels:
                self._break(self._channels.pop(switch))
        self.observe(self.core.paused, seconds)
        self.notice_lost()

    def _look_at(self, channel: Channel) -> None:
        switch = self.tree.switch_by_dpid(channel.dpid)
        if channel.ports().keys() == self.tree.ports(switch).keys():
            self.run.accepted.add(channel)
            self.run.heard.add(switch)

    def connect_all(self) -> None:
        """Have all switches connect that are not connected, and let everything happen that follows immediately."""
        for switch in self.switches:
            if switch not in self._channels:
                self.connect(switch)
        self.settle()

    def connect_stranger(self, dpid: int) -> MemorySwitch:
        """Have a switch connect that is none of the fabric."""
        stranger = MemorySwitch(dpid, dict.fromkeys(self.tree.ports(next(self.tree.switches()))))
        channel = stranger.connect()
        self._strangers.append(channel)
        self.observe(self.core.switch_connected, channel)
        return stranger

    def disconnect(self, switch: Switch) -> None:
        """Break the connection of a switch, and have the controller notice."""
        self._break(self._channels.pop(switch))
        self.notice_lost()

    def restart_switch(self, switch: Switch) -> None:
        """Restart a switch: it loses its entries and its connection, and does not connect again by itself."""
        if switch in self._channels:
            self.disconnect(switch)
        self.switches[switch].restart()

    def _break(self, channel: Channel) -> None:
        if channel.is_open:
            channel.close()
        self._lost.append(channel)

    def notice_lost(self) -> None:
        """Have the controller notice all broken connections."""
        while self._lost:
            self.observe(self.core.switch_disconnected, self._lost.pop(0))

    def take(self, switch: Switch) -> Channel:
        """Have another controller, started later than any so far, become the master of a switch."""
        self.epoch = max(self.epoch, self.switches[switch].generation or 0) + 1000
        self.unclear.add(switch)
        channel = self.switches[switch].connect("192.0.2.99")
        channel.send(RoleRequest(self.epoch))
        channel.process()
        assert channel.role is Role.MASTER
        return channel

    def swap(self, one: End, other: End) -> None:
        """Exchange the plugs in two ports; whoever is to see it has to unplug them before."""
        far_one, far_other = self.cables[one], self.cables[other]
        if far_one != other:
            self.cables |= {one: far_other, far_other: one, other: far_one, far_one: other}

    # -- one step at a time -------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Return what can happen next: a message is written, processed by its switch, or received by the controller."""
        steps: list[Step] = [partial(self._write, session) for session in self._writing]
        for channel in [*self._channels.values(), *self._impostors]:
            if channel.inbox and not channel.holds_messages:
                steps.append(partial(self._process, channel))
            if channel.outbox and not channel.holds_answers:
                steps.append(partial(self._receive, channel))
        return steps

    def settle(self) -> None:
        """Let everything happen that can without time passing."""
        for _ in range(MAX_ROUNDS):
            for step in (steps := self.steps()):
                step()
            if not steps:
                return
        raise AssertionError("messages go to and fro without end")

    def interleave(self, choices: Iterable[int]) -> None:
        """Take one step after another, each chosen by a number."""
        for choice in choices:
            steps = self.steps()
            if not steps:
                return
            steps[choice % len(steps)]()

    def _wake(self, session: SwitchSession) -> None:
        if session in self._writing:
            self._again.add(session)
        else:
            self._writing[session] = deque()

    def _write(self, session: SwitchSession) -> None:
        """Go on as the green thread of `sopa_ryu.southbound.connection.Writer` does, up to the next message."""
        pending = self._writing.get(session)
        if pending is None:
            return
        if not pending:
            messages, effects = self.core.due(session, self.now)
            self._carry_out(effects)
            self._check_due(session, messages)
            pending.extend(messages)
            if messages:
                return
        else:
            assert isinstance(session.connection, Channel)
            message = pending.popleft()
            if session.connection.send(message):
                if isinstance(message, RoleRequest):
                    self.run.asked[message] = self.now
                if not pending:
                    self.core.was_sent(session, self.now)
                return
        if session in self._again:
            self._again.discard(session)
            pending.clear()
        else:
            del self._writing[session]

    def _process(self, channel: Channel) -> None:
        if channel.inbox:
            channel.process()
            if channel not in self._impostors:
                self._spread(channel.switch)

    def _spread(self, device: MemorySwitch) -> None:
        """Have the probes that a switch sends arrive where its cables lead."""
        here = self.tree.switch_by_dpid(device.dpid)
        while device.probes:
            port = device.probes.pop()
            there, far_port = self.cables[here, port]
            if (
                device.ports.get(port, Reason.DOWN) is None
                and self.switches[there].ports.get(far_port, Reason.DOWN) is None
            ):
                self.switches[there].hear(far_port, Heard(device.dpid, port, ""))

    def _receive(self, channel: Channel) -> None:
        if not channel.outbox:
            return
        switch = self.tree.switch_by_dpid(channel.dpid)
        known = self.core.switches.session(channel) is not None
        match channel.receive():
            case Answered(request, answer):
                if isinstance(request, RoleRequest) and self._in_time(request):
                    (self.run.taken.discard if answer else self.run.taken.add)(channel)
                self.observe(self.core.answered, channel, request, answer)
            case Refused(request, refusal):
                if isinstance(request, RoleRequest) and self._in_time(request):
                    self.run.taken.add(channel)
                self.observe(self.core.refused, channel, request, refusal)
            case PortChanged(port, trouble, deleted):
                trouble = Reason.DOWN if deleted else trouble
                if trouble is Reason.DOWN and known:
                    self.run.ears.pop((switch, port), None)
                if known and port in self.tree.ports(switch):
                    self.run.reports.port((switch, port), trouble, self.now)
                if channel not in self._impostors:
                    self._look_at(channel)
                self.observe(self.core.port_status, channel, port, trouble)
            case ProbeHeard(port, probe):
                if known:
                    self._listen((switch, port), probe)
                self.observe(self.core.probe_heard, channel, port, probe)

    def observe(self, observe: Callable[..., Effects], *what: object) -> None:
        """Hand an observation to the core, and note what it has learned of channels and rules by that."""
        reports, sessions = self.run.reports, self.core.switches.sessions
        before, phases = dict(sessions), {session: session.phase for session in sessions.values()}
        failed = set(self.state.evidence.out)
        effects = observe(*what, self.now)
        for switch, session in sessions.items():
            if before.get(switch) is not session:
                reports.connects(switch, dict(session.connection.ports()), self.now)
            elif phases[session] is Phase.READING and session.phase is not Phase.READING:
                in_use = switch in reports.confirmed or reports.operating
                if session.has_no_rules and in_use and switch not in reports.stays_out:
                    reports.is_empty(switch)
                elif session.may_have_foreign_state:
                    reports.operating = True
            if session.phase is Phase.BACKING_OFF and self.state.evidence.out.get(switch) is Reason.NO_RULES:
                reports.is_empty(switch)
            if session.phase in _WITH_RULES and switch in self.state.connected:
                reports.confirms(switch)
        for switch in reports.present - self.state.evidence.heard:
            reports.loses(switch, self.now)
        if self.state.settled and reports.present:
            fault = self.state.management.in_grace
            reports.conclude(judge=not fault)
            new = self.state.evidence.out.keys() - failed - sessions.keys()
            assert not (fault and new & reports.confirmed), (
                "a switch is taken away in a fault of the management network"
            )
        self._carry_out(effects)

    def _in_time(self, request: RoleRequest) -> bool:
        return self.now < self.run.asked[request] + ANSWER_SECONDS

    def _listen(self, end: End, probe: Heard) -> None:
        ear = self.run.ears.setdefault(end, Ear())
        planned, port = self.plan[end]
        if (probe.dpid, probe.port) != (self.tree.dpid(planned), port):
            ear.wrong_at = self.now
        elif ear.wrong_at is not None and self.now - ear.wrong_at >= PATIENCE_ROUNDS * self.core.discovery.interval:
            ear.wrong_at = None

    # -- what must be true of each message and effect -----------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        state, run = self.state, self.run
        if state.version != run.version:
            if any(session.phase is not Phase.TAKEN for session in self.core.switches.sessions.values()):
                run.begun += range(run.version + 1, state.version + 1)
            run.version = state.version
            assert effects.tell_agents
        if effects.tell_agents:
            assert state.settled
            run.sent = state.view
            agents, for_agents = self.notifier.broadcast()
            self.core.sent_to_agents(agents)
            self._carry_out_for_agents(for_agents)
        for session in effects.due:
            self._wake(session)
        for connection in effects.close:
            assert isinstance(connection, Channel)
            self._close(connection)
        for change in effects.in_force:
            assert change.version not in run.in_force, "a version is reported in force twice"
            run.in_force.append(change.version)
            kept = [session for session in self.core.switches.sessions.values() if session.phase in _WITH_RULES]
            late = [session.name for session in kept if session.version < change.version]
            assert not late, f"version {change.version} is reported in force before {late} have confirmed it"

    def _close(self, channel: Channel) -> None:
        """The controller closes a connection, and notices that later."""
        self._break(channel)
        if channel in self._impostors:
            self._impostors.remove(channel)
        switch = self.tree.switch_by_dpid(channel.dpid)
        if self._channels.get(switch) is channel:
            del self._channels[switch]

    def _carry_out_for_agents(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake(session):
                    while (text := self.notifier.due(session, self.now)) is not None:
                        view = protocol.receive(text, self.agents[session.host], self.tree.ip(session.host))
                        self.agents[session.host] = view
                        answer = protocol.ack(view, 0)
                        self._carry_out_for_agents(self.notifier.received(session, answer, self.now))
                case Completed(version):
                    self.core.acknowledged(version, self.now)
                case _:
                    raise AssertionError(f"agents that answer have led to {effect}")

    def _check_due(self, session: SwitchSession, messages: list[Message]) -> None:
        channel = session.connection
        assert isinstance(channel, Channel)
        for message in messages:
            if isinstance(message, SendProbe):
                assert (session.switch, message.port) in self.plan, "a probe goes out of a host's port"
            harmless = RoleRequest | GenerationRequest | EchoRequest
            assert channel not in self.run.taken or isinstance(message, harmless), "another controller is its master"
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
            found = {
                name: reason
                for name, reason in state.failures.items()
                if self._is_clear(name) and reason != Reason.NO_CHANNEL
            }
            self._check_labels(present)
            expected = {name: reason for name, reason in self.expected_failures().items() if self._is_clear(name)}
            assert found == expected
            assert run.sent == state.view
            assert self.agents == dict.fromkeys(self.agents, state.view)
        assert run.in_force == sorted(run.in_force)
        # a switch whose tables are full is tried again and again: versions made since the last time wait for the next
        if all(session.phase is not Phase.BACKING_OFF for session in self.core.switches.sessions.values()):
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
        channel = self._channels.get(self.tree.switch_by_dpid(device.dpid))
        return channel is None or channel.role is not Role.MASTER

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
        reports = self.run.reports
        for switch in self.switches.keys() - present:
            if switch in reports.stays_out:
                broken[switch] = reports.stays_out[switch]
            for port, neighbour in self.tree.ports(switch).items():
                link = self.tree.link(switch, neighbour)
                trouble = reports.trouble((switch, port))
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
            flows = tuple(entry.flow for entry in device.entries.values() if entry.flow is not None)
            table = TableSwitch(SwitchRules(flows, tuple(device.groups.values())))
            for up, rack in self._paths_up(switch):
                port = self.tree.uplink_port(up[0 if switch.level is Level.EDGE else 1])
                src = next(
                    self.tree.hosts_of(switch if switch.level is Level.EDGE else Switch(Level.EDGE, switch.pod, 0))
                )
                packet = ipv4_packet(self.tree, src, next(self.tree.hosts_of(rack)), eth_src=label.carrier_mac(up))
                left = [departure.port for departure in table.receive(packet, 1)]
                assert left == [port], (
                    f"{self.tree.name(switch)} sends a packet labelled {up} out of {left}, not {port}"
                )

    def _paths_up(self, switch: Switch) -> Iterator[tuple[tuple[int, ...], Switch]]:
        """Yield the uplinks and the destination of the candidate paths from this pod that go up through a switch."""
        edge = switch if switch.level is Level.EDGE else Switch(Level.EDGE, switch.pod, 0)
        for rack, choices in self.state.failures.choices_from(edge).items():
            for up in choices:
                if up and (switch.level is Level.EDGE or (len(up) > 1 and up[0] == switch.index)):
                    yield up, rack


_WITH_RULES = Phase.IN_FORCE, Phase.UPDATING
_RANKS: dict[type, int] = {AddGroup: 0, ModifyGroup: 0, AddFlow: 1, DeleteFlow: 2, DeleteGroup: 3}


def place_of(entry: Flow | Installed) -> Place:
    """Return what identifies a flow entry."""
    return int(entry.table), entry.priority, frozenset(entry.match)


def _installed(device: MemorySwitch) -> InstalledState:
    groups = {number: tuple(bucket.port for bucket in group.buckets) for number, group in device.groups.items()}
    return InstalledState([entry.installed for entry in device.entries.values()], groups)
