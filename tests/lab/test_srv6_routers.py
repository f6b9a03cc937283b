"""The lab's Linux routers, which have run what `sopa fabric srv6` prints: packets go as the model of `srv6_routers` says."""

import json
import mmap
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from experiments.emulation.routers.srv6_lab import Srv6Lab
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.frames import checksum, datagram
from tests.helpers.sopa_lab import in_isolation
from tests.helpers.srv6_routers import Routers, Sighting
from tests.helpers.veth import raw_socket, run
from tests.helpers.waiting import eventually
from topologies import Clos, FatTree, Host, Switch
from topologies.identity import PREFIX6
from topologies.srv6 import source_prefix, usid_list

PORT = 9701
OUTER = (4, 41)
"""The next header of an outer one: IP inside, of either version."""
ICMP6, SECRET = 58, 0x1234ABCD5678
CS6 = 48
"""The DSCP of what leaves a queue first (RFC 4594)."""
CLOSED = "h0_0_3"
WAYS_OUT = "h3_1_2", "h3_1_3"
TREE = Clos(**{**FatTree(4).document(), "no_label": [CLOSED], "gateways": WAYS_OUT, "prefix6": str(PREFIX6)})
"""k=4, both families, a host that may not choose paths, and two that lead out."""
OUTSIDE = {4: IPv4Address("198.51.100.7"), 6: IPv6Address("2001:db8::7")}
STRANGE = IPv6Address("fcbb:bb00:4000:8003:1080::")
"""Over a core switch that a0_0 has no cable to."""


class Tap:
    """What a node receives, copied as it comes: a router shifts uSIDs in place, also in what other sockets have not read yet."""

    _SOL_PACKET, _PACKET_RX_RING = 263, 5
    _SIZE, _COUNT, _OUTGOING = 2048, 256, 4

    def __init__(self, name: str, netns: str) -> None:
        self._name, self._next = name, 0
        with inside(netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self._ports = {index: int(its.rpartition("-eth")[2]) for index, its in socket.if_nameindex() if "-eth" in its}
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


class Come(NamedTuple):
    """Where a packet came with an outer header; to which hosts without, by which version; and ICMPv6 errors that came to hosts.

    Of an error: its source, its destination, and the destination of what it is about.
    """

    seen: list[Sighting]
    received: list[tuple[Host, int]]
    errors: list[tuple[Host, IPv6Address, IPv6Address, IPv6Address]]


class Packets:
    """Packets of hosts that answer nothing, and what becomes of them."""

    def __init__(self, lab: Srv6Lab, stack: ExitStack) -> None:
        self._lab = lab
        for host in TREE.hosts():
            for family in ("-4", "-6"):
                self.run(host, f"ip {family} route flush table main")
        self._taps = [Tap(TREE.name(node), lab.netns(node)) for node in (*TREE.switches(), *TREE.hosts())]
        for tap in self._taps:
            stack.callback(tap.close)
        self._frames: list[tuple[tuple[int, int], str, int, bytes]] = []

    def run(self, node: Host | Switch, command: str) -> str:
        return run(f"nsenter --net={self._lab.netns(node)} {command}")

    def send(self, src: Host, to: IPv6Address, inner: IPv4Address | IPv6Address, payload: bytes, header: int | None = None) -> None:
        """Send a datagram from a host's address in an outer header, as an agent does: H.Encaps.Red, the inner one unchanged.

        Or with another next header, as no agent does.
        """
        family = next(family for family in TREE.families if family.number == inner.version)
        packet = datagram(family.address(src), inner, PORT, PORT, payload)
        outer = struct.pack("!IHBB", 6 << 28, len(packet), header or (4 if inner.version == 4 else 41), 64)
        edge = TREE.edge_of(src)
        [link] = json.loads(self.run(edge, f"ip -j link show {self._lab.interface(edge, TREE.port(edge, src))}"))
        macs = bytes.fromhex((link["address"] + TREE.mac(src)).replace(":", ""))
        with raw_socket(self._lab.netns(src), self._lab.interface(src, 0), 0) as sender:
            sender.send(macs + b"\x86\xdd" + outer + source_prefix(TREE, src)[SECRET].packed + to.packed + packet)

    def come(self, payload: bytes) -> Come:
        """Return what has become of a packet with a payload so far."""
        for tap in self._taps:
            self._frames += tap.take()
        seen, received, errors = [], [], []
        for _, name, port, frame in sorted(each for each in self._frames if each[-1].endswith(payload)):
            if name.startswith("h") and frame[12:14] == b"\x86\xdd" and frame[20] == ICMP6:
                assert int.from_bytes(frame[14:16]) >> 6 == 6 << 6 | CS6, frame.hex()
                errors.append((TREE.host(name), *map(IPv6Address, (frame[22:38], frame[38:54], frame[86:102]))))
            elif name.startswith("h"):
                assert is_right(frame[14:]), (name, frame.hex())
                received.append((TREE.host(name), frame[14] >> 4))
            elif frame[12:14] == b"\x86\xdd" and frame[20] in OUTER:
                seen.append(Sighting(name, port, IPv6Address(frame[38:54])))
        return Come(seen, received, errors)


def is_right(packet: bytes) -> bool:
    ends, rest = (packet[8:40], packet[40:]) if packet[0] >> 4 == 6 else (packet[12:20], packet[20:])
    return checksum(ends + struct.pack("!IxxxB", len(rest), 17) + rest) in (0, 0xFFFF)


@in_isolation
def test_packets_follow_the_plan() -> None:
    src, closed, model = TREE.host("h0_0_2"), TREE.host(CLOSED), Routers(TREE)
    here = TREE.edge_of(src)
    asked: list[tuple[Host, IPv6Address, Host]] = []
    for dst in map(TREE.host, ("h2_1_3", "h0_1_2", CLOSED)):
        asked += [(src, usid_list(TREE, here, TREE.edge_of(dst), path.up), dst) for path in TREE.candidate_paths(src, dst)]
    asked += [(src, usid_list(TREE, here, here, up), src) for up in ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))]
    own, router, left = source_prefix(TREE, src)[SECRET], IPv6Address("fcbb:bb00:4000::1"), IPv6Address("fcbb:bb00:8003:1080::")
    nowhere = [(src, STRANGE, TREE.host("h2_0_2")), (closed, asked[0][1], asked[0][2])]
    with Srv6Lab(TREE, 100.0, 100, Path("/run"), {}) as lab, ExitStack() as stack:
        packets = Packets(lab, stack)
        tentative = "".join(packets.run(router, "ip -o -6 address show tentative") for router in TREE.switches())
        assert "-eth" not in tentative  # there a router would not ask for a host's address, and drop the first packet
        expected: dict[bytes, Come] = {}
        for number, (sender, to, dst) in enumerate((*asked, *nowhere)):
            for family in TREE.families:
                payload = b"%03d %d SOPA" % (number, family.number)
                packets.send(sender, to, family.address(dst), payload)
                way = model.follow(sender, to, family.address(dst))
                received = [(dst, family.number)] if number < len(asked) else []
                expected[payload] = Come([*way.seen], received, [(src, router, own, left)] if to == STRANGE else [])
                eventually(lambda payload=payload: packets.come(payload), expected[payload])
        to = usid_list(TREE, here, TREE.switch("e3_1"), (1, 1))
        for version, outside in OUTSIDE.items():
            packets.send(src, to, outside, b"%d outside" % version)
            ((leads_out, its),) = eventually(lambda version=version: packets.come(b"%d outside" % version).received)
            assert (TREE.name(leads_out) in WAYS_OUT, its) == (True, version)
        packets.send(src, source_prefix(TREE, closed)[SECRET], TREE.ip(closed), b"forged", ICMP6)
        # what should not come would be there before a later packet that has further to go
        packets.send(src, asked[0][1], TREE.ip(asked[0][2]), b"later")
        eventually(lambda: packets.come(b"later").received)
        assert packets.come(b"forged") == ([], [], [])
        assert {payload: packets.come(payload) for payload in expected} == expected
        assert "counter packets 2 " in packets.run(here, "nft list table inet sopa_srv6")
        assert re.search(r"Ip6InNoRoutes\s+2\n", packets.run(TREE.switch("a0_0"), "cat /proc/net/snmp6"))
