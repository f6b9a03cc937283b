"""Frames that a hostile root on a host may send, from a seed: everything that a switch or a controller might take for its own."""

from __future__ import annotations

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
ETHERTYPES = {"cfm": 0x8902, "lacp": 0x8809, "mpls": 0x8847, "qinq": 0x88A8, "cdp": 0x2000, "loam": 0x8809}


class Hostile:
    """A host's root with a raw socket."""

    def __init__(self, tree: FatTree, host: Host, seed: int) -> None:
        self.tree = tree
        self.host = host
        self._random = random.Random(seed)
        self._kinds = [
            self.bfd, self.bfd, self.bfd, self.bfd_fragment, self._bfd_ipv6, self._ethertype, self._probe,
            self._to_a_switch, self._link_local, self._arp,
        ]  # fmt: skip

    def frames(self, count: int) -> Iterator[bytes]:
        """Yield frames of all kinds in random order."""
        for _ in range(count):
            yield self._random.choice(self._kinds)()

    # -- kinds --------------------------------------------------------------------------------------------------------

    def bfd(self) -> bytes:
        """Return a whole BFD packet of some kind."""
        ttl = self._random.choice((255, 255, 255, 64, 1))
        return self._ip(self._udp(self._random.choice(BFD_UDP), self._control()), ttl=ttl)

    def bfd_fragment(self) -> bytes:
        """Return a first fragment of any length, or a later one that begins like a BFD packet."""
        whole = self._udp(self._random.choice(BFD_UDP), self._control() + bytes(40))
        offset = self._random.choice((0, 0, 0, 1, 3, 185))
        more = 0x2000 if offset == 0 or self._random.random() < 0.5 else 0
        size = self._random.choice((8, 16, 32, len(whole) // 8 * 8))
        return self._ip(whole[:size], fragment=more | offset, ttl=255)

    def _bfd_ipv6(self) -> bytes:
        payload = self._udp(self._random.choice(BFD_UDP), self._control())
        head = struct.pack("!IHBB", 6 << 28, len(payload), 17, 255) + self._random.randbytes(32)
        return self._ethernet(0x86DD, head + payload)

    def _ethertype(self) -> bytes:
        name = self._random.choice(sorted(ETHERTYPES))
        cfm_address = f"01:80:c2:00:00:3{self._random.randrange(16):x}"
        to = self._random.choice((cfm_address, "01:23:20:00:00:3f", *LINK_LOCAL))
        return self._ethernet(ETHERTYPES[name], self._random.randbytes(self._random.randrange(20, 90)), to)

    def _probe(self) -> bytes:
        """An LLDP probe as some switch would send it, or another LLDP frame."""
        switch = self._random.choice(list(self.tree.switches()))
        frame = lldp.frame(self.tree.dpid(switch), self._random.randint(1, self.tree.k))
        return frame if self._random.random() < 0.7 else frame[:14] + self._random.randbytes(60)

    def _to_a_switch(self) -> bytes:
        port = self._random.choice((6653, 6633, 6640, 4789, 6081, 22, 179))
        segment = struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 5 << 4, 2, 1024, 0, 0)
        k, draw = self.tree.k, self._random.randrange
        to = self._random.choice(
            (f"10.{draw(k)}.{draw(k)}.1", f"10.{k}.{draw(k)}.{draw(1, k)}", "192.168.0.1", "192.0.2.1", "127.0.0.1")
        )
        if port in (4789, 6081):
            return self._ip(self._udp(port, self._random.randbytes(60)), to=to)
        return self._ip(segment, to=to, protocol=6)

    def _link_local(self) -> bytes:
        return self._ip(self._udp(9, b"x" * 20), eth_dst=self._random.choice(LINK_LOCAL))

    def _arp(self) -> bytes:
        """An announcement, a probe, an answer nobody asked for, or a request, from ever new Ethernet addresses."""
        own, other = self.tree.ip(self.host).packed, IPv4Address(f"10.0.0.{self._random.randrange(256)}").packed
        sender = self._random.choice((own, own, other, bytes(4)))
        mac = b"\x02" + self._random.randbytes(5)
        body = struct.pack("!HHBBH", 1, 0x800, 6, 4, self._random.choice((1, 1, 2))) + mac + sender + bytes(6)
        return self._ethernet(0x0806, body + self._random.choice((own, other)), "ff:ff:ff:ff:ff:ff")

    # -- parts --------------------------------------------------------------------------------------------------------

    def _control(self) -> bytes:
        """A BFD control packet (RFC 5880, section 4.1) that says Down, Init, Up or AdminDown to whoever listens."""
        state, diagnostic = self._random.randrange(4), self._random.randrange(9)
        theirs = self._random.choice((0, 0, self._random.getrandbits(32)))
        mine = self._random.getrandbits(32) | 1
        return struct.pack("!BBBBIIIII", 1 << 5 | diagnostic, state << 6, 3, 24, mine, theirs, 100000, 100000, 0)

    def _udp(self, port: int, payload: bytes) -> bytes:
        return struct.pack("!HHHH", self._random.randrange(1024, 65536), port, 8 + len(payload), 0) + payload

    def _ip(
        self, payload: bytes, to: str = "", fragment: int = 0, ttl: int = 64, protocol: int = 17, eth_dst: str = ""
    ) -> bytes:
        tree, choose = self.tree, self._random.choice
        options = choose((b"", b"", b"", b"\x9e\x04\x00\x00", bytes(8)))
        destination = IPv4Address(to) if to else choose(self._destinations())
        first = 4 << 4 | 5 + len(options) // 4
        size = 20 + len(options) + len(payload)
        header = struct.pack("!BBHHHBBH", first, choose((0, 0xC0)), size, 7, fragment, ttl, protocol, 0)
        header += tree.ip(self.host).packed + destination.packed + options
        header = header[:10] + checksum(header).to_bytes(2) + header[12:]
        return self._ethernet(0x0800, header + payload, eth_dst)

    def _destinations(self) -> list[IPv4Address]:
        """Return hosts of the same rack, the same pod and others, and the address that Open vSwitch's own BFD uses."""
        hosts = list(self.tree.hosts())
        return [self.tree.ip(host) for host in self._random.sample(hosts, 4)] + [IPv4Address("169.254.1.0")]

    def _ethernet(self, ethertype: int, payload: bytes, eth_dst: str = "") -> bytes:
        choose = self._random.choice
        to = eth_dst or choose((GATEWAY_MAC, GATEWAY_MAC, BFD_MAC, BFD_MAC, "00:23:20:00:00:01", "ff:ff:ff:ff:ff:ff"))
        up = f"02:53:9e:04:0{self._random.randrange(self.tree.half)}:0{self._random.randrange(self.tree.half)}"
        source = choose((self.tree.mac(self.host), up, GATEWAY_MAC, BFD_MAC))
        tag = choose((b"", b"", b"", b"\x81\x00\x00\x07", b"\x81\x00\xe0\x00"))
        return _mac(to) + _mac(source) + tag + struct.pack("!H", ethertype) + payload.ljust(46, b"\0")


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
