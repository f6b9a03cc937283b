"""The switches of a fat-tree in memory with the cables between them, and a controller's core, on a virtual clock.

What `sopa_ryu.app` does around the core is done one step at a time.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial

from sopa_ryu.channel import messages, protocol
from sopa_ryu.channel.effects import Completed, Effect, Wake
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.messages import Heard, InstalledState, Message, RoleRequest
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import SwitchSession
from sopa_ryu.fabric.view import View
from tests.models.memory_switch import Answered, Channel, Event, MemorySwitch, PortChanged, ProbeHeard, Refused, Role
from tests.models.reports import End
from topologies import FatTree, Host, Switch
from topologies.failures import Reason

Step = Callable[[], None]

START = 1000.0
SETTLE_SECONDS = PROBE_SECONDS = 10.0
HOLD_SECONDS, MAX_HOLD_SECONDS = 2.0, 8.0
MAX_TICKS_AT_ONCE = 1000
MAX_ROUNDS = 10_000


class SimulatedFabric:
    """Switches and a controller; its two agents answer immediately, ``agents`` is what they have in force."""

    def __init__(self, k: int = 4, probe_seconds: float = PROBE_SECONDS) -> None:
        self.tree = tree = FatTree(k)
        self.switches = {its: MemorySwitch(tree.dpid(its), dict.fromkeys(tree.ports(its))) for its in tree.switches()}
        self.plan: dict[End, End] = {}  # where a cable from each port between switches should lead
        for lower, upper in tree.switch_links():
            assert isinstance(lower, Switch)
            low, high = (lower, tree.port(lower, upper)), (upper, tree.port(upper, lower))
            self.plan |= {low: high, high: low}
        self.cables = dict(self.plan)  # and where it really leads
        self.now = START
        self.drained: set[str] = set()
        first, *_, last = tree.hosts()
        self.agents: dict[Host, View | None] = {first: None, last: None}
        self.epoch = 0
        self._probe_seconds = probe_seconds
        self._channels: dict[Switch, Channel] = {}
        self._strangers, self._lost, self._impostors = list[Channel](), list[Channel](), list[Channel]()
        self._writing: dict[SwitchSession, deque[Message]] = {}
        self._again: set[SwitchSession] = set()
        self._start()

    def _start(self) -> None:
        self.epoch += 1000
        state = FabricState(self.tree, self.epoch, HoldDown(HOLD_SECONDS, MAX_HOLD_SECONDS))
        state.drain(self.drained, self.now)
        self.core = Coordinator(state, SETTLE_SECONDS, self._probe_seconds)
        self.notifier = Notifier(self.tree, lambda: state.view if state.is_known else None)
        for host in self.agents:
            address = str(self.tree.ip(host))
            self._carry_out_for_agents(self.notifier.connected(host, address, None, None, self.now)[1])
        self._writing.clear()
        self._again.clear()

    def swap(self, one: End, other: End) -> None:
        """Exchange the plugs in two ports; that is seen only if they are unplugged before."""
        far_one, far_other = self.cables[one], self.cables[other]
        if far_one != other:
            self.cables |= {one: far_other, far_other: one, other: far_one, far_one: other}

    @property
    def state(self) -> FabricState:
        return self.core.state

    def session(self, switch: Switch) -> SwitchSession:
        return self.core.switches.sessions[switch]

    def restart_controller(self) -> None:
        """Kill the controller and start it again: switches keep their entries and have to connect again."""
        for channel in [*self._channels.values(), *self._strangers, *self._impostors]:
            if channel.is_open:
                channel.close()
        for known in (self._channels, self._strangers, self._impostors, self._lost):
            known.clear()
        self._start()

    def drain(self, name: str, drained: bool = True) -> None:
        (self.drained.add if drained else self.drained.discard)(name)
        self.observe(self.core.drained, self.drained)

    def check_rules(self, switch: Switch, found: InstalledState | None = None) -> None:
        session = self.session(switch)
        self._carry_out(self.core.installed(session, found or self.switches[switch].installed(), self.now))

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

    def channel(self, switch: Switch) -> Channel | None:
        return self._channels.get(switch)

    def connect(self, switch: Switch) -> Channel:
        """Have a switch connect; a former connection breaks, which the controller notices later (`notice_lost`)."""
        if switch in self._channels:
            self._break(self._channels[switch])
        channel = self._channels[switch] = self.switches[switch].connect()
        self._look_at(channel)
        self.observe(self.core.switch_connected, channel)
        return channel

    def connect_impostor(self, switch: Switch) -> Channel:
        """Have a device connect with the datapath id of a switch, and planned ports of which all are down."""
        ports = dict.fromkeys(self.tree.ports(switch), Reason.DOWN)
        return self._connect_other(self._impostors, MemorySwitch(self.tree.dpid(switch), ports), "192.0.2.66")

    def connect_stranger(self, dpid: int) -> MemorySwitch:
        stranger = MemorySwitch(dpid, dict.fromkeys(self.tree.ports(next(self.tree.switches()))))
        return self._connect_other(self._strangers, stranger, "192.0.2.1").switch

    def _connect_other(self, others: list[Channel], device: MemorySwitch, address: str) -> Channel:
        others.append(device.connect(address))
        self.observe(self.core.switch_connected, others[-1])
        return others[-1]

    def stand_still(self, seconds: float, lost: Collection[Switch] = ()) -> None:
        """Stop the controller for a while and let it go on: some switches have closed their connections meanwhile."""
        for switch in lost:
            if switch in self._channels:
                self._break(self._channels.pop(switch))
        self.observe(self.core.paused, seconds)
        self.notice_lost()

    def connect_all(self) -> None:
        """Have all switches connect that are not connected, and let everything happen that follows immediately."""
        for switch in self.switches:
            if switch not in self._channels:
                self.connect(switch)
        self.settle()

    def disconnect(self, switch: Switch) -> None:
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
        while self._lost:
            self.observe(self.core.switch_disconnected, self._lost.pop(0))

    def take(self, switch: Switch) -> Channel:
        """Have another controller, started later than any so far, become the master of a switch."""
        self.epoch = max(self.epoch, self.switches[switch].generation or 0) + 1000
        channel = self.switches[switch].connect("192.0.2.99")
        channel.send(RoleRequest(self.epoch))
        channel.process()
        assert channel.role is Role.MASTER
        return channel

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
        for choice in choices:
            if not (steps := self.steps()):
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
                self._note_sent(message)
                if not pending:
                    self.core.switches.was_sent(session, self.now)
                return
        if session in self._again:
            self._again.discard(session)
            pending.clear()
        else:
            del self._writing[session]

    def _process(self, channel: Channel) -> None:
        """Have a switch process a message; the probe that it may send arrives where its cable leads."""
        if not channel.inbox:
            return
        channel.process()
        device, here = channel.switch, self.tree.switch_by_dpid(channel.dpid)
        while device.probes and channel not in self._impostors:
            port = device.probes.pop()
            there, far_port = self.cables[here, port]
            far = self.switches[there]
            if device.ports.get(port, Reason.DOWN) is far.ports.get(far_port, Reason.DOWN) is None:
                far.hear(far_port, Heard(device.dpid, port, ""))

    def _receive(self, channel: Channel) -> None:
        if not channel.outbox:
            return
        event = channel.receive()
        self._note_received(channel, event)
        match event:
            case Answered(request, answer):
                self.observe(self.core.answered, channel, request, answer)
            case Refused(request, refusal):
                self.observe(self.core.refused, channel, request, refusal)
            case PortChanged(port, trouble, deleted):
                self.observe(self.core.port_status, channel, port, Reason.DOWN if deleted else trouble)
            case ProbeHeard(port, probe):
                self.observe(self.core.probe_heard, channel, port, probe)

    def observe(self, observe: Callable[..., Effects], *what: object) -> None:
        self._carry_out(observe(*what, self.now))

    def _carry_out(self, effects: Effects) -> None:
        if effects.tell_agents:
            agents, for_agents = self.notifier.broadcast()
            self.core.sent_to_agents(self.core.state.version, agents)
            self._carry_out_for_agents(for_agents)
        for session in effects.due:
            self._wake(session)
        for connection in effects.close:
            assert isinstance(connection, Channel)
            self._close(connection)

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
                        message, address = messages.from_controller(text), self.tree.ip(session.host)
                        view = protocol.follow(message, self.agents[session.host], address)
                        self.agents[session.host] = view
                        answer = protocol.ack(view, 0)
                        self._carry_out_for_agents(self.notifier.received(session, answer, self.now))
                case Completed(version):
                    self.core.acknowledged(version, self.now)
                case _:
                    raise AssertionError(f"agents that answer have led to {effect}")

    # What those override who check what happens: a switch has connected or its ports have changed; a message is sent; an event
    # arrives, before the core observes it; messages are due to a switch.

    def _look_at(self, channel: Channel) -> None: ...

    def _note_sent(self, message: Message) -> None: ...

    def _note_received(self, channel: Channel, event: Event) -> None: ...

    def _check_due(self, session: SwitchSession, messages: list[Message]) -> None: ...
