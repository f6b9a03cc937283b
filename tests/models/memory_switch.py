"""A switch in memory: the controller core's messages as data go in, and it behaves as Open vSwitch does.

`tests/switch/test_memory_switch.py` runs one suite on this and on real Open vSwitch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

from flowrules.model import LLDP, Field, Flow, Group, Table, ToController, ToGroup, does
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    Answer,
    BarrierRequest,
    DeleteFlow,
    DeleteGroup,
    EchoRequest,
    FlowsRequest,
    GenerationRequest,
    GroupsRequest,
    Heard,
    Installed,
    Message,
    Modification,
    ModifyGroup,
    Refusal,
    Request,
    RoleRequest,
    SendProbe,
)
from sopa_ryu.fabric.rule_changes import LEARNED_COOKIE, cookie
from topologies.failures import Reason

# OpenFlow 1.3, section 7.1: the type of a message, which an error message quotes
ROLE_REQUEST, PACKET_OUT, FLOW_MOD, GROUP_MOD = 24, 13, 14, 15
LEARNED_PRIORITY = 1


class Role(Enum):
    """The role of a controller at a switch (OpenFlow 1.3, section 6.3.4)."""

    EQUAL = auto()
    MASTER = auto()
    SLAVE = auto()


class Answered(NamedTuple):
    """A switch has answered a request."""

    request: Request
    answer: Answer


class Refused(NamedTuple):
    """A switch has sent an error message; ``request`` is None if it answers a flow-mod, group-mod or packet-out."""

    request: Request | None
    refusal: Refusal


class PortChanged(NamedTuple):
    """A switch reports that a port was added or changed, or is gone."""

    port: int
    trouble: Reason | None
    deleted: bool = False


class ProbeHeard(NamedTuple):
    """A switch hands over an LLDP frame that has arrived at a port."""

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
    """A controller's connection to a switch: the `Connection` of the core.

    Parameters
    ----------
    switch : MemorySwitch
    address : str

    Attributes
    ----------
    role : Role
    inbox : deque of Message
        Sent by the controller, not yet processed by the switch.
    outbox : deque of Event
        Sent by the switch, not yet received by the controller.
    names : collection of str or None
        Those in the certificate that it shows.
    holds_messages, holds_answers : bool
        Whether nothing of ``inbox`` is processed and nothing of ``outbox`` arrives for the time being.
    """

    def __init__(self, switch: MemorySwitch, address: str = "192.0.2.1") -> None:
        self.switch = switch
        self.role = Role.EQUAL
        self.names: Collection[str] | None = None
        self.inbox: deque[Message] = deque()
        self.outbox: deque[Event] = deque()
        self.holds_messages = self.holds_answers = False
        self._address = address
        self._known = dict(switch.ports)

    @property
    def dpid(self) -> int:
        return self.switch.dpid

    @property
    def address(self) -> str:
        return self._address

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
        """Have the switch process the next message."""
        self.outbox.extend(self.switch.handle(self, self.inbox.popleft()))

    def receive(self) -> Event:
        """Return the next event that arrives at the controller."""
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
    """A switch.

    Parameters
    ----------
    dpid : int
    ports : mapping of int to Reason or None
        Each port with the reason why it carries no packets, or None if it does.

    Attributes
    ----------
    channels : list of Channel
        The connected controllers.
    entries : dict of Place to Entry
    groups : dict of int to Group
    generation : int or None
        The latest generation id that a controller has claimed the switch with.
    limits : dict of int to int
        The most flow entries of a table, where it has a limit; more are refused.
    probes : list of int
        The ports that probes have left by. The model of the cables removes them.
    handled : list of (Channel, Message)
        Everything that was processed since the last start.
    """

    def __init__(self, dpid: int, ports: Mapping[int, Reason | None]) -> None:
        self.dpid = dpid
        self.ports = dict(ports)
        self.limits: dict[int, int] = {}
        self.channels: list[Channel] = []
        self._start()

    def _start(self) -> None:
        self.entries: dict[Place, Entry] = {}
        self.groups: dict[int, Group] = {}
        self.generation: int | None = None
        self.probes: list[int] = []
        self.handled: list[tuple[Channel, Message]] = []

    def restart(self) -> None:
        """Lose everything but ports and limits, which are configuration."""
        for channel in list(self.channels):
            channel.close()
        self._start()

    def connect(self, address: str = "192.0.2.1") -> Channel:
        """Connect to a controller."""
        channel = Channel(self, address)
        self.channels.append(channel)
        return channel

    # -- ports --------------------------------------------------------------------------------------------------------

    def set_port(self, port: int, trouble: Reason | None) -> None:
        """Add or change a port; one that is added or goes down is first reported as not LIVE."""
        if port not in self.ports or (self.ports[port] is None and trouble is Reason.DOWN):
            self.ports[port] = Reason.SILENT
            self._report(PortChanged(port, Reason.SILENT))
        if self.ports[port] is not trouble:
            self.ports[port] = trouble
            self._report(PortChanged(port, trouble))

    def remove_port(self, port: int) -> None:
        """Remove a port."""
        trouble = self.ports.pop(port)
        self._report(PortChanged(port, trouble, deleted=True))

    def _report(self, event: PortChanged) -> None:
        for channel in self.channels:  # slaves included
            channel.outbox.append(event)

    def hear(self, port: int, probe: Heard) -> None:
        """Take an LLDP frame that arrives at a port: where an entry says so, controllers that are no slaves get it."""
        to_controller = (entry.flow for entry in self.entries.values() if entry.flow is not None)
        if any(
            flow.match == (LLDP,) and any(isinstance(action, ToController) for action in flow.apply)
            for flow in to_controller
        ):
            for channel in self.channels:
                if channel.role is not Role.SLAVE:
                    channel.outbox.append(ProbeHeard(port, probe))

    def learn(self, port: int) -> bool:
        """Learn the Ethernet address of the host at a port, if there is an entry for ARP requests that does; tell whether."""
        if all(entry.flow is None or entry.flow.table is not Table.LEARN for entry in self.entries.values()):
            return False
        match: tuple[Field, ...] = (("metadata", (port, 0xFFFF)),)
        learned = Installed(Table.DELIVER, LEARNED_PRIORITY, LEARNED_COOKIE, match)
        self.entries[_place(learned)] = Entry(learned, None)
        return True

    # -- messages -----------------------------------------------------------------------------------------------------

    def handle(self, channel: Channel, message: Message) -> list[Event]:
        """Process a message; return what the switch sends back."""
        self.handled.append((channel, message))
        match message:
            case RoleRequest():
                return [self._role(channel, message)]
            case GenerationRequest():
                return [Answered(message, self.generation)]
            case EchoRequest():
                return [Answered(message, None)]
            case FlowsRequest():
                return [Answered(message, [entry.installed for entry in self.entries.values()])]
            case GroupsRequest():
                ports = {
                    number: tuple(bucket.port for bucket in group.buckets) for number, group in self.groups.items()
                }
                return [Answered(message, ports)]
            case BarrierRequest():
                return [Answered(message, None)]
            case SendProbe():
                if channel.role is Role.SLAVE:
                    return [_is_slave(PACKET_OUT)]
                self.probes.append(message.port)
                return []
            case AddFlow() | DeleteFlow() | AddGroup() | ModifyGroup() | DeleteGroup():
                if channel.role is Role.SLAVE:
                    return [_is_slave(FLOW_MOD if isinstance(message, AddFlow | DeleteFlow) else GROUP_MOD)]
                return list(self._modify(message))
        raise TypeError(f"the core sends no {message!r} by itself")

    def _role(self, channel: Channel, request: RoleRequest) -> Event:
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
            case AddFlow(flow, version):
                yield from self._add(flow, version)
            case DeleteFlow(entry):
                self.entries.pop(_place(entry), None)
            case AddGroup(group):
                if group.id in self.groups:
                    yield _refused("group mod failed", 0, GROUP_MOD)
                else:
                    self.groups[group.id] = group
            case ModifyGroup(group):
                if group.id not in self.groups:
                    yield _refused("group mod failed", 8, GROUP_MOD)
                else:
                    self.groups[group.id] = group
            case DeleteGroup(number):
                self.groups.pop(number, None)
                self.entries = {
                    place: entry
                    for place, entry in self.entries.items()
                    if entry.flow is None or number not in _groups_of(entry.flow)
                }

    def _add(self, flow: Flow, version: int) -> Iterator[Event]:
        installed = Installed(flow.table, flow.priority, cookie(flow, version), flow.match, does(flow))
        place = _place(installed)
        in_table = sum(1 for table, _, _ in self.entries if table == flow.table)
        if not _groups_of(flow) <= self.groups.keys():
            yield _refused("bad action", 9, FLOW_MOD)
        elif place not in self.entries and in_table >= self.limits.get(flow.table, in_table + 1):
            yield _refused("flow mod failed", 1, FLOW_MOD)
        else:
            self.entries[place] = Entry(installed, flow)


def _place(entry: Installed) -> Place:
    return int(entry.table), entry.priority, frozenset(entry.match)


def _groups_of(flow: Flow) -> set[int]:
    return {action.group for action in (*flow.apply, *flow.write) if isinstance(action, ToGroup)}


def _refused(kind: str, code: int, message_type: int, request: Request | None = None) -> Refused:
    text = f"{kind}, code {code}, refused message type {message_type}"
    return Refused(request, Refusal(kind.replace(" ", "_"), text, is_slave=(kind, code) == ("bad request", 10)))


def _is_slave(message_type: int) -> Refused:
    return _refused("bad request", 10, message_type)
