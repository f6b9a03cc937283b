"""Frames, byte by byte, and small path tables."""

import struct
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from sopa_ryu.agent.paths.flow_hash import Address
from sopa_ryu.agent.paths.path_table import PARAMETERS, Label, PathTable, Policy
from topologies import Host

ETHERNET = bytes.fromhex("02000000000102000a000002")
PREFIX = IPv6Network("fd53:4f50:4100::/48")
HERE6, FAR6 = "fd53:4f50:4100::2", "fd53:4f50:4100:201::3"
HERE, FAR, NEAR, SAME_RACK = "10.0.0.2", "10.2.1.3", "10.0.1.2", "10.0.0.3"
TCP, UDP, ICMP, SCTP, ICMPV6 = 6, 17, 1, 132, 58
SKIPPED = {"hop-by-hop": (0, bytes(8)), "routing": (43, b"\0\2" + bytes(22)), "options": (60, b"\0\1" + bytes(14)),
           "authentication": (51, b"\0\4" + bytes(22)), "first fragment": (44, b"\0\0\0\1\0\0\0\7")}  # fmt: skip
LATER = (44, b"\0\0\0\x09\0\0\0\7")
"""Extension headers of IPv6, as `chained6` takes them."""

# k=4, interleaved: the first hop changes on every packet
INTER_POD: tuple[Label, ...] = ((0, 0), (1, 0), (0, 1), (1, 1))
INTER_RACK: tuple[Label, ...] = ((0, 0xFF), (1, 0xFF))
INTRA_RACK: tuple[Label, ...] = ((0xFF, 0xFF),)


def table(*, seed: int = 1, policy: Policy = Policy.ROUND_ROBIN, inter_pod: tuple[Label, ...] = INTER_POD) -> PathTable:
    """Return the path table of 10.0.0.2 at k=4, with any path set to other pods."""
    sets = (INTRA_RACK, INTER_RACK, inter_pod)
    destinations = (0, 1, 2, 2, 2, 2, 2, 2)
    parameter = PARAMETERS.get(policy, 0)
    return PathTable(IPv4Network("10.0.0.0/8"), 2, sets, destinations, seed, policy, parameter, srv6=(0xFCBBBB00, Host(0, 0, 2)))


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


def chained6(
    payload: bytes,
    proto: int = UDP,
    *headers: tuple[int, bytes],
    src: object = HERE6,
    dst: object = "2001:db8::7",
    hops: int = 64,
    length: int | None = None,
) -> bytes:
    """An IPv6 packet in an Ethernet frame, with extension headers: the kind and the bytes of each. It may say another length."""
    kinds = [kind for kind, _ in headers] + [proto]
    rest = b"".join(bytes([following]) + data[1:] for following, (_, data) in zip(kinds[1:], headers, strict=True)) + payload
    addresses = IPv6Address(str(src)).packed + IPv6Address(str(dst)).packed
    said = len(rest) if length is None else length
    return ETHERNET + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, said, kinds[0], hops) + addresses + rest


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


def label_of(frame: bytes) -> Label | None:
    """The label of an IPv4 frame, by whichever carrier: in its source address, its first option, or its uSID list."""
    if frame[38:42] == bytes.fromhex("fcbbbb00"):
        return frame[43] & 63, frame[45] if frame[44] & 0x80 else 0xFF
    is_option = frame[14] > 0x45 and frame[34:36] == b"\x9e\x04"
    return (frame[36], frame[37]) if is_option else word_of(frame)


def datagram(src: Address, dst: Address, sport: int, dport: int, payload: bytes) -> bytes:
    """An IP packet of either version with a UDP datagram, and right checksums."""
    header = struct.pack("!HHH", sport, dport, 8 + len(payload))
    pseudo = src.packed + dst.packed + struct.pack("!IxxxB", 8 + len(payload), UDP)
    header += struct.pack("!H", checksum(pseudo + header + payload) or 0xFFFF)
    if src.version == 6:
        return struct.pack("!IHBB", 6 << 28, len(header + payload), UDP, 64) + src.packed + dst.packed + header + payload
    start = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 7, 0x4000, 64, UDP, 0) + src.packed + dst.packed
    return start[:10] + struct.pack("!H", checksum(start)) + start[12:] + header + payload
