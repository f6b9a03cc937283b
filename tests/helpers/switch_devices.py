"""A switch with four ports that a test can connect to, restart and unplug: in memory, and of real Open vSwitch."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from ryu.ofproto import ofproto_v1_3

from sopa_ryu.fabric.messages import BarrierRequest, Message
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.connection import Connection
from tests.helpers.openflow_client import OpenFlowClient
from tests.models.memory_switch import Answered, Channel, Event, MemorySwitch, PortChanged, Refused
from topologies import FatTree
from topologies.failures import Reason
from topologies.lab.private_ovs import PrivateOvs

TREE = FatTree(4)
DPID, PORTS = TREE.dpid(TREE.switch("e0_0")), (1, 2, 3, 4)
BRIDGE = "device"
HOST_MAC = "06:11:22:33:44:55"


class Peer(Protocol):
    """A controller's end of a channel."""

    def exchange(self, *messages: Message) -> list[Event]:
        """Send messages and return everything that comes back until the switch has processed them."""

    def report(self) -> PortChanged:
        """Wait for the next report of a port."""


class Device(Protocol):
    """A switch with ports 1 to 4 of which all are up."""

    def connect(self) -> Peer: ...

    def disconnect(self, peer: Peer) -> None: ...

    def restart(self) -> None:
        """Restart the switch and leave it without a controller."""

    def set_port(self, port: int, trouble: Reason | None) -> None: ...

    def add_port(self, port: int) -> None: ...

    def remove_port(self, port: int) -> None: ...

    def limit(self, table: int, entries: int | None) -> None:
        """Have a table refuse more entries than so many."""

    def arp(self, port: int) -> None:
        """Have a host with another address than planned send an ARP request."""


class MemoryPeer:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._reports: deque[PortChanged] = deque()

    def exchange(self, *messages: Message) -> list[Event]:
        for message in messages:
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
        self.switch = MemorySwitch(DPID, dict.fromkeys(PORTS))
        self.restart = self.switch.restart
        self.set_port = self.switch.set_port
        self.remove_port = self.switch.remove_port
        self.arp = self.switch.learn

    def connect(self) -> MemoryPeer:
        return MemoryPeer(self.switch.connect())

    def disconnect(self, peer: Peer) -> None:
        assert isinstance(peer, MemoryPeer)
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

    def exchange(self, *messages: Message) -> list[Event]:
        end = BarrierRequest()
        for message in (*messages, end):
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
            assert isinstance(event, PortChanged | None)
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
        self._ovs = ovs
        self._clients: list[OpenFlowClient] = []
        words = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=dummy", "fail_mode=secure"]
        words += ["protocols=OpenFlow13", f"other-config:datapath-id={DPID:016x}", "other-config:disable-in-band=true"]
        for port in PORTS:
            words += ["--", *self._port_words(port)]
        ovs.vsctl(*words)

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

    def disconnect(self, peer: Peer) -> None:
        assert isinstance(peer, OvsPeer)
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
            state = "down" if trouble is Reason.DOWN else "up"
            self._ovs.appctl("netdev-dummy/set-admin-state", self._interface(port), state)
        if trouble is Reason.SILENT:
            self._ovs.vsctl("set", "interface", self._interface(port), "bfd:enable=true")
        else:
            self._ovs.vsctl("clear", "interface", self._interface(port), "bfd")

    def add_port(self, port: int) -> None:
        self._ovs.vsctl(*self._port_words(port))

    def remove_port(self, port: int) -> None:
        self._ovs.vsctl("del-port", BRIDGE, self._interface(port))

    def limit(self, table: int, entries: int | None) -> None:
        if entries is None:
            self._ovs.vsctl("clear", "bridge", BRIDGE, "flow_tables")
            return
        row = ["--id=@limit", "create", "Flow_Table", f"flow_limit={entries}", "overflow_policy=refuse"]
        self._ovs.vsctl(*row, "--", "set", "bridge", BRIDGE, f"flow_tables:{table}=@limit")

    def arp(self, port: int) -> None:
        self._ovs.appctl(
            "netdev-dummy/receive",
            self._interface(port),
            f"in_port({port}),eth(src={HOST_MAC},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),"
            f"arp(sip=10.0.0.2,tip=10.0.0.1,op=1,sha={HOST_MAC},tha=00:00:00:00:00:00)",
        )

    @staticmethod
    def _interface(port: int) -> str:
        return f"{BRIDGE}-eth{port}"

    def _port_words(self, port: int) -> list[str]:
        name = self._interface(port)
        return ["add-port", BRIDGE, name, "--", "set", "interface", name, "type=dummy", f"ofport_request={port}"]
