"""The lab: hosts and switches of a fat-tree on this machine, with real packets, in namespaces that vanish.

Use it inside `hermetic.isolated`. It starts no controller and no agent; who does finds the hooks here: `Lab.netns`,
`Lab.management_address`, `Lab.set_link`, `Lab.port_packets`, and Mininet's own network as `Lab.net`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Any

from mininet.log import setLogLevel

from topologies.batch_net import GROUP, BatchNet, LabError, routes, run_batch
from topologies.fattree import FatTree, Host, Level, Link, Switch, TopologyError
from topologies.hermetic import is_isolated, require
from topologies.mininet_topo import FatTreeTopo
from topologies.packet_sockets import raise_send_buffers
from topologies.private_ovs import PrivateOvs

OVS_DIRECTORY = Path("/run/sopa/ovs")
MANAGEMENT_ROOT = IPv4Address("192.168.0.1")
FRAME_BYTES = 1514  # a full Ethernet frame as a queueing discipline counts it
FRAME_MEMORY_BYTES = 2500  # and as the kernel counts its memory
LATE_SECONDS = 0.004  # a tick of the scheduler at 250 Hz
ETHERTYPE_EXPERIMENTAL = 0x88B5  # IEEE 802, for local experiments: no host takes it

_CLEAN_MBIT_AT_16_HOSTS = 4.0
_RX_PACKETS = re.compile(r"^\s*port\s+(\S+?):\s+rx pkts=(\d+)", re.MULTILINE)


def default_rate(tree: FatTree) -> float:
    """A link rate in Mbit/s that leaves the processor idle time, so that results show the fabric and not the machine.

    One thread forwards for every switch, and its limit is packets times hops a second. With 16 hosts sending at once it
    is clean at 4 Mbit/s links (measured on 2 cores), so the rate goes down as the number of hosts goes up. Smaller fabrics
    get more, 40 at most.
    """
    return min(40.0, _CLEAN_MBIT_AT_16_HOSTS * 16 / tree.host_count)


def tbf_burst(rate_mbit: float) -> int:
    """The bucket of a link's token bucket filter in bytes: two full frames, and what the link carries in `LATE_SECONDS`.

    A real link is never late. Here a frame waits for the thread that forwards for all switches, and for the kernel's timer;
    a bucket that does not cover that time takes it from the link's rate for good, and one that is much larger lets through
    bursts that no link does. At k=4 and 4 Mbit/s the demo's mean was 3.51 Mbit/s with one frame (1,600 bytes), 3.55 with two,
    and 3.65 with four.
    """
    return 2 * FRAME_BYTES + 72 + round(rate_mbit * 1e6 / 8 * LATE_SECONDS)


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
    ) -> None:
        if rate_mbit is not None and rate_mbit <= 0:
            raise ValueError(f"the link rate must be above 0 Mbit/s, not {rate_mbit}")
        if queue_packets < 1:
            raise ValueError(f"a queue must hold at least one packet, not {queue_packets}")
        self.tree = tree
        self.rate_mbit = rate_mbit
        self.queue_packets = queue_packets
        self.controller_port = controller_port
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
        """Packets received so far by each switch of a level, over its fabric ports."""
        counts = {}
        for switch in self.tree.switches(level):
            name = self.tree.name(switch)
            found = _RX_PACKETS.findall(self.ovs.ofctl("dump-ports", name))
            counts[name] = sum(int(count) for port, count in found if port != "LOCAL")
        return counts

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
            self._say,
        )
        self.net.build()
        self._management_routes()
        self._say(f"starting {self.tree.switch_count} bridges")
        self.net.start()
        # after the bridges, as Open vSwitch clears the queueing disciplines of the interfaces that it takes
        if self.rate_mbit is not None:
            run_batch(
                ["tc", "-batch", "-"],
                [
                    self._shaper(self.interface(switch, port))
                    for switch in self.tree.switches()
                    for port in self.tree.ports(switch)
                ],
            )

            self._make_room()

    def _make_room(self) -> None:
        """Let every link's queue fill: see `packet_sockets`."""
        ports = self.tree.k * self.tree.switch_count
        edge = next(self.tree.switches(Level.EDGE))
        frame = f"ffffffffffff{'0' * 12}{ETHERTYPE_EXPERIMENTAL:04x}{'00' * 46}"
        # Open vSwitch opens the socket with the first packet that it sends
        self.ovs.ofctl("packet-out", self.tree.name(edge), f"in_port=controller packet={frame} actions=output:1")
        if not raise_send_buffers(self.ovs.pid(), ports * self.queue_packets * FRAME_MEMORY_BYTES):
            raise LabError("Open vSwitch has no socket to send by: is this a version that sends otherwise?")

    def _shaper(self, interface: str) -> str:
        assert self.rate_mbit is not None
        return (
            f"qdisc replace dev {interface} root tbf rate {round(self.rate_mbit * 1e6)}bit"
            f" burst {tbf_burst(self.rate_mbit)} limit {self.queue_packets * FRAME_BYTES}"
        )

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
            lines.append(f"tc {self._shaper(self.interface(host, 0))}")
        return "\n".join(lines)


__all__ = ["MANAGEMENT_ROOT", "Lab", "LabError", "default_rate", "tbf_burst"]
