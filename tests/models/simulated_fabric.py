"""A controller's core with switches in memory, on a virtual clock: what `sopa_ryu.app` does around it, one step at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from sopa_ryu.channel import protocol
from sopa_ryu.channel.notifier import Completed, Effect, Notifier, Wake
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.link_discovery import PATIENCE_ROUNDS
from sopa_ryu.fabric.messages import (
    Heard,
    Message,
    RoleRequest,
)
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_manager import Effects
from sopa_ryu.fabric.switch_session import ANSWER_SECONDS, Phase, SwitchSession
from sopa_ryu.fabric.view import View
from tests.models.memory_switch import (
    Answered,
    Channel,
    MemorySwitch,
    PortChanged,
    ProbeHeard,
    Refused,
    Role,
)
from topologies import FatTree, Host, Switch
from topologies.failures import Reason

End = tuple[Switch, int]
Step = Callable[[], None]

START = 1000.0
SETTLE_SECONDS = 10.0
PROBE_SECONDS = 10.0
HOLD_SECONDS, MAX_HOLD_SECONDS = 2.0, 8.0
MAX_TICKS_AT_ONCE = 1000
MAX_ROUNDS = 10_000


@dataclass
class Ear:
    """The probes received at a port between switches: the time of the last one of a wrong neighbour, if that still counts."""

    wrong_at: float | None = None


@dataclass
class Run:
    """The history of one run of the controller.

    Attributes
    ----------
    accepted : set of Channel
        Connections of switches of the fabric with the planned ports.
    heard : set of Switch
        Those switches.
    taken : set of Channel
        Connections over which a switch has answered that another controller is the master.
    asked : dict of RoleRequest to float
        Time of each request for a role.
    begun, in_force : list of int
        Versions that it has made while a switch could follow, and versions that it has reported in force.
    sent : View or None
        The state last sent to agents.
    """

    accepted: set[Channel] = field(default_factory=set)
    heard: set[Switch] = field(default_factory=set)
    taken: set[Channel] = field(default_factory=set)
    asked: dict[RoleRequest, float] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    in_force: list[int] = field(default_factory=list)
    sent: View | None = None
    version: int = 1
    ears: dict[End, Ear] = field(default_factory=dict)


class SimulatedFabric:
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
        self._writing: dict[SwitchSession, deque[Message]] = {}
        self._again: set[SwitchSession] = set()
        self._start()

    def _start(self) -> None:
        settle, probes, no_label = self._settings
        self.epoch += 1000
        self.run = Run()
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
        for channel in [*self._channels.values(), *self._strangers]:
            if channel.is_open:
                channel.close()
        self._channels.clear()
        self._strangers.clear()
        self._lost.clear()
        self._start()

    def drain(self, name: str, drained: bool = True) -> None:
        """Drain or restore a link or switch."""
        (self.drained.add if drained else self.drained.discard)(name)
        self._carry_out(self.core.drained(self.drained, self.now))

    def advance(self, seconds: float, deliver: bool = True) -> None:
        """Let time pass; unless ``deliver``, nothing is written, processed or received meanwhile."""
        end, ticks = self.now + seconds, 0
        while self.core.next_tick <= end:
            ticks = ticks + 1 if self.core.next_tick <= self.now else 0
            assert ticks < MAX_TICKS_AT_ONCE, "the controller's clock does not go on"
            self.now = max(self.now, self.core.next_tick)
            self._carry_out(self.core.tick(self.now))
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
        self._carry_out(self.core.switch_connected(channel, self.now))
        return channel

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
        self._carry_out(self.core.switch_connected(channel, self.now))
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
            channel = self._lost.pop(0)
            session = self.core.switches.session(channel)
            self._carry_out(self.core.switch_disconnected(channel, self.now))
            if session is not None:
                for port in self.tree.ports(session.switch):
                    self.run.ears.pop((session.switch, port), None)

    def take(self, switch: Switch) -> Channel:
        """Have another controller, started later than any so far, become the master of a switch."""
        self.epoch += 1000
        self.unclear.add(switch)
        channel = self.switches[switch].connect("192.0.2.99")
        channel.send(RoleRequest(self.epoch))
        channel.process()
        assert channel.role is Role.MASTER
        return channel

    def swap(self, one: End, other: End) -> None:
        """Exchange the plugs in two ports. The switches see it only if the caller has unplugged them before."""
        far_one, far_other = self.cables[one], self.cables[other]
        if far_one != other:
            self.cables |= {one: far_other, far_other: one, other: far_one, far_one: other}

    # -- one step at a time -------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Return what can happen next: a message is written, processed by its switch, or received by the controller."""
        steps: list[Step] = [partial(self._write, session) for session in self._writing]
        for channel in self._channels.values():
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
                self._carry_out(self.core.answered(channel, request, answer, self.now))
            case Refused(request, refusal):
                if isinstance(request, RoleRequest) and self._in_time(request):
                    self.run.taken.add(channel)
                self._carry_out(self.core.refused(channel, request, refusal, self.now))
            case PortChanged(port, trouble, deleted):
                trouble = Reason.DOWN if deleted else trouble
                if trouble is Reason.DOWN and known:
                    self.run.ears.pop((switch, port), None)
                self._look_at(channel)
                self._carry_out(self.core.port_status(channel, port, trouble, self.now))
            case ProbeHeard(port, probe):
                if known:
                    self._listen((switch, port), probe)
                self._carry_out(self.core.probe_heard(channel, port, probe, self.now))

    def _in_time(self, request: RoleRequest) -> bool:
        return self.now < self.run.asked[request] + ANSWER_SECONDS

    def _listen(self, end: End, probe: Heard) -> None:
        ear = self.run.ears.setdefault(end, Ear())
        planned, port = self.plan[end]
        if (probe.dpid, probe.port) != (self.tree.dpid(planned), port):
            ear.wrong_at = self.now
        elif ear.wrong_at is not None and self.now - ear.wrong_at >= PATIENCE_ROUNDS * self.core.discovery.interval:
            ear.wrong_at = None

    # -- effects ------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        state, run = self.state, self.run
        if state.version != run.version:
            if any(session.phase is not Phase.TAKEN for session in self.core.switches.sessions.values()):
                run.begun += range(run.version + 1, state.version + 1)
            run.version = state.version
        if effects.tell_agents:
            run.sent = state.view
            agents, for_agents = self.notifier.broadcast()
            self.core.sent_to_agents(agents)
            self._carry_out_for_agents(for_agents)
        for session in effects.due:
            self._wake(session)
        run.in_force += [change.version for change in effects.in_force]

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
        """Check the messages that are due for a switch."""
