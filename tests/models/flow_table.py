"""OpenFlow tables in memory: they say where a packet leaves, so that a whole fabric is tested without a switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from flowrules.model import (
    Action,
    AnswerArp,
    Choose,
    ConsumeHop,
    Flow,
    HashOver,
    LearnNoMore,
    LearnSender,
    LookUp,
    Output,
    SendNoMore,
    SendStart,
    SetField,
    SwitchRules,
    Table,
    ToGroup,
)
from topologies.structure import Clos, Host, Level, Link, Node, Switch

Packet = Mapping[str, Any]
"""Header fields by their OXM names, valued as in `Flow.match`; ``metadata`` and ``in_port`` are the switch's own."""

_OWN = ("metadata", "in_port", "reg1", "reg2")
_HASHED = ("ipv4_src", "ipv4_dst", "ip_proto", "tcp_src", "tcp_dst", "udp_src", "udp_dst")


class Departure(NamedTuple):
    """A packet leaving a switch: by which port, and what it looks like then."""

    port: int
    packet: dict[str, Any]


class TableSwitch:
    """One switch's tables and groups, held in memory."""

    def __init__(self, rules: SwitchRules, dead: Iterable[int] = ()) -> None:
        self.dead = set(dead)
        self.hits: Counter[Flow] = Counter()
        self.sent_to_controller = 0
        self._groups = {group.id: group for group in rules.groups}
        self._tables: dict[Table, list[Flow]] = {table: [] for table in Table}
        for flow in sorted(rules.flows, key=lambda flow: -flow.priority):
            self._tables[flow.table].append(flow)

    def receive(self, packet: Packet, in_port: int) -> list[Departure]:
        """Return the ports by which a packet that enters by ``in_port`` leaves; none if it is dropped or sent to the controller."""
        state = {"metadata": 0, "reg1": 0, "reg2": 0, **packet, "in_port": in_port}
        departures: list[Departure] = []
        written: list[Action] = []
        self._process(Table.INGRESS, state, departures, written)
        for action in written:
            self._execute(action, state, departures, [])
        return departures

    def _process(self, first: Table, state: dict[str, Any], departures: list[Departure], written: list[Action]) -> None:
        table: Table | None = first
        while table is not None:
            flow = self._lookup(table, state)
            if flow is None:
                return
            self.hits[flow] += 1
            for action in flow.apply:
                self._execute(action, state, departures, written)
            written.extend(flow.write)
            if flow.metadata is not None:
                state["metadata"] = flow.metadata
            table = flow.goto

    def is_output(self, packet: Packet, in_port: int, port: int) -> bool:
        """Return True if the packet leaves by the port."""
        return any(departure.port == port for departure in self.receive(packet, in_port))

    def _lookup(self, table: Table, state: dict[str, Any]) -> Flow | None:
        return next((flow for flow in self._tables[table] if _matches(flow, state)), None)

    def _execute(
        self, action: Action, state: dict[str, Any], departures: list[Departure], written: list[Action]
    ) -> None:
        if isinstance(action, SetField):
            state[action.field] = action.value
        elif isinstance(action, ConsumeHop):
            octets = state["eth_src"].split(":")
            octets[4 + action.hop] = "ff"
            state["eth_src"] = ":".join(octets)
        elif isinstance(action, Output):
            self._send(action.port, state, departures)
        elif isinstance(action, ToGroup):
            buckets = self._groups[action.group].buckets
            alive = (bucket.port for bucket in buckets if bucket.port not in self.dead)
            self._send(next(alive, 0), state, departures)
        elif isinstance(action, HashOver):
            ports = [port for port in action.ports if port not in self.dead]
            if ports:
                self._send(ports[_hash(state, action.basis) % len(ports)], state, departures)
        elif isinstance(action, AnswerArp):
            answer = {name: value for name, value in state.items() if name not in _OWN}
            answer |= {"eth_dst": state["eth_src"], "eth_src": action.mac, "arp_op": 2}
            answer |= {"arp_tha": state["arp_sha"], "arp_sha": action.mac}
            answer |= {"arp_tpa": state["arp_spa"], "arp_spa": state["arp_tpa"]}
            departures.append(Departure(state["in_port"], answer))
        elif isinstance(action, LookUp):
            self._process(action.table, state, departures, written)
        elif isinstance(action, (LearnNoMore, SendNoMore)):
            pass  # time does not pass here
        elif isinstance(action, SendStart):
            self.sent_to_controller += 1
        elif isinstance(action, Choose):
            state["reg1"] = _hash(state, action.basis, 2 if action.addresses else None) % action.number
        elif isinstance(action, LearnSender):
            match = (("metadata", state["in_port"]),)
            seen = SetField("eth_dst", state["arp_sha"])
            learned = self._tables[Table.DELIVER]
            learned[:] = [flow for flow in learned if flow.match != match]
            if not action.seconds:
                learned.insert(0, Flow(Table.DELIVER, 1, match, "learned", apply=(seen,)))

    def _send(self, port: int, state: dict[str, Any], departures: list[Departure]) -> None:
        # A switch never sends a packet back by the port it entered by, unless an action names IN_PORT (OpenFlow 1.3, section 4.5).
        if port and port != state["in_port"] and port not in self.dead:
            packet = {name: value for name, value in state.items() if name not in _OWN}
            departures.append(Departure(port, packet))


class TableFabric:
    """A whole fat-tree of in-memory switches, cabled as the fat-tree is."""

    def __init__(self, tree: Clos, rules: Iterable[tuple[Switch, SwitchRules]], dead: Iterable[str] = ()) -> None:
        self.tree = tree
        self.switches = {switch: TableSwitch(its) for switch, its in rules}
        for name in dead:
            self.fail(name)

    def fail(self, name: str) -> None:
        """Take a link or a switch out, as its neighbours see it: the port is down."""
        element = self.tree.element(name)
        links = [element] if isinstance(element, Link) else []
        if isinstance(element, Switch):
            links = [self.tree.link(element, there) for there in self.tree.ports(element).values()]
        for lower, upper in links:
            self.switches[upper].dead.add(self.tree.port(upper, lower))
            if isinstance(lower, Switch):
                self.switches[lower].dead.add(self.tree.port(lower, upper))

    def send(self, src: Host, packet: Packet) -> tuple[list[str], dict[str, Any] | None]:
        """Send a packet from a host and follow it."""
        first = self.tree.edge_of(src)
        state: dict[str, Any] = dict(packet)
        came_from: Node = src
        way: list[str] = []
        if self.tree.port(first, src) in self.switches[first].dead:
            return way, None
        here: Node = first
        while isinstance(here, Switch):
            way.append(self.tree.name(here))
            departures = self.switches[here].receive(state, self.tree.port(here, came_from))
            if not departures:
                return way, None
            if len(departures) > 1 or len(way) > 16:
                raise RuntimeError(f"{packet} is multiplied or loops: {way}")
            came_from, state = here, departures[0].packet
            here = self.tree.neighbour(here, departures[0].port)
        way.append(self.tree.name(here))
        return way, state


def ipv4_packet(tree: Clos, src: Host, dst: Host, eth_src: str | None = None, **fields: Any) -> dict[str, Any]:
    """A TCP packet from one host to another, as the sender's interface hands it over."""
    return {
        "eth_type": 0x0800,
        "eth_src": eth_src or tree.mac(src),
        "eth_dst": "02:00:00:00:00:01",
        "ipv4_src": str(tree.ip(src)),
        "ipv4_dst": str(tree.ip(dst)),
        "ip_proto": 6,
        **fields,
    }


@lru_cache(maxsize=1 << 14)
def _number(value: int | str) -> int:
    if isinstance(value, int):
        return value
    if ":" in value:
        return int(value.replace(":", ""), 16)
    return int(IPv4Address(value))


def _matches(flow: Flow, state: dict[str, Any]) -> bool:
    for field, wanted in flow.match:
        if field not in state:
            return False
        if isinstance(wanted, tuple):
            value, mask = _number(wanted[0]), _number(wanted[1])
            if _number(state[field]) & mask != value:
                return False
        elif _number(state[field]) != _number(wanted):
            return False
    return True


def _hash(state: dict[str, Any], basis: int, fields_hashed: int | None = None) -> int:
    fields = repr((basis, [state.get(name) for name in _HASHED[:fields_hashed]]))
    return int.from_bytes(blake2b(fields.encode(), digest_size=4).digest(), "big")


__all__ = ["Departure", "Level", "Packet", "TableFabric", "TableSwitch", "ipv4_packet"]
