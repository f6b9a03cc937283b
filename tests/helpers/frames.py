"""Frames, byte by byte, and small path tables."""

import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from sopa_ryu.agent.paths.path_table import PARAMETERS, Label, PathTable, Policy

ETHERNET = bytes.fromhex("02000000000102000a000002")
PREFIX = IPv6Network("fd53:4f50:4100::/48")
HERE6, FAR6 = "fd53:4f50:4100::2", "fd53:4f50:4100:201::3"
HERE, FAR, NEAR, SAME_RACK = "10.0.0.2", "10.2.1.3", "10.0.1.2", "10.0.0.3"
TCP, UDP, ICMP, SCTP = 6, 17, 1, 132

# k=4, interleaved: the first hop changes on every packet
INTER_POD: tuple[Label, ...] = ((0, 0), (1, 0), (0, 1), (1, 1))
INTER_RACK: tuple[Label, ...] = ((0, 0xFF), (1, 0xFF))
INTRA_RACK: tuple[Label, ...] = ((0xFF, 0xFF),)


def table(*, seed: int = 1, policy: Policy = Policy.ROUND_ROBIN, inter_pod: tuple[Label, ...] = INTER_POD) -> PathTable:
    """Return the path table of 10.0.0.2 at k=4, with any path set to other pods."""
    sets = (INTRA_RACK, INTER_RACK, inter_pod)
    destinations = (0, 1, 2, 2, 2, 2, 2, 2)
    return PathTable(IPv4Network("10.0.0.0/8"), 2, sets, destinations, seed, policy, PARAMETERS.get(policy, 0))


def ip(
    payload: bytes,
    *,
    src: str = HERE,
    dst: str = FAR,
    proto: int = TCP,
    options: bytes = b"",
    fragment: int = 0x4000,
    ident: int = 7,
    vlan: int | None = None,
) -> bytes:
    """An IPv4 packet in an Ethernet frame; ``fragment`` is the flags and the offset as they stand in the header."""
    ihl = 5 + len(options) // 4
    header = struct.pack("!BBHHHBBH", 0x40 | ihl, 0, ihl * 4 + len(payload), ident, fragment, 64, proto, 0)
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    addresses = IPv4Address(src).packed + IPv4Address(dst).packed
    return ETHERNET + tag + b"\x08\x00" + header + addresses + options + payload


def ip6(
    payload: bytes,
    *,
    src: str = HERE6,
    dst: str = FAR6,
    proto: int = TCP,
    headers: bytes = b"",
    flow_label: int = 0,
    vlan: int | None = None,
) -> bytes:
    """An IPv6 packet in an Ethernet frame; ``headers`` are its extension headers, whose first one's number is ``proto``."""
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    head = struct.pack("!IHBB", 6 << 28 | flow_label, len(headers + payload), proto, 64)
    return ETHERNET + tag + b"\x86\xdd" + head + IPv6Address(src).packed + IPv6Address(dst).packed + headers + payload


def ports(sport: int, dport: int, size: int = 40) -> bytes:
    """An L4 header that begins with two ports, and its payload."""
    return struct.pack("!HH", sport, dport).ljust(size, b"\x55")


def tcp(sport: int = 40000, dport: int = 5001, **fields: object) -> bytes:
    return ip(ports(sport, dport), **fields)  # type: ignore[arg-type]


def echo(ident: int, **fields: object) -> bytes:
    return ip(struct.pack("!BBHHH", 8, 0, 0, ident, 1), proto=ICMP, **fields)  # type: ignore[arg-type]


def summed(data: bytes) -> int:
    """The sum of 16-bit words, the last one filled up with a zero. In ones' complement it is a remainder of 65535."""
    return sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))


def checksum(data: bytes, total: int = 0) -> int:
    """The Internet checksum with which data, whose own is 0 so far, come to a sum: 0 is RFC 1071's; 0 if it is right already."""
    return (total - summed(data)) % 0xFFFF


def word_of(frame: bytes) -> Label | None:
    """The hop bytes in a frame's source address, or None if it carries no option word."""
    return (frame[10], frame[11]) if frame[6:10] == bytes.fromhex("02539e04") else None
