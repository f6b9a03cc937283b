"""A fabric of Linux routers in network namespaces that have run what `sopa fabric srv6` prints, and nothing else."""

import json
import mmap
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.frames import checksum
from tests.helpers.srv6_routers import Sighting
from topologies import Clos, Host, Switch, srv6_plan
from topologies.lab.batch_net import run_batch
from topologies.srv6 import source_prefix

PORT = 9701
TAKE_SECONDS = 0.15
OUTER = (4, 41)
ICMP6, SECRET = 58, 0x1234ABCD5678
"""The next header of an outer one: IP inside, of either version."""


class Tap:
    """What a node receives, copied as it comes: a router shifts uSIDs in place, also in what other sockets have not read yet."""

    _SOL_PACKET, _PACKET_RX_RING = 263, 5
    _SIZE, _COUNT, _OUTGOING = 2048, 256, 4

    def __init__(self, name: str) -> None:
        self._name, self._next = name, 0
        with inside(f"/run/netns/{name}"):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self._ports = {index: int(name[3:]) for index, name in socket.if_nameindex() if name.startswith("eth")}
        size = self._SIZE * self._COUNT
        self._socket.setsockopt(self._SOL_PACKET, self._PACKET_RX_RING, struct.pack("IIII", size, 1, self._SIZE, self._COUNT))
        self._ring = mmap.mmap(self._socket.fileno(), size)

    def take(self) -> Iterator[tuple[tuple[int, int], str, int, bytes]]:
        """Yield when each frame came, to which node, by which port, and the frame (packet(7), "TPACKET_V1")."""
        while True:
            at = self._next * self._SIZE
            status, _, length, begin, _, seconds, micros = struct.unpack_from("@LIIHHII", self._ring, at)
            if not status & 1:
                return
            index, kind = struct.unpack_from("@iHB", self._ring, at + 32 + 4)[::2]
            if kind != self._OUTGOING and index in self._ports:
                yield (seconds, micros), self._name, self._ports[index], self._ring[at + begin : at + begin + length]
            struct.pack_into("@L", self._ring, at, 0)
            self._next = (self._next + 1) % self._COUNT

    def close(self) -> None:
        self._ring.close()
        self._socket.close()


class Srv6Lab:
    """Enter it inside `isolated`; ``tell`` configures a router, by default with the printed commands."""

    def __init__(self, tree: Clos, tell: Callable[[Switch], None] | None = None) -> None:
        self.tree, self._tell = tree, tell or self.run_printed
        self._taps: list[Tap] = []
        self.errors: list[tuple[Host, IPv6Address, IPv6Address, IPv6Address]] = []
        """ICMPv6 errors that have come to hosts: source, destination, and the destination of what they are about."""

    def __enter__(self) -> "Srv6Lab":
        nodes: list[Host | Switch] = [*self.tree.switches(), *self.tree.hosts()]
        names = [self.tree.name(node) for node in nodes]
        run_batch(["ip", "-batch", "-"], [f"netns add {name}" for name in names])
        run_batch(["ip", "-batch", "-"], [*self._cables()])
        for node, name in zip(nodes, names, strict=True):
            ports = self.tree.ports(node) if isinstance(node, Switch) else {0: None}
            lines = ["link set lo up", *(f"link set eth{port} up" for port in ports)]
            if isinstance(node, Host):
                lines += [
                    f"address add {family.text(node)} dev eth0{' nodad' if family.number == 6 else ''}"
                    for family in self.tree.families
                ]
            run_batch(["ip", "-netns", name, "-batch", "-"], lines)
        for switch in self.tree.switches():
            self._tell(switch)
        self._taps = [Tap(name) for name in names]
        return self

    def __exit__(self, *_exception: object) -> None:
        for tap in self._taps:
            tap.close()
        subprocess.run(["ip", "-all", "netns", "delete"], check=False, capture_output=True)

    def run_printed(self, switch: Switch, form: str = "iproute2") -> None:
        """Run the commands that are printed for a switch: twice, since they may be repeated."""
        lines = [line.removeprefix("! $ ") for line in srv6_plan.text(self.tree, [switch], form, "eth{port}")]
        script = "\n".join(
            line for line in lines if form == "iproute2" or line.startswith(("sysctl", "ip link", "[ ", "ip -6", "nft"))
        )
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

    def send(self, src: Host, to: IPv6Address, inner: IPv4Address | IPv6Address, payload: bytes, header: int | None = None) -> None:
        """Send a datagram from a host's address in an outer header, as an agent does: H.Encaps.Red, the inner one unchanged.

        Or with another next header, as no agent does.
        """
        family = next(family for family in self.tree.families if family.number == inner.version)
        datagram = udp(family.address(src), inner, payload)
        outer = struct.pack("!IHBB", 6 << 28, len(datagram), header or (4 if inner.version == 4 else 41), 64)
        edge = self.tree.edge_of(src)
        frame = self._mac(edge, self.tree.port(edge, src)) + self._mac(src, 0) + b"\x86\xdd" + outer
        with inside(f"/run/netns/{self.tree.name(src)}"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind(("eth0", 0))
            sender.send(frame + source_prefix(self.tree, src)[SECRET].packed + to.packed + datagram)

    def take(self, payload: bytes) -> tuple[list[Sighting], list[tuple[Host, int]]]:
        """Return where a packet with a payload came with an outer header, and to which hosts without, by which version."""
        time.sleep(TAKE_SECONDS)
        frames = sorted(each for tap in self._taps for each in tap.take() if each[-1].endswith(payload))
        seen, received = [], []
        for _, name, port, frame in frames:
            if name.startswith("h") and frame[12:14] == b"\x86\xdd" and frame[20] == ICMP6:
                self.errors.append((self.tree.host(name), *map(IPv6Address, (frame[22:38], frame[38:54], frame[86:102]))))
            elif name.startswith("h"):
                assert is_right(frame[14:]), (name, frame.hex())
                received.append((self.tree.host(name), frame[14] >> 4))
            elif frame[12:14] == b"\x86\xdd" and frame[20] in OUTER:
                seen.append(Sighting(name, port, IPv6Address(frame[38:54])))
        return seen, received

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


def is_right(packet: bytes) -> bool:
    if packet[0] >> 4 == 6:
        ends, rest = packet[8:40], packet[40:]
    else:
        ends, rest = packet[12:20], packet[20:]
    return checksum(ends + struct.pack("!IxxxB", len(rest), 17) + rest) in (0, 0xFFFF)
