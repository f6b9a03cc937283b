"""Frames that a hostile root on a host may send, from a seed: everything that a switch or a controller might take for its own."""

import random
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address

from sopa_ryu.southbound import lldp
from tests.helpers.frames import checksum
from topologies import FatTree, Host
from topologies.structure import BFD_MAC, GATEWAY_MAC

BFD_UDP = (3784, 3785, 4784, 6784, 7784, 7785)
LINK_LOCAL = tuple(f"01:80:c2:00:00:{last:02x}" for last in (0x00, 0x01, 0x02, 0x03, 0x0E, 0x21))
ETHERTYPES = (0x8902, 0x8809, 0x8847, 0x88A8, 0x2000, 0x8809)  # CFM, LACP, MPLS, QinQ, CDP, link OAM


class Hostile:
    """A host's root with a raw socket; its IPv4 source address is its own, or no switch would look at more of the frames."""

    def __init__(self, tree: FatTree, host: Host, seed: int) -> None:
        self._tree, self._host, drawn = tree, host, random.Random(seed)
        self._choose, self._below, self._bytes = drawn.choice, drawn.randrange, drawn.randbytes

    def frames(self, count: int) -> Iterator[bytes]:
        """Yield frames of all kinds in random order, of BFD the most."""
        others = self._bfd_fragment, self._bfd_ipv6, self._ethertype, self._probe, self._to_a_switch, self._arp
        for _ in range(count):
            yield self._choose((*[self._bfd] * 3, *others, self._link_local))()

    def _bfd(self) -> bytes:
        return self._ip(self._control(), ttl=self._choose((255, 255, 255, 64, 1)))

    def _bfd_fragment(self) -> bytes:
        """Return a first fragment of any length, or a later one that begins like a BFD packet."""
        whole = self._control(bytes(40))
        offset = self._choose((0, 0, 0, 1, 3, 185))
        more = 0x2000 if offset == 0 else self._choose((0, 0x2000))
        return self._ip(whole[: self._choose((8, 16, 32, len(whole) // 8 * 8))], fragment=more | offset, ttl=255)

    def _bfd_ipv6(self) -> bytes:
        payload = self._control()
        return self._ethernet(0x86DD, struct.pack("!IHBB", 6 << 28, len(payload), 17, 255) + self._bytes(32) + payload)

    def _ethertype(self) -> bytes:
        to = self._choose((f"01:80:c2:00:00:3{self._below(16):x}", "01:23:20:00:00:3f", *LINK_LOCAL))
        return self._ethernet(self._choose(ETHERTYPES), self._bytes(self._below(20, 90)), to)

    def _probe(self) -> bytes:
        """An LLDP probe as some switch would send it, or another LLDP frame."""
        switch = self._choose(list(self._tree.switches()))
        frame = lldp.frame(self._tree.dpid(switch), self._below(1, self._tree.k + 1))
        return self._choose((frame, frame, frame[:14] + self._bytes(60)))

    def _to_a_switch(self) -> bytes:
        k, port = self._tree.k, self._choose((6653, 6633, 6640, 4789, 6081, 22, 179))
        edge, core = f"10.{self._below(k)}.{self._below(k)}.1", f"10.{k}.{self._below(k)}.{self._below(1, k)}"
        to = self._choose((edge, core, "192.168.0.1", "192.0.2.1", "127.0.0.1"))
        if port in (4789, 6081):
            return self._ip(self._udp(port, self._bytes(60)), to=to)
        return self._ip(struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 5 << 4, 2, 1024, 0, 0), to=to, protocol=6)

    def _link_local(self) -> bytes:
        return self._ip(self._udp(9, b"x" * 20), eth_dst=self._choose(LINK_LOCAL))

    def _arp(self) -> bytes:
        """An announcement, a probe, an answer nobody asked for, or a request, from ever new Ethernet addresses."""
        own, other = self._tree.ip(self._host).packed, IPv4Address(f"10.0.0.{self._below(256)}").packed
        sender = b"\x02" + self._bytes(5) + self._choose((own, own, other, bytes(4)))
        body = struct.pack("!HHBBH", 1, 0x800, 6, 4, self._choose((1, 1, 2))) + sender + bytes(6)
        return self._ethernet(0x0806, body + self._choose((own, other)), "ff:ff:ff:ff:ff:ff")

    def _control(self, more: bytes = b"") -> bytes:
        """A BFD control packet (RFC 5880, section 4.1) that says Down, Init, Up or AdminDown to whoever listens."""
        mine, theirs = self._below(1, 1 << 32, 2), self._choose((0, 0, self._below(1 << 32)))
        first = 1 << 5 | self._below(9), self._below(4) << 6, 3, 24
        packet = struct.pack("!BBBBIIIII", *first, mine, theirs, 100000, 100000, 0)
        return self._udp(self._choose(BFD_UDP), packet + more)

    def _udp(self, port: int, payload: bytes) -> bytes:
        return struct.pack("!HHHH", self._below(1024, 65536), port, 8 + len(payload), 0) + payload

    def _ip(
        self, payload: bytes, to: str = "", fragment: int = 0, ttl: int = 64, protocol: int = 17, eth_dst: str = ""
    ) -> bytes:
        """Return a packet to that address, or to a host, or to the address that Open vSwitch's own BFD uses."""
        options = self._choose((b"", b"", b"", b"\x9e\x04\x00\x00", bytes(8)))
        host = self._tree.ip(self._choose(list(self._tree.hosts())))
        destination = IPv4Address(to or self._choose((host, host, host, host, "169.254.1.0")))
        first, size = 4 << 4 | 5 + len(options) // 4, 20 + len(options) + len(payload)
        header = struct.pack("!BBHHHBBH", first, self._choose((0, 0xC0)), size, 7, fragment, ttl, protocol, 0)
        header += self._tree.ip(self._host).packed + destination.packed + options
        header = header[:10] + checksum(header).to_bytes(2) + header[12:]
        return self._ethernet(0x0800, header + payload, eth_dst)

    def _ethernet(self, ethertype: int, payload: bytes, eth_dst: str = "") -> bytes:
        others = GATEWAY_MAC, GATEWAY_MAC, BFD_MAC, BFD_MAC, "00:23:20:00:00:01", "ff:ff:ff:ff:ff:ff"
        up = f"02:53:9e:04:0{self._below(self._tree.half)}:0{self._below(self._tree.half)}"
        source = self._choose((self._tree.mac(self._host), up, GATEWAY_MAC, BFD_MAC))
        addresses = "".join(str(its) for its in (eth_dst or self._choose(others), source)).replace(":", "")
        tag = self._choose((b"", b"", b"", b"\x81\x00\x00\x07", b"\x81\x00\xe0\x00"))
        return bytes.fromhex(addresses) + tag + struct.pack("!H", ethertype) + payload.ljust(46, b"\0")
