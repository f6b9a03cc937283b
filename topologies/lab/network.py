"""The lab: hosts and switches of a fat-tree on this machine, with real packets, in namespaces that vanish.

Use it inside `hermetic.isolated`. It starts no controller and no agent; who does finds the hooks here: `Lab.netns`,
`Lab.management_address`, `Lab.set_link`, `Lab.port_packets`, and Mininet's own network as `Lab.net`; further faults are in
`lab_faults`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Any

from mininet.log import setLogLevel

from topologies.lab.batch_net import GROUP, BatchNet, LabError, routes, run_batch
from topologies.lab.isolation import is_isolated, require
from topologies.lab.links import bfd_interval_ms, default_rate, filters, past_the_queue, shaper, tbf_burst
from topologies.lab.mininet_topo import FatTreeTopo
from topologies.lab.packet_sockets import raise_send_buffers
from topologies.lab.private_ovs import PrivateOvs
from topologies.structure import FatTree, Host, Level, Link, Switch, TopologyError

OVS_DIRECTORY = Path("/run/sopa/ovs")
MANAGEMENT_ROOT = IPv4Address("192.168.0.1")
FRAME_MEMORY_BYTES = 2500  # a full Ethernet frame as the kernel counts its memory
ETHERTYPE_EXPERIMENTAL = 0x88B5  # IEEE 802, for local experiments: no host takes it

_BFD_SECONDS = 30.0
_BFD_SESSION = re.compile(r"^---- (\S+) ----\s+Forwarding: (\w+)", re.MULTILINE)
_RX_PACKETS = re.compile(r"^\s*port\s+(\S+?):\s+rx pkts=(\d+)", re.MULTILINE)


class Lab:
    """A running fabric, as a context manager.

    Parameters
    ----------
    tree : FatTree
        The fabric.
    rate_mbit : float, optional
        Rate of every link in each direction, in Mbit/s; None for no limit.
    queue_packets : int
        Full-size frames that a link's queue holds, if it has a rate.
    controller_port : int, optional
        Where the switches connect to, on 127.0.0.1; None for no controller.
    say : callable
        Told what is going on, a line at a time.
    bfd : bool
        Whether BFD watches every link between switches (`bfd_interval_ms`). They connect to the controller once all
        those links are up.

    Raises
    ------
    MissingCommandError, OvsError, LabError
        On entering, if a program is not installed, something does not start (what had been started is stopped), or
        it is not inside `hermetic.isolated`.
    """

    def __init__(
        self,
        tree: FatTree,
        rate_mbit: float | None = None,
        queue_packets: int = 100,
        controller_port: int | None = 6653,
        say: Callable[[str], None] = lambda _line: None,
        bfd: bool = True,
    ) -> None:
        if rate_mbit is not None and rate_mbit <= 0:
            raise ValueError(f"the link rate must be above 0 Mbit/s, not {rate_mbit}")
        if queue_packets < 1:
            raise ValueError(f"a queue must hold at least one packet, not {queue_packets}")
        self.tree = tree
        self.rate_mbit = rate_mbit
        self.queue_packets = queue_packets
        self.controller_port = controller_port
        self.bfd = bfd
        self.ovs = PrivateOvs(OVS_DIRECTORY)
        self.net: Any = None
        self._say = say
        self._management = {host: MANAGEMENT_ROOT + 1 + index for index, host in enumerate(tree.hosts())}

    def __enter__(self) -> Lab:
        if not is_isolated():
            raise LabError("a Lab changes the network that it runs in: run it by hermetic.isolated()")
        require("ip", "tc", "ethtool", "ifconfig", "nsenter", "mnexec")
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the hosts with every process in them, the switches, and all interfaces. It can be called again."""
        if self.net is not None:
            self._say("stopping the lab")
        self.ovs.stop()
        if self.net is not None:
            self.net.stop()
            self.net = None

    # -- hooks --------------------------------------------------------------------------------------------------------

    def netns(self, host: Host | str) -> str:
        """A host's network namespace, as a path for ``nsenter --net=``."""
        return f"/proc/{self.node(host).pid}/ns/net"

    def node(self, node: Host | Switch | str) -> Any:
        """Mininet's node; `TopologyError` if the fabric has none of that name."""
        return self.net[self.tree.name(self.tree.node(node) if isinstance(node, str) else node)]

    def management_address(self, host: Host | str) -> IPv4Address:
        """A host's address on the management network, on which it reaches `MANAGEMENT_ROOT` and nobody else."""
        return self._management[self.tree.host(host) if isinstance(host, str) else host]

    def interface(self, node: Host | Switch, port: int) -> str:
        """An interface's name: ``e0_0-eth1``, ``h0_0_2-eth0``."""
        return f"{self.tree.name(node)}-eth{port}"

    def fabric_interfaces(self) -> Iterator[tuple[str, str]]:
        """Every interface of a link between switches, and the one at the link's other end."""
        for link in self.tree.links():
            if isinstance(link.lower, Switch):
                lower = self.interface(link.lower, self.tree.port(link.lower, link.upper))
                upper = self.interface(link.upper, self.tree.port(link.upper, link.lower))
                yield lower, upper
                yield upper, lower

    def set_link(self, name: str, up: bool) -> None:
        """Take a link such as ``a0_0-c0_1`` or ``h0_0_2-e0_0`` down at both ends, or bring it up.

        Like Mininet's ``link A B down``, but it does not need the nodes' shells, which may be busy.

        Raises
        ------
        TopologyError
            If the fabric has no such link.
        """
        link = self.tree.element(name)
        if not isinstance(link, Link):
            raise TopologyError(f"{name} is a switch, not a link")
        state = "up" if up else "down"
        for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            lines = [f"link set {self.interface(node, self.tree.port(node, towards))} {state}"]
            enter: list[str] = []
            if isinstance(node, Host):
                enter = ["nsenter", f"--net={self.netns(node)}"]
                if up:
                    lines += routes(self.node(node))
            run_batch([*enter, "ip", "-batch", "-"], lines)

    def port_packets(self, level: Level = Level.CORE) -> dict[str, int]:
        """Packets received so far by each switch of a level, over its fabric ports, without BFD and LLDP."""
        counts = {}
        for switch in self.tree.switches(level):
            name = self.tree.name(switch)
            found = _RX_PACKETS.findall(self.ovs.ofctl("dump-ports", name))
            counts[name] = sum(int(count) for port, count in found if port != "LOCAL")
        return counts

    def bfd_up(self) -> dict[str, bool]:
        """From each interface that BFD watches to whether its session is up, as its switch sees it."""
        return {name: up == "true" for name, up in _BFD_SESSION.findall(self.ovs.appctl("bfd/show"))}

    def shape(self, interfaces: Iterable[str]) -> None:
        """Give switches' interfaces their rate again: Open vSwitch clears the queueing disciplines of those that it takes."""
        if self.rate_mbit is not None:
            lines = [shaper(interface, self.rate_mbit, self.queue_packets) for interface in interfaces]
            run_batch(["tc", "-batch", "-"], lines)

    # -- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        setLogLevel("output")  # what commands print at the prompt, not what Mininet says while it builds
        for sysctl in ("ipv6/conf/all/disable_ipv6=1", "ipv6/conf/default/disable_ipv6=1", "ipv4/ip_forward=0"):
            name, _, value = sysctl.partition("=")
            Path("/proc/sys/net", name).write_text(value)
        self._say("starting Open vSwitch")
        self.ovs.__enter__()
        self._say(f"starting {self.tree.host_count} hosts and {self.tree.switch_count} switches")
        self.net = BatchNet(
            FatTreeTopo(self.tree.k),
            self.controller_port,
            [line for host in self.tree.hosts() for line in self._management_link(host)],
            lambda name: self._host_script(self.tree.host(name)),
            self._bfd_settings(),
            lambda name: self.shape(self._interfaces(self.tree.switch(name))),
            self._say,
        )
        self.net.build()
        self._management_routes()
        self._say(f"starting {self.tree.switch_count} bridges")
        self.net.start()
        self.shape(interface for switch in self.tree.switches() for interface in self._interfaces(switch))
        self._make_filters()
        if self.rate_mbit is not None:
            self._make_room()
        if self.bfd:
            self._await_bfd()
        self.net.connect()

    def _bfd_settings(self) -> Callable[[str], str]:
        """What ``ovs-vsctl`` sets of an interface."""
        if not self.bfd:
            return lambda _interface: ""
        interval = bfd_interval_ms(self.tree)
        settings = f"bfd:enable=true bfd:min_tx={interval} bfd:min_rx={interval}"
        watched = {interface for interface, _ in self.fabric_interfaces()}
        return lambda interface: settings if interface in watched else ""

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
        """Let every link's queue fill: see `packet_sockets`."""
        ports = self.tree.k * self.tree.switch_count
        edge = next(self.tree.switches(Level.EDGE))
        frame = f"ffffffffffff{'0' * 12}{ETHERTYPE_EXPERIMENTAL:04x}{'00' * 46}"
        # Open vSwitch opens the socket with the first packet that it sends
        self.ovs.ofctl("packet-out", self.tree.name(edge), f"in_port=controller packet={frame} actions=output:1")
        if not raise_send_buffers(self.ovs.pid(), ports * self.queue_packets * FRAME_MEMORY_BYTES):
            raise LabError("Open vSwitch has no socket to send by: is this a version that sends otherwise?")

    def _management_interface(self, host: Host) -> str:
        return f"{self.tree.name(host)}-mgmt"

    def _management_link(self, host: Host) -> list[str]:
        """A wire from the lab's root namespace to a host, called the same at both ends."""
        name, pid = self._management_interface(host), "{" + self.tree.name(host) + "}"
        return [f"link add {name} group {GROUP} type veth peer name {name} netns {pid}"]

    def _management_routes(self) -> None:
        """One address for all wires, and to each host only by its own: nothing can go from host to host."""
        lines = [f"address replace {MANAGEMENT_ROOT}/32 dev lo"]
        for host, address in self._management.items():
            lines.append(f"route add {address}/32 dev {self._management_interface(host)} src {MANAGEMENT_ROOT}")
        run_batch(["ip", "-batch", "-"], lines)

    def _host_script(self, host: Host) -> str:
        name = self._management_interface(host)
        lines = [
            "ip -batch - << END",
            f"address add {self._management[host]}/32 dev {name}",
            f"link set {name} up",
            f"route add {MANAGEMENT_ROOT}/32 dev {name} src {self._management[host]}",
            "END",
        ]
        if self.rate_mbit is not None:
            lines.append(f"tc {shaper(self.interface(host, 0), self.rate_mbit, self.queue_packets)}")
        return "\n".join(lines)


__all__ = ["MANAGEMENT_ROOT", "Lab", "LabError", "bfd_interval_ms", "default_rate", "tbf_burst"]
