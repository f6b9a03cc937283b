"""One suite for the switch in memory and for Open vSwitch: messages in, answers and refusals out, entries and groups after.

The scripts are in `scripts/switch`: ``a role 5`` claims to be the master, and ``a send`` sends changes. ``+plain@2`` adds an entry
of version 2, ``-plain`` deletes it, ``+1:3,4`` adds group 1 with two ports, ``~1:4,3`` modifies it, ``-1`` deletes it.
"""

import itertools
import random
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from flowrules.model import Bucket, Field, Flow, Group, Output, SwitchRules, Table, ToGroup, does
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric import messages, rule_changes
from sopa_ryu.fabric.messages import Installed, InstalledState, Message
from sopa_ryu.runtime.library import ProtocolDesc, ofproto_parser, ofproto_v1_3
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.connection import Connection
from tests.helpers.fabrics import set_live
from tests.helpers.golden import Script, Step, each_script
from tests.models.memory_switch import Answered, Channel, Event, MemorySwitch, PortChanged, Refused
from topologies import Failures, FatTree
from topologies.failures import Reason
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

HEADER_BYTES = 8
ANSWER_SECONDS = 60.0


class OpenFlowClient:
    """Waits for one switch to connect, and then stands in for Ryu's ``Datapath``."""

    socket: socket.socket

    def __init__(self) -> None:
        desc = ProtocolDesc(ofproto_v1_3.OFP_VERSION)
        self.ofproto, self.ofproto_parser = desc.ofproto, desc.ofproto_parser
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ANSWER_SECONDS)
        self.address = self._listener.getsockname()
        self.target = "tcp:{}:{}".format(*self.address)
        self.id = 0
        self.ports: dict[int, Any] = {}
        self._xids = itertools.count(1)

    def accept(self) -> None:
        """Wait for the switch and finish the handshake."""
        self.socket, _ = self._listener.accept()
        self.socket.settimeout(ANSWER_SECONDS)
        self._data = self.socket.makefile("rb")
        self.send_msg(self.ofproto_parser.OFPHello(self))
        self.send_msg(self.ofproto_parser.OFPFeaturesRequest(self))
        self.id = self._await(self.ofproto_parser.OFPSwitchFeatures).datapath_id
        self.send_msg(self.ofproto_parser.OFPPortDescStatsRequest(self, 0))
        described = self._await(self.ofproto_parser.OFPPortDescStatsReply)
        self.ports = {port.port_no: port for port in described.body}

    def close(self) -> None:
        for opened in (self._data, self.socket, self._listener):
            opened.close()

    def set_xid(self, message: Any) -> int:
        xid = next(self._xids)
        message.set_xid(xid)
        return xid

    def send_msg(self, message: Any) -> bool:
        if message.xid is None:
            self.set_xid(message)
        message.serialize()
        self.socket.sendall(message.buf)
        return True

    def receive(self) -> Any:
        """Return the next message of the switch; echo requests are answered."""
        while True:
            header = self._data.read(HEADER_BYTES)
            version, kind, length, xid = ofproto_parser.header(header)
            message = ofproto_parser.msg(self, version, kind, length, xid, header + self._data.read(length - HEADER_BYTES))
            if not isinstance(message, self.ofproto_parser.OFPEchoRequest):
                return message
            reply = self.ofproto_parser.OFPEchoReply(self, message.data)
            reply.set_xid(message.xid)
            self.send_msg(reply)

    def _await(self, kind: type) -> Any:
        """Return the next message of a kind, before which others may come."""
        return next(message for message in iter(self.receive, None) if isinstance(message, kind))


TREE = FatTree(4)
BRIDGE = "e0_0"
SWITCH = TREE.switch(BRIDGE)
HOST_MAC = "06:11:22:33:44:55"

# -- a switch with four ports that a test can connect to, restart and unplug: in memory, and of real Open vSwitch -----


class MemoryPeer:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._reports: deque[PortChanged] = deque()

    def exchange(self, *sent: Message) -> list[Event]:
        for message in sent:
            assert self.channel.send(message)
            self.channel.process()
        return self._received()

    def report(self) -> PortChanged:
        assert not self._received()
        return self._reports.popleft()

    def _received(self) -> list[Event]:
        events = [self.channel.receive() for _ in range(len(self.channel.outbox))]
        self._reports.extend(event for event in events if isinstance(event, PortChanged))
        return [event for event in events if not isinstance(event, PortChanged)]


class MemoryDevice:
    def __init__(self) -> None:
        self.switch = MemorySwitch(TREE.dpid(SWITCH), dict.fromkeys(TREE.ports(SWITCH)))
        self.restart = self.switch.restart
        self.set_port = self.switch.set_port
        self.remove_port = self.switch.remove_port
        self.arp = self.switch.learn

    def connect(self) -> MemoryPeer:
        return MemoryPeer(self.switch.connect())

    def disconnect(self, peer: Any) -> None:
        peer.channel.close()

    def add_port(self, port: int) -> None:
        self.switch.set_port(port, None)

    def limit(self, table: int, entries: int | None) -> None:
        if entries is None:
            self.switch.limits.clear()
        else:
            self.switch.limits[table] = entries


class OvsPeer:
    def __init__(self, client: OpenFlowClient) -> None:
        self.client = client
        self.connection = Connection(client)
        self._reports: deque[PortChanged] = deque()

    def exchange(self, *sent: Message) -> list[Event]:
        end = messages.BarrierRequest()
        for message in (*sent, end):
            assert self.connection.send(message)
        events: list[Event] = []
        while True:
            event = self._receive()
            if isinstance(event, PortChanged):
                self._reports.append(event)
            elif isinstance(event, Answered) and event.request is end:
                return events
            elif event is not None:
                events.append(event)

    def report(self) -> PortChanged:
        while not self._reports:
            event = self._receive()
            if event is not None:
                self._reports.append(event)
        return self._reports.popleft()

    def _receive(self) -> Event | None:
        message: Any = self.client.receive()
        kind = type(message).__name__
        if kind == "OFPErrorMsg":
            return Refused(*self.connection.refused(message))
        if kind == "OFPPortStatus":
            deleted = message.reason == ofproto_v1_3.OFPPR_DELETE
            return PortChanged(message.desc.port_no, openflow.port_trouble(message.desc), deleted)
        answered = self.connection.received(message)
        return None if answered is None else Answered(*answered)


class OvsDevice:
    def __init__(self, ovs: PrivateOvs) -> None:
        self._ovs, self._dummy = ovs, DummyFabric(TREE, ovs, switches=[SWITCH])
        self._clients: list[OpenFlowClient] = []

    def remove(self) -> None:
        self._ovs.vsctl("del-br", BRIDGE)
        for client in self._clients:
            client.close()

    def connect(self) -> OvsPeer:
        client = OpenFlowClient()
        self._clients.append(client)
        self._set_controllers()
        client.accept()
        return OvsPeer(client)

    def disconnect(self, peer: Any) -> None:
        self._clients.remove(peer.client)
        self._set_controllers()
        peer.client.close()

    def restart(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._set_controllers()
        self._ovs.restart()

    def _set_controllers(self) -> None:
        """Let the switch connect to these clients, without probes: a test that stands still is no controller that is gone."""
        words = ["set", "bridge", BRIDGE, f"controller=[{','.join(f'@c{i}' for i in range(len(self._clients)))}]"]
        for i, client in enumerate(self._clients):
            target = f'target="{client.target}"'
            words += ["--", f"--id=@c{i}", "create", "Controller", target, "inactivity_probe=0", "max_backoff=1000"]
        self._ovs.vsctl(*words)

    def set_port(self, port: int, trouble: Reason | None) -> None:
        if trouble is not Reason.SILENT:
            self._dummy.set_port(SWITCH, port, up=trouble is None)
        set_live(self._dummy, SWITCH, port, trouble is not Reason.SILENT)

    def add_port(self, port: int) -> None:
        name = self._dummy.interface(SWITCH, port)
        self._ovs.vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, "type=dummy", f"ofport_request={port}")

    def remove_port(self, port: int) -> None:
        self._ovs.vsctl("del-port", BRIDGE, self._dummy.interface(SWITCH, port))

    def limit(self, table: int, entries: int | None) -> None:
        if entries is None:
            self._ovs.vsctl("clear", "bridge", BRIDGE, "flow_tables")
            return
        row = ["--id=@limit", "create", "Flow_Table", f"flow_limit={entries}", "overflow_policy=refuse"]
        self._ovs.vsctl(*row, "--", "set", "bridge", BRIDGE, f"flow_tables:{table}=@limit")

    def arp(self, port: int) -> None:
        """Have a host with another address than planned send an ARP request."""
        frame = f"in_port({port}),eth(src={HOST_MAC},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806)"
        arp = f"arp(sip=10.0.0.2,tip=10.0.0.1,op=1,sha={HOST_MAC},tha=00:00:00:00:00:00)"
        self._ovs.appctl("netdev-dummy/receive", self._dummy.interface(SWITCH, port), f"{frame},{arp}")


Peer = MemoryPeer | OvsPeer
Device = MemoryDevice | OvsDevice


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateOvs]:
    with PrivateOvs(tmp_path_factory.mktemp("ovs"), dummy=True) as its:
        yield its


@pytest.fixture
def real(ovs: PrivateOvs) -> Iterator[OvsDevice]:
    device = OvsDevice(ovs)
    yield device
    device.remove()


@pytest.fixture(params=["memory", pytest.param("ovs", marks=pytest.mark.switch)])
def device(request: pytest.FixtureRequest) -> Device:
    return MemoryDevice() if request.param == "memory" else request.getfixturevalue("real")


# -- what both say ----------------------------------------------------------------------------------------------------

PLAIN = Flow(Table.DOWN, 40, (("eth_type", 0x0800), ("ipv4_dst", "10.0.0.2")), "to a host", apply=(Output(1),))
FLOWS = {
    "plain": PLAIN,
    "other": PLAIN._replace(apply=(Output(2),)),
    "reordered": PLAIN._replace(match=PLAIN.match[::-1]),
    "higher": PLAIN._replace(priority=41),
    "wider": PLAIN._replace(priority=41, match=PLAIN.match[:1]),
    "grouped": Flow(Table.UP, 20, (("metadata", 7),), "by a group", apply=(ToGroup(1),)),
}
Place = tuple[int, int, frozenset[Field]]
Known = tuple[set[tuple[int, int, int, frozenset[Field]]], dict[int, tuple[int, ...]]]


def installed(flow: Flow, version: int = 1) -> Installed:
    return Installed(flow.table, flow.priority, rule_changes.cookie(flow, version), flow.match, does(flow))


def change(word: str) -> Message:
    """Return the message that a word of a script stands for."""
    if word == "probe":
        return messages.SendProbe(3)
    sign, name, version = word[0], *word[1:].partition("@")[::2]
    if name in FLOWS:
        its = int(version or 1)
        return messages.AddFlow(FLOWS[name], its) if sign == "+" else messages.DeleteFlow(installed(FLOWS[name], its))
    number, _, ports = name.partition(":")
    if sign == "-":
        return messages.DeleteGroup(int(number))
    group = Group(int(number), tuple(Bucket(int(port)) for port in ports.split(",") if port))
    return messages.AddGroup(group) if sign == "+" else messages.ModifyGroup(group)


def read(peer: Peer) -> InstalledState:
    flows, groups = messages.FlowsRequest(), messages.GroupsRequest()
    first, second = peer.exchange(flows, groups)
    assert (first.request, second.request) == (flows, groups)
    return InstalledState(first.answer, second.answer)


def known(peer: Peer) -> Known:
    """Return what a switch has, without the order, which OpenFlow leaves open."""
    state = read(peer)
    return {(entry.cookie, *place(entry)) for entry in state.flows}, state.groups


def place(its: Flow | Installed) -> Place:
    """Return what tells an entry from others."""
    return int(its.table), its.priority, frozenset(its.match)


def refusals(peer: Peer, *changes: Message) -> list[str]:
    events = peer.exchange(*changes)
    assert all(isinstance(event, Refused) and event.request is None for event in events)
    refused = [event.refusal for event in events if isinstance(event, Refused)]
    return [f"{its.kind}: {its.text}{', as a slave' * its.is_slave}" for its in refused]


class Played:
    """A switch to which a script is played."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.peers: dict[str, Peer] = {}

    def handle(self, step: Step) -> str:
        match step.command, step.words:
            case "connect", names:
                self.peers.update((name, self.device.connect()) for name in names)
            case "disconnect", [name]:
                self.device.disconnect(self.peers.pop(name))
            case "restart", []:
                self.device.restart()
                self.peers.clear()
            case "limit", [entries]:
                self.device.limit(Table.DOWN, None if entries == "none" else int(entries))
            case "port", [number, "removed"]:
                self.device.remove_port(int(number))
                return self._reports(Reason.SILENT)
            case "port", [number, "added"]:
                self.device.add_port(int(number))
                return self._reports(None)
            case "port", [number, state]:
                trouble = None if state == "up" else Reason(state)
                self.device.set_port(int(number), trouble)
                return self._reports(trouble)
            case name, ["role", *words]:
                request = messages.RoleRequest(int(words[0]) if words else None, words[1:] == ["slave"])
                [event] = self.peers[name].exchange(request)
                assert event.request is request
                if isinstance(event, Refused):
                    return f"{event.refusal.kind}: {event.refusal.text}"
                return "master" if event.answer else "not the master"
            case name, ["send", *words]:
                return "\n".join(refusals(self.peers[name], *map(change, words)))
            case name, ["read"]:
                return self._shown(known(self.peers[name]))
        return ""

    def _reports(self, trouble: Reason | None) -> str:
        """Return what all are told of a port; one that is added or goes down may be reported as not LIVE before."""
        said = []
        for name, peer in self.peers.items():
            report = peer.report()
            if report.trouble is Reason.SILENT and trouble is not Reason.SILENT:
                report = peer.report()
            state = "removed" if report.deleted else report.trouble or "up"
            said.append(f"{name}: port {report.port} {state}")
        return "\n".join(said)

    def _shown(self, its: Known) -> str:
        named = {
            (rule_changes.cookie(flow, version), *place(flow)): f"{name}@{version}"
            for name, flow in FLOWS.items()
            for version in range(1, 4)
        }
        groups = (f"{number}:{','.join(map(str, ports))}" for number, ports in its[1].items())
        return "\n".join([*sorted(named[entry] for entry in its[0]), *groups])


@each_script(__file__, "switch")
def test_switch(script: Script, device: Device) -> None:
    script.play(Played(device).handle)


# -- the rules of the fabric ------------------------------------------------------------------------------------------


def apply(peer: Peer, rules: SwitchRules, version: int) -> list[Message]:
    """Read, change what differs, and return that."""
    changes = rule_changes.reconcile(rules, read(peer), version)
    assert refusals(peer, *changes) == []
    return changes


@pytest.mark.parametrize("name", ["e0_0", "a1_1", "c1_0"])
def test_rules_are_read_back_as_written_and_differences_lead_from_one_to_another(device: Device, name: str) -> None:
    switch, peer = TREE.switch(name), device.connect()
    failures = Failures(TREE, {"a0_0-c0_1": Reason.DOWN, "e1_1-a1_0": Reason.SILENT, "a2_0": Reason.DRAINED})
    healthy, failed = switch_rules(TREE, switch), switch_rules(TREE, switch, failures, [TREE.host("h0_0_2")])
    for version, rules in enumerate([healthy, failed, healthy], 1):
        apply(peer, rules, version)
        flows, groups = known(peer)
        assert {entry[1:] for entry in flows} == {place(flow) for flow in rules.flows}
        assert groups == {group.id: tuple(bucket.port for bucket in group.buckets) for group in rules.groups}
        assert apply(peer, rules, version) == []
    for version, before, after in ((4, healthy, failed), (5, failed, healthy)):
        assert refusals(peer, *rule_changes.difference(before, after, version)) == []
        assert rule_changes.reconcile(after, read(peer), version + 1) == []


def test_a_learned_entry_survives_all_but_its_own_deletion(device: Device) -> None:
    peer = device.connect()
    rules = switch_rules(TREE, TREE.switch("e0_0"))
    apply(peer, rules, 1)
    device.arp(1)
    # besides, Open vSwitch has learned that it has just learned something at that port
    found = (entry for entry in read(peer).flows if rule_changes.is_learned(entry))
    (learned,) = (entry for entry in found if entry.table == Table.DELIVER)
    assert learned == Installed(Table.DELIVER, 1, rule_changes.LEARNED_COOKIE, (("metadata", (1, 0xFFFF)),))
    assert apply(peer, rules, 2) == []
    refusals(peer, messages.DeleteGroup(1), messages.DeleteGroup(2))
    apply(peer, rules, 3)
    assert learned in read(peer).flows
    assert refusals(peer, messages.DeleteFlow(learned)) == []
    assert learned not in read(peer).flows


# -- at random --------------------------------------------------------------------------------------------------------


@pytest.mark.switch
@pytest.mark.parametrize("seed", range(2))
def test_both_switches_say_the_same_to_whatever_they_are_sent(real: OvsDevice, seed: int) -> None:
    chance, memory = random.Random(seed), MemoryDevice()
    peers = [(memory.connect(), real.connect()) for _ in range(2)]
    words = [f"{sign}{name}@{version}" for sign in "++-" for name in FLOWS for version in (1, 2, 3)]
    words += [f"{sign}{number}:{port}" for sign in "++~-" for number in (1, 2) for port in (3, 4)]

    def message() -> Message:
        role = messages.RoleRequest(chance.choice([None, *range(3, 9)]))
        return chance.choice([role, messages.SendProbe(3), *(change(chance.choice(words)) for _ in range(8))])

    for _ in range(40):
        ours, theirs = chance.choice(peers)
        sent = [message() for _ in range(chance.randrange(1, 12))]
        assert ours.exchange(*sent) == theirs.exchange(*sent)
        assert known(ours) == known(theirs)
