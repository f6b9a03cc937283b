"""The lab: hosts and switches of a Clos fabric on this machine, with real packets, in private namespaces.

Use it inside `isolation.isolated`. It starts no controller and no agent; for those who do, it has `Lab.netns`,
`Lab.management_address`, `Lab.set_link`, `Lab.port_packets`, and Mininet's network as `Lab.net`. Further faults are in
`topologies.lab.faults`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from mininet.log import setLogLevel
from mininet.node import Switch as MininetSwitch

from topologies.lab.batch_net import GROUP, BatchNet, LabError, LabRouter, LabSwitch, routes, run_batch
from topologies.lab.datapath import DatapathKind, raise_send_buffers
from topologies.lab.isolation import is_isolated, require
from topologies.lab.links import at_rate, bfd_interval_ms, default_rate, filters, past_the_queue, shaper, tbf_burst
from topologies.lab.mininet_topo import ClosTopo
from topologies.lab.private_ovs import PrivateOvs
from topologies.lab.startable import Startable
from topologies.structure import BFD_MAC, Clos, Host, Level, Switch

OVS_DIRECTORY = Path("/run/sopa/ovs")
MANAGEMENT_ROOT = IPv4Address("192.168.0.1")
MANAGEMENT_NETWORK = IPv4Network("192.168.0.0/16")
"""Of the hosts' addresses on the management network."""
FRAME_MEMORY_BYTES = 2500  # memory of a full Ethernet frame in the kernel's accounting
ETHERTYPE_EXPERIMENTAL = 0x88B5  # IEEE 802, for local experiments: every host ignores it

OWN_TABLES = {"ipv4/tcp_child_ehash_entries": "1024"}
"""Of the namespace in which hosts' are made: each has a table of its own for its connections. Reading all of the machine's takes
3 ms, the length of a slot."""
_SYSCTLS = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1", "ipv4/ip_forward": "0", **OWN_TABLES}
_BFD_SECONDS = 120.0
_BFD_SESSION = re.compile(r"^---- (\S+) ----\s+Forwarding: (\w+)", re.MULTILINE)
_RECEIVED = re.compile(r"^\s*(\S+)-eth\d+: *\d+ +(\d+)", re.MULTILINE)


class Lab(Startable):
    """A running fabric, as a context manager.

    Args:
        rate_mbit: Rate of hosts' links in each direction in Mbit/s; all others are in proportion (`links.at_rate`). None for no
            limit.
        queue_packets: Length of a link's queue in full-size frames, if it has a rate.
        controller_port: The controller's port on 127.0.0.1; None for no controller.
        bfd: Whether BFD runs on every link between switches (`bfd_interval_ms`). The switches then connect to the controller
            when all sessions are up.
        datapath: What forwards the packets: see `datapath.choose`.
        controllers: Addresses and OpenFlow ports of several controllers, instead of ``controller_port``.

    Attributes:
        bfd_ms: BFD's interval in ms, of which three without a packet are a failure. May be set before the start.
        beyond: A network of the lab's root namespace that hosts reach, too. May be set before the start.

    Raises:
        MissingCommandError, OvsError, LabError: On entering, if a program is not installed, a part does not start (the others
            are stopped), or it is not inside `isolation.isolated`.
    """

    def __init__(
        self,
        tree: Clos,
        rate_mbit: float | None = None,
        queue_packets: int = 100,
        controller_port: int | None = 6653,
        say: Callable[[str], None] = lambda _line: None,
        bfd: bool = True,
        datapath: DatapathKind = DatapathKind.USER,
        controllers: Sequence[tuple[str, int]] = (),
    ) -> None:
        if rate_mbit is not None and rate_mbit <= 0:
            raise ValueError(f"the link rate must be above 0 Mbit/s, not {rate_mbit}")
        if queue_packets < 1:
            raise ValueError(f"a queue must hold at least one packet, not {queue_packets}")
        self.tree = tree
        self.rate_mbit = rate_mbit
        self._rated = at_rate(tree, rate_mbit or 1.0)
        self.queue_packets = queue_packets
        self.controllers = tuple(controllers)
        if not controllers and controller_port is not None:
            self.controllers = (("127.0.0.1", controller_port),)
        self.bfd = bfd
        self.datapath = datapath
        self.bfd_ms = bfd_interval_ms(tree)
        self.beyond: IPv4Network | None = None
        self.ovs = PrivateOvs(OVS_DIRECTORY)
        self.net: Any = None
        self._shares: dict[str, float] = {}
        self._say = say
        self._management = {host: MANAGEMENT_ROOT + 1 + index for index, host in enumerate(tree.hosts())}

    def stop(self) -> None:
        """Stop the switches, the hosts with every process in them, and delete all interfaces. It can be called again."""
        if self.net is not None:
            self._say("stopping the lab")
        self.ovs.stop()
        if self.net is not None:
            self.net.stop()
            self.net = None

    # -- hooks --------------------------------------------------------------------------------------------------------

    def netns(self, host: Host | str) -> str:
        """Return the path of a host's network namespace, for ``nsenter --net=``."""
        return f"/proc/{self.node(host).pid}/ns/net"

    def namespace(self, node: Host | Switch) -> str | None:
        """Return the path of the network namespace that has a node's interfaces; None for that of the lab."""
        its = self.node(node)
        return f"/proc/{its.pid}/ns/net" if its.inNamespace else None

    def batch(self, node: Host | Switch, program: str, lines: list[str]) -> None:
        """Have ``ip`` or ``tc`` carry out lines where a node's interfaces are."""
        namespace = self.namespace(node)
        run_batch([*([] if namespace is None else ["nsenter", f"--net={namespace}"]), program, "-batch", "-"], lines)

    def node(self, node: Host | Switch | str) -> Any:
        """Return Mininet's node; raise `TopologyError` if the fabric has none of that name."""
        return self.net[self.tree.name(self.tree.node(node) if isinstance(node, str) else node)]

    def management_address(self, host: Host | str) -> IPv4Address:
        """Return a host's address on the management network, which connects it to `MANAGEMENT_ROOT` only."""
        return self._management[self.tree.host(host) if isinstance(host, str) else host]

    def interface(self, node: Host | Switch, port: int) -> str:
        """Return an interface's name: ``e0_0-eth1``, ``h0_0_2-eth0``."""
        return f"{self.tree.name(node)}-eth{port}"

    def fabric_interfaces(self) -> Iterator[tuple[str, str]]:
        """Yield every interface of a link between switches, with the one at the link's other end."""
        for link in self.tree.links():
            if isinstance(link.lower, Switch):
                lower = self.interface(link.lower, self.tree.port(link.lower, link.upper))
                upper = self.interface(link.upper, self.tree.port(link.upper, link.lower))
                yield lower, upper
                yield upper, lower

    def set_link(self, name: str, up: bool) -> None:
        """Set a link such as ``a0_0-c0_1`` or ``h0_0_2-e0_0`` down at both ends, or up.

        Like Mininet's ``link A B down``, but without the nodes' shells, which may be busy. `TopologyError` for an unknown link.
        """
        link = self.tree.link_by_name(name)
        state = "up" if up else "down"
        for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            lines = [f"link set {self.interface(node, self.tree.port(node, towards))} {state}"]
            its = self.node(node)
            if up and isinstance(node, Host):
                lines += routes(its)
            self.batch(node, "ip", lines)
            if up and isinstance(its, LabRouter):
                its.configure()

    def port_packets(self, level: Level = Level.CORE) -> dict[str, int]:
        """Return the packets received so far by each switch of a level on its fabric ports, without BFD and LLDP.

        They are read at one moment: a switch that is read later has received more while traffic goes on.
        """
        counts = {self.tree.name(switch): 0 for switch in self.tree.switches(level)}
        for interface, packets in _RECEIVED.findall(Path("/proc/thread-self/net/dev").read_text()):
            if interface in counts:
                counts[interface] += int(packets)
        return counts

    def bfd_up(self) -> dict[str, bool]:
        """Return for each interface with BFD whether its switch reports the session as up."""
        return {name: up == "true" for name, up in _BFD_SESSION.findall(self.ovs.appctl("bfd/show"))}

    def shape(self, interfaces: Iterable[str]) -> None:
        """Set the rate of switches' interfaces again: Open vSwitch clears their queueing disciplines when it adds them."""
        if self.rate_mbit is not None:
            run_batch(["tc", "-batch", "-"], self._shapers(interfaces))

    def set_share(self, interface: str, share: float) -> None:
        """Give a switch's interface a share of its rate, above 0 and at most 1; `ValueError` for others, or without a rate."""
        if not 0 < share <= 1:
            raise ValueError(f"a link's rate can fall to a share above 0 and at most 1, not {share:g}")
        if self.rate_mbit is None:
            raise ValueError("links of a lab without a rate cannot be slow: start it with one")
        self._shares[interface] = share
        self.batch(self.tree.switch(interface.partition("-eth")[0]), "tc", self._shapers([interface]))

    def rate_of(self, interface: str) -> float:
        """Return the rate of an interface in Mbit/s, as it is now."""
        return self._rates[interface] * self._shares.get(interface, 1.0)

    def _shapers(self, interfaces: Iterable[str]) -> list[str]:
        return [shaper(interface, self.rate_of(interface), self.queue_packets) for interface in interfaces]

    @cached_property
    def _rates(self) -> dict[str, float]:
        """The rate of every interface in Mbit/s."""
        return {
            self.interface(node, self.tree.port(node, towards)): self._rated.capacity(link)
            for link in self.tree.links()
            for node, towards in (link, reversed(link))
        }

    # -- start --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Build the network (done on entering)."""
        if not is_isolated():
            raise LabError("a Lab changes the network of its namespace: run it inside isolation.isolated()")
        require("ip", "tc", "ethtool", "ifconfig", "nsenter", "mnexec")
        setLogLevel("output")  # the output of commands at the prompt, without Mininet's progress messages
        for name, value in _SYSCTLS.items():
            Path("/proc/sys/net", name).write_text(value)
        self._begin()
        self._say(f"starting {self.tree.host_count} hosts and {self.tree.switch_count} switches")
        self.net = BatchNet(
            self._topo(),
            self.controllers,
            [line for host in self.tree.hosts() for line in self._management_link(host)],
            lambda name: self._host_script(self.tree.host(name)),
            self._switch,
            self._say,
            self.datapath,
        )
        self.net.build()
        self._management_routes()
        self._start_switches()

    def _topo(self) -> ClosTopo:
        return ClosTopo(self.tree)

    def _begin(self) -> None:
        self._say("starting Open vSwitch")
        self.ovs.__enter__()

    def _switch(self, name: str, **params: Any) -> MininetSwitch:
        settings = {"datapath": self.datapath, "protocols": "OpenFlow13", "failMode": "secure", "inband": False, "batch": True}
        return LabSwitch(name, self._bfd_settings, self._shape_switch, **{**params, **settings})

    def _shape_switch(self, name: str) -> None:
        self.shape(self._interfaces(self.tree.switch(name)))

    def _start_switches(self) -> None:
        self._make_filters()  # before Open vSwitch sends the first BFD packet, which a counter would have otherwise
        self._say(f"starting {self.tree.switch_count} bridges")
        self.net.start()
        self.shape(interface for switch in self.tree.switches() for interface in self._interfaces(switch))
        if self.rate_mbit is not None:
            if self.datapath is DatapathKind.USER:
                self._make_room()
            else:
                self._release_senders()
        if self.bfd:
            self._await_bfd()
        self.net.connect()

    def _bfd_settings(self, interface: str) -> str:
        """Return the ``ovs-vsctl`` settings of an interface."""
        if not self.bfd or interface not in self._watched:
            return ""
        settings = f"bfd:enable=true bfd:min_tx={self.bfd_ms} bfd:min_rx={self.bfd_ms}"
        return f"{settings} bfd:bfd_local_dst_mac={BFD_MAC} bfd:bfd_remote_dst_mac={BFD_MAC}"

    @cached_property
    def _watched(self) -> set[str]:
        return {interface for interface, _ in self.fabric_interfaces()}

    def _await_bfd(self) -> None:
        self._say("waiting for BFD on every link between switches")
        deadline = time.monotonic() + _BFD_SECONDS
        sessions = len(list(self.fabric_interfaces()))
        while sum(self.bfd_up().values()) < sessions:
            if time.monotonic() > deadline:
                down = sorted(name for name, up in self.bfd_up().items() if not up)
                raise LabError(f"BFD did not come up on {', '.join(down[:8])} within {_BFD_SECONDS:g} s")
            time.sleep(0.05)

    def _interfaces(self, switch: Switch) -> Iterator[str]:
        return (self.interface(switch, port) for port in self.tree.ports(switch))

    def _make_filters(self) -> None:
        lines = []
        for interface, peer in self.fabric_interfaces():
            lines += [filters(interface), *past_the_queue(interface, peer)]
        run_batch(["tc", "-batch", "-"], lines)

    def _make_room(self) -> None:
        """Raise Open vSwitch's send buffer so that every link's queue can fill: see `topologies.lab.datapath`."""
        ports = 2 * self.tree.switch_link_count + self.tree.host_count
        edge = next(self.tree.switches(Level.EDGE))
        frame = f"ffffffffffff{'0' * 12}{ETHERTYPE_EXPERIMENTAL:04x}{'00' * 46}"
        # Open vSwitch opens the socket when it sends the first packet
        self.ovs.ofctl("packet-out", self.tree.name(edge), f"in_port=controller packet={frame} actions=output:1")
        if not raise_send_buffers(self.ovs.pid(), ports * self.queue_packets * FRAME_MEMORY_BYTES):
            raise LabError("Open vSwitch has no packet socket: this version may send packets in another way")

    def _release_senders(self) -> None:
        """Have the first switch take packets off the account of the socket that sent them, as a network card does.

        Within one kernel a packet would stay on it up to its receiver, and TCP keeps only some packets there (small queues): those
        that wait at a switch far away would stop the sender. With receive offload on, a veth takes packets over in its own
        context (NAPI), and releases their sockets.
        """
        for host in self.tree.hosts():
            edge = self.tree.edge_of(host)
            port = self.interface(edge, self.tree.port(edge, host))
            run_batch(["ethtool", "-K", port, "gro", "on"], [])

    def _management_interface(self, host: Host) -> str:
        return f"{self.tree.name(host)}-mgmt"

    def _management_link(self, host: Host) -> list[str]:
        """Return the line that adds a veth pair from the lab's root namespace to a host, with one name at both ends."""
        name, pid = self._management_interface(host), "{" + self.tree.name(host) + "}"
        return [f"link add {name} group {GROUP} type veth peer name {name} netns {pid}"]

    def _management_routes(self) -> None:
        """Set one address for all veth pairs and one route to each host; packets cannot go from host to host."""
        lines = [f"address replace {MANAGEMENT_ROOT}/32 dev lo"]
        for host, address in self._management.items():
            lines.append(f"route add {address}/32 dev {self._management_interface(host)} src {MANAGEMENT_ROOT}")
        run_batch(["ip", "-batch", "-"], lines)
        for host in self._management if self.beyond is not None else ():
            Path(f"/proc/sys/net/ipv4/conf/{self._management_interface(host)}/forwarding").write_text("1")

    def _host_script(self, host: Host) -> str:
        name = self._management_interface(host)
        lines = [
            "ip -batch - << END",
            f"address add {self._management[host]}/32 dev {name}",
            f"link set {name} up",
            f"route add {MANAGEMENT_ROOT}/32 dev {name} src {self._management[host]}",
            *([f"route add {self.beyond} via {MANAGEMENT_ROOT} dev {name}"] if self.beyond is not None else []),
            "END",
        ]
        if self.rate_mbit is not None:
            interface = self.interface(host, 0)
            lines.append(f"tc {shaper(interface, self._rates[interface], self.queue_packets)}")
        return "\n".join(lines)


__all__ = ["MANAGEMENT_NETWORK", "MANAGEMENT_ROOT", "Lab", "LabError", "bfd_interval_ms", "default_rate", "tbf_burst"]
