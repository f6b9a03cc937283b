"""A fabric of Linux routers in network namespaces that have run what `sopa fabric srv6` prints, and nothing else."""

import json
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.frames import checksum
from tests.helpers.srv6_routers import Sighting
from topologies import Clos, Host, Switch, srv6_plan
from topologies.lab.batch_net import run_batch

ETH_P_ALL, OUTGOING, PORT = 3, 4, 9701
TAKE_SECONDS, READY_SECONDS = 0.15, 20.0
INSIDE = {4: 4, 41: 6}
"""The version of IP inside, by the next header of the outer one."""


class Srv6Lab:
    """Enter it inside `topologies.lab.isolation.isolated`; ``tell`` gives a router what it is told, by default the commands printed."""

    def __init__(self, tree: Clos, tell: Callable[[Switch], None] | None = None) -> None:
        self.tree, self._tell = tree, tell or self.run_printed
        self._stack = ExitStack()
        self._taps: dict[socket.socket, Host | Switch] = {}

    def __enter__(self) -> "Srv6Lab":
        nodes: list[Host | Switch] = [*self.tree.switches(), *self.tree.hosts()]
        names = [self.tree.name(node) for node in nodes]
        run_batch(["ip", "-batch", "-"], [f"netns add {name}" for name in names])
        run_batch(["ip", "-batch", "-"], [*self._cables()])
        for node, name in zip(nodes, names, strict=True):
            ports = self.tree.ports(node) if isinstance(node, Switch) else {0: None}
            lines = ["link set lo up", *(f"link set eth{port} up" for port in ports)]
            if isinstance(node, Host):
                lines += [f"address add {family.text(node)} dev eth0{' nodad' if family.number == 6 else ''}" for family in self.tree.families]
            run_batch(["ip", "-netns", name, "-batch", "-"], lines)
        for switch in self.tree.switches():
            self._tell(switch)
        for node in nodes:
            with inside(f"/run/netns/{self.tree.name(node)}"):
                tap = self._stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
            tap.setblocking(False)
            self._taps[tap] = node
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()
        subprocess.run(["ip", "-all", "netns", "delete"], check=False, capture_output=True)

    def run_printed(self, switch: Switch, form: str = "iproute2") -> None:
        """Run the commands that are printed for a switch: twice, since they may be repeated."""
        lines = [line.removeprefix("! $ ") for line in srv6_plan.text(self.tree, [switch], form, "eth{port}")]
        script = "\n".join(line for line in lines if form == "iproute2" or line.startswith(("sysctl", "ip link", "[ ", "ip -6", "nft")))
        for _ in range(2):
            self.run(switch, "sh", "-euc", script)

    def run(self, node: Host | Switch, *command: str) -> str:
        done = subprocess.run(["ip", "netns", "exec", self.tree.name(node), *command], check=False, text=True, capture_output=True)
        assert done.returncode == 0, (self.tree.name(node), done.stderr)
        return done.stdout

    def _cables(self) -> Iterator[str]:
        for lower, upper in self.tree.links():
            ports = self.tree.port(lower, upper), self.tree.port(upper, lower)
            names = self.tree.name(lower), self.tree.name(upper)
            yield f"link add name eth{ports[0]} netns {names[0]} type veth peer name eth{ports[1]} netns {names[1]}"

    # -- packets --------------------------------------------------------------------------------------------------------

    def send(self, src: Host, to: IPv6Address, inner: IPv4Address | IPv6Address, payload: bytes) -> None:
        """Send a datagram from a host's address in an outer header, as an agent does: H.Encaps.Red, the inner one unchanged."""
        family = next(family for family in self.tree.families if family.number == inner.version)
        datagram = udp(family.address(src), inner, payload)
        outer = struct.pack("!IHBB", 6 << 28, len(datagram), 4 if inner.version == 4 else 41, 64)
        edge = self.tree.edge_of(src)
        frame = self._mac(edge, self.tree.port(edge, src)) + self._mac(src, 0) + b"\x86\xdd" + outer
        with inside(f"/run/netns/{self.tree.name(src)}"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind(("eth0", 0))
            sender.send(frame + IPv6Address("2001:db8::1").packed + to.packed + datagram)

    def take(self, payload: bytes) -> tuple[list[Sighting], list[tuple[Host, int]]]:
        """Return where packets with a payload were received with an outer header, in order, and by which hosts without one, and its version."""
        found: list[tuple[float, Any]] = []
        deadline = time.monotonic() + TAKE_SECONDS
        while (rest := deadline - time.monotonic()) > 0:
            for tap in select.select([*self._taps], [], [], rest)[0]:
                frame, (interface, _, kind, *_) = tap.recvfrom(1 << 16)
                node, number = self._taps[tap], int(interface.removeprefix("eth") or 0) if interface.startswith("eth") else -1
                if kind == OUTGOING or number < 0 or not frame.endswith(payload):
                    continue
                if isinstance(node, Switch) and frame[12:14] == b"\x86\xdd" and frame[20] in INSIDE:
                    found.append((len(found), Sighting(self.tree.name(node), number, IPv6Address(frame[38:54]))))
                elif isinstance(node, Host):
                    version = frame[14] >> 4
                    assert udp_is_right(frame[14:]), frame.hex()
                    found.append((len(found), (node, version)))
        return [each for _, each in found if isinstance(each, Sighting)], [each for _, each in found if not isinstance(each, Sighting)]

    def _mac(self, node: Host | Switch, port: int) -> bytes:
        (link,) = json.loads(self.run(node, "ip", "-j", "link", "show", f"eth{port}"))
        return bytes.fromhex(link["address"].replace(":", ""))


def udp(src: Any, dst: Any, payload: bytes) -> bytes:
    """Return an IP packet of either version with a datagram, and all checksums."""
    header = struct.pack("!HHHH", PORT, PORT, 8 + len(payload), 0)
    pseudo = src.packed + dst.packed + struct.pack("!IxxxB", 8 + len(payload), 17)
    header = header[:6] + struct.pack("!H", checksum(pseudo + header + payload) or 0xFFFF)
    if src.version == 6:
        return struct.pack("!IHBB", 6 << 28, len(header + payload), 17, 64) + src.packed + dst.packed + header + payload
    start = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 7, 0x4000, 64, 17, 0) + src.packed + dst.packed
    return start[:10] + struct.pack("!H", checksum(start)) + start[12:] + header + payload


def udp_is_right(packet: bytes) -> bool:
    if packet[0] >> 4 == 6:
        ends, rest = packet[8:40], packet[40:]
    else:
        ends, rest = packet[12:20], packet[20:]
    return checksum(ends + struct.pack("!IxxxB", len(rest), 17) + rest) in (0, 0xFFFF)
