"""OpenFlow tables in memory: they say where a packet leaves, so that a whole fabric is tested without a switch."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from typing import Any, NamedTuple

from flowrules import model as to
from flowrules.model import Action, Flow, SwitchRules, Table
from topologies.structure import Clos, Host, Link, Node, Switch

Packet = Mapping[str, Any]
"""Header fields by their OXM names, valued as in `Flow.match`; ``metadata`` and ``in_port`` are the switch's own."""

_OWN = ("metadata", "in_port", "reg1", "reg2")
_HASHED = ("ipv4_src", "ipv4_dst", "ip_proto", "tcp_src", "tcp_dst", "udp_src", "udp_dst")


class Departure(NamedTuple):
    port: int
    packet: dict[str, Any]


class TableSwitch:
    def __init__(self, rules: SwitchRules, dead: Iterable[int] = ()) -> None:
        self.dead = set(dead)  # ports that are down: groups and hashes pass over them, and nothing leaves by them
        self.hits: Counter[Flow] = Counter()  # how many packets each entry has matched
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

    def _lookup(self, table: Table, state: dict[str, Any]) -> Flow | None:
        return next((flow for flow in self._tables[table] if _matches(flow, state)), None)

    def _execute(self, action: Action, state: dict[str, Any], departures: list[Departure], written: list[Action]) -> None:
        match action:
            case to.SetField(field, value):
                state[field] = value
            case to.ConsumeHop(hop):
                octets = state["eth_src"].split(":")
                octets[4 + hop] = "ff"
                state["eth_src"] = ":".join(octets)
            case to.Output(port):
                self._send(port, state, departures)
            case to.OutputHop(hop):
                self._send(int(state["eth_src"].split(":")[4 + hop], 16), state, departures)
            case to.ToGroup(group):
                alive = (bucket.port for bucket in self._groups[group].buckets if bucket.port not in self.dead)
                self._send(next(alive, 0), state, departures)
            case to.HashOver():
                if ports := [port for port in action.ports if port not in self.dead]:
                    self._send(ports[_hash(state, action.basis) % len(ports)], state, departures)
            case to.AnswerArp(mac):
                answer = {name: value for name, value in state.items() if name not in _OWN}
                answer |= {"eth_dst": state["eth_src"], "eth_src": mac, "arp_op": 2, "arp_sha": mac}
                answer |= {"arp_tha": state["arp_sha"], "arp_tpa": state["arp_spa"], "arp_spa": state["arp_tpa"]}
                departures.append(Departure(state["in_port"], answer))
            case to.AnswerSolicitation(mac):
                answer = {name: value for name, value in state.items() if name not in _OWN}
                answer |= {"eth_dst": state["eth_src"], "eth_src": mac, "ipv6_nd_tll": mac}
                answer |= {"ipv6_dst": state["ipv6_src"], "ipv6_src": state["ipv6_nd_target"]}
                departures.append(Departure(state["in_port"], answer))
            case to.LookUp(table):
                self._process(table, state, departures, written)
            case to.SendStart():
                self.sent_to_controller += 1
            case to.Choose():
                state["reg1"] = _hash(state, action.basis, 2 if action.addresses else None) % action.number
            case to.LearnSender(seconds) | to.LearnNeighbour(seconds):
                sender = "arp_sha" if isinstance(action, to.LearnSender) else f"ipv6_{action.field}"
                match = (("metadata", state["in_port"]),)
                learned = self._tables[Table.DELIVER]
                learned[:] = [flow for flow in learned if flow.match != match]
                if not seconds:
                    seen = to.SetField("eth_dst", state[sender])
                    learned.insert(0, Flow(Table.DELIVER, 1, match, "learned", apply=(seen,)))
            # LearnNoMore, SendNoMore and those of IPv6: time does not pass here

    def _send(self, port: int, state: dict[str, Any], departures: list[Departure]) -> None:
        # A switch never sends a packet back by the port it entered by, unless an action names IN_PORT (OpenFlow 1.3, section 4.5).
        sent_back = port == to.IN_PORT
        port = state["in_port"] if sent_back else port
        if port and (sent_back or port != state["in_port"]) and port not in self.dead:
            packet = {name: value for name, value in state.items() if name not in _OWN}
            departures.append(Departure(port, packet))


class TableFabric:
    """A whole fat-tree of in-memory switches, cabled as the fat-tree is."""

    def __init__(self, tree: Clos, rules: Iterable[tuple[Switch, SwitchRules]], dead: Iterable[str] = ()) -> None:
        self.tree = tree
        self.switches = {switch: TableSwitch(its) for switch, its in rules}
        for element in map(tree.element, dead):  # as its neighbours see it: the port is down
            if isinstance(element, Link):
                links = [element]
            else:
                links = [tree.link(element, there) for there in tree.ports(element).values()]
            for lower, upper in links:
                self.switches[upper].dead.add(tree.port(upper, lower))
                if isinstance(lower, Switch):
                    self.switches[lower].dead.add(tree.port(lower, upper))

    def send(self, src: Host, packet: Packet) -> tuple[list[str], dict[str, Any] | None]:
        """Send a packet from a host; return its switches and the host that it reaches, by name, and the packet there if any."""
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
    mac = {"eth_src": eth_src or tree.mac(src), "eth_dst": "02:00:00:00:00:01"}
    return {"eth_type": 0x0800, **mac, "ipv4_src": str(tree.ip(src)), "ipv4_dst": str(tree.ip(dst)), "ip_proto": 6, **fields}


def ipv6_packet(tree: Clos, src: Host, dst: Host, eth_src: str | None = None, **fields: Any) -> dict[str, Any]:
    """As `ipv4_packet`, by the fabric's second family."""
    family = tree.families[1]
    its = {"eth_type": 0x86DD, "ipv6_src": str(family.address(src)), "ipv6_dst": str(family.address(dst))}
    others = {name: value for name, value in ipv4_packet(tree, src, dst, eth_src).items() if "ipv4" not in name}
    return others | its | fields


@lru_cache(maxsize=1 << 14)
def _number(value: int | str) -> int:
    if isinstance(value, int):
        return value
    if value.count(":") == 5 and "::" not in value:
        return int(value.replace(":", ""), 16)
    return int(ip_address(value))


def _matches(flow: Flow, state: dict[str, Any]) -> bool:
    for field, wanted in flow.match:
        value, mask = map(_number, wanted) if isinstance(wanted, tuple) else (_number(wanted), -1)
        if field not in state or _number(state[field]) & mask != value:
            return False
    return True


def _hash(state: dict[str, Any], basis: int, fields_hashed: int | None = None) -> int:
    fields = repr((basis, [state.get(name) for name in _HASHED[:fields_hashed]]))
    return int.from_bytes(blake2b(fields.encode(), digest_size=4).digest(), "big")
