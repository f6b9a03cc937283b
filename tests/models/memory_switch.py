"""A switch in memory: the controller core's messages as data go in, and it behaves as Open vSwitch does.

`tests/switch/test_memory_switch.py` runs one suite on this and on real Open vSwitch.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

from flowrules.model import LLDP, Field, Flow, Group, Table, ToController, ToGroup, does
from sopa_ryu.fabric import messages as to
from sopa_ryu.fabric.messages import Answer, Heard, Installed, InstalledState, Message, Modification, Refusal, Request
from sopa_ryu.fabric.rule_changes import LEARNED_COOKIE, cookie
from topologies.failures import Reason

# OpenFlow 1.3, section 7.1: the type of a message, which an error message quotes
ROLE_REQUEST, PACKET_OUT, FLOW_MOD, GROUP_MOD = 24, 13, 14, 15
LEARNED_PRIORITY = 1


class Role(Enum):
    EQUAL = auto()
    MASTER = auto()
    SLAVE = auto()


class Answered(NamedTuple):
    request: Request
    answer: Answer


class Refused(NamedTuple):
    """An error message; ``request`` is None if it answers a flow-mod, group-mod or packet-out."""

    request: Request | None
    refusal: Refusal


class PortChanged(NamedTuple):
    port: int
    trouble: Reason | None
    deleted: bool = False


class ProbeHeard(NamedTuple):
    port: int
    probe: Heard


Event = Answered | Refused | PortChanged | ProbeHeard
Place = tuple[int, int, frozenset[Field]]
"""The identity of a flow entry: its table, its priority and its match."""


class Entry(NamedTuple):
    """A flow entry; one that the switch learned itself has no ``flow``."""

    installed: Installed
    flow: Flow | None


class Channel:
    """A controller's connection to a switch: the `Connection` of the core."""

    def __init__(self, switch: "MemorySwitch", address: str = "192.0.2.1") -> None:
        self.switch, self.dpid, self.address = switch, switch.dpid, address
        self.role = Role.EQUAL
        self.names: Collection[str] | None = None  # in the certificate that it shows
        self.inbox: deque[Message] = deque()  # sent by the controller, not yet processed by the switch
        self.outbox: deque[Event] = deque()  # sent by the switch, not yet received by the controller
        self.holds_messages = self.holds_answers = False  # nothing of inbox is processed, nothing of outbox arrives
        self._known = dict(switch.ports)

    @property
    def is_open(self) -> bool:
        return self in self.switch.channels

    def ports(self) -> Mapping[int, Reason | None]:
        """Return the ports as the controller knows them: from the handshake and from the reports that have arrived."""
        return dict(self._known)

    def certified_names(self) -> Collection[str] | None:
        return self.names

    def send(self, message: Message) -> bool:
        """Send a message to the switch; return False if the connection is gone."""
        if self.is_open:
            self.inbox.append(message)
        return self.is_open

    def process(self) -> None:
        self.outbox.extend(self.switch.handle(self, self.inbox.popleft()))

    def receive(self) -> Event:
        event = self.outbox.popleft()
        if isinstance(event, PortChanged):
            if event.deleted:
                self._known.pop(event.port, None)
            else:
                self._known[event.port] = event.trouble
        return event

    def lose_answers(self) -> None:
        """Lose the answers that are on their way; what no request waits for is not lost."""
        self.outbox = deque(event for event in self.outbox if not isinstance(event, Answered | Refused))

    def close(self) -> None:
        """Break the connection: what is on its way is lost, entries and groups stay."""
        self.switch.channels.remove(self)
        self.inbox.clear()
        self.outbox.clear()


class MemorySwitch:
    """A switch; each of its ports has the reason why it carries no packets, or None if it does."""

    def __init__(self, dpid: int, ports: Mapping[int, Reason | None]) -> None:
        self.dpid, self.ports = dpid, dict(ports)
        self.limits: dict[int, int] = {}  # the most entries of a table, where it has a limit; more are refused
        self.channels: list[Channel] = []
        self._start()

    def _start(self) -> None:
        self.entries: dict[Place, Entry] = {}
        self.groups: dict[int, Group] = {}
        self.generation: int | None = None
        self.probes: list[int] = []  # the ports that probes have left by; the model of the cables removes them
        self.handled: list[tuple[Channel, Message]] = []  # since the last start

    def restart(self) -> None:
        """Lose everything but ports and limits, which are configuration."""
        for channel in list(self.channels):
            channel.close()
        self._start()

    def connect(self, address: str = "192.0.2.1") -> Channel:
        channel = Channel(self, address)
        self.channels.append(channel)
        return channel

    def installed(self) -> InstalledState:
        """Return the entries and groups as the switch answers when they are read."""
        groups = {number: tuple(bucket.port for bucket in group.buckets) for number, group in self.groups.items()}
        return InstalledState([entry.installed for entry in self.entries.values()], groups)

    def flows(self) -> list[Flow]:
        return [entry.flow for entry in self.entries.values() if entry.flow is not None]

    def set_port(self, port: int, trouble: Reason | None) -> None:
        """Add or change a port; one that is added or goes down is first reported as not LIVE."""
        if port not in self.ports or (self.ports[port] is None and trouble is Reason.DOWN):
            self.ports[port] = Reason.SILENT
            self._report(PortChanged(port, Reason.SILENT))
        if self.ports[port] is not trouble:
            self.ports[port] = trouble
            self._report(PortChanged(port, trouble))

    def remove_port(self, port: int) -> None:
        self._report(PortChanged(port, self.ports.pop(port), deleted=True))

    def _report(self, event: PortChanged) -> None:
        for channel in self.channels:  # slaves included
            channel.outbox.append(event)

    def hear(self, port: int, probe: Heard) -> None:
        """Take an LLDP frame that arrives at a port: where an entry says so, controllers that are no slaves get it."""
        if any(flow.match == (LLDP,) and any(isinstance(its, ToController) for its in flow.apply) for flow in self.flows()):
            for channel in self.channels:
                if channel.role is not Role.SLAVE:
                    channel.outbox.append(ProbeHeard(port, probe))

    def learn(self, port: int) -> bool:
        """Learn the Ethernet address of the host at a port, if there is an entry for ARP requests that does; tell whether."""
        if all(flow.table is not Table.LEARN for flow in self.flows()):
            return False
        learned = Installed(Table.DELIVER, LEARNED_PRIORITY, LEARNED_COOKIE, (("metadata", (port, 0xFFFF)),))
        self.entries[place_of(learned)] = Entry(learned, None)
        return True

    def handle(self, channel: Channel, message: Message) -> list[Event]:
        self.handled.append((channel, message))
        match message:
            case to.RoleRequest():
                return [self._role(channel, message)]
            case to.GenerationRequest():
                return [Answered(message, self.generation)]
            case to.EchoRequest() | to.BarrierRequest():
                return [Answered(message, None)]
            case to.FlowsRequest():
                return [Answered(message, self.installed().flows)]
            case to.GroupsRequest():
                return [Answered(message, self.installed().groups)]
            case to.SendProbe() if channel.role is Role.SLAVE:
                return [_is_slave(PACKET_OUT)]
            case to.SendProbe(port):
                self.probes.append(port)
                return []
            case to.AddFlow() | to.DeleteFlow() | to.AddGroup() | to.ModifyGroup() | to.DeleteGroup():
                if channel.role is Role.SLAVE:
                    return [_is_slave(FLOW_MOD if isinstance(message, to.AddFlow | to.DeleteFlow) else GROUP_MOD)]
                return list(self._modify(message))
        raise TypeError(f"the core sends no {message!r} by itself")

    def _role(self, channel: Channel, request: to.RoleRequest) -> Event:
        if request.generation is not None:
            if self.generation is not None and 0 < (self.generation - request.generation) % (1 << 64) < 1 << 63:
                return _refused("role request failed", 0, ROLE_REQUEST, request)
            self.generation = request.generation
            if request.slave:
                channel.role = Role.SLAVE
                return Answered(request, False)
            for other in self.channels:
                if other.role is Role.MASTER:
                    other.role = Role.SLAVE
            channel.role = Role.MASTER
        return Answered(request, channel.role is Role.MASTER)

    def _modify(self, message: Modification) -> Iterator[Event]:
        match message:
            case to.AddFlow(flow, version):
                yield from self._add(flow, version)
            case to.DeleteFlow(entry):
                self.entries.pop(place_of(entry), None)
            case to.AddGroup(group) if group.id in self.groups:
                yield _refused("group mod failed", 0, GROUP_MOD)
            case to.ModifyGroup(group) if group.id not in self.groups:
                yield _refused("group mod failed", 8, GROUP_MOD)
            case to.AddGroup(group) | to.ModifyGroup(group):
                self.groups[group.id] = group
            case to.DeleteGroup(number):
                self.groups.pop(number, None)
                for place, (_, flow) in list(self.entries.items()):
                    if flow is not None and number in _groups_of(flow):
                        del self.entries[place]

    def _add(self, flow: Flow, version: int) -> Iterator[Event]:
        installed = Installed(flow.table, flow.priority, cookie(flow, version), flow.match, does(flow))
        place = place_of(installed)
        in_table = sum(1 for table, _, _ in self.entries if table == flow.table)
        if not _groups_of(flow) <= self.groups.keys():
            yield _refused("bad action", 9, FLOW_MOD)
        elif place not in self.entries and in_table >= self.limits.get(flow.table, in_table + 1):
            yield _refused("flow mod failed", 1, FLOW_MOD)
        else:
            self.entries[place] = Entry(installed, flow)


def place_of(entry: Flow | Installed) -> Place:
    return int(entry.table), entry.priority, frozenset(entry.match)


def _groups_of(flow: Flow) -> set[int]:
    return {action.group for action in (*flow.apply, *flow.write) if isinstance(action, ToGroup)}


def _refused(kind: str, code: int, message_type: int, request: Request | None = None) -> Refused:
    text = f"{kind}, code {code}, refused message type {message_type}"
    return Refused(request, Refusal(kind.replace(" ", "_"), text, is_slave=(kind, code) == ("bad request", 10)))


def _is_slave(message_type: int) -> Refused:
    return _refused("bad request", 10, message_type)
