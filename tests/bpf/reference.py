"""Reference of the programs that read and write labels, in Python, from the documents alone (docs/wire-format.md, RFC 791).

Each function takes a frame and returns the frame that comes out, with the name of what is counted (empty for nothing).
"""

import struct
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple

from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, IPV6_KEY, FlowKey, flow_hash
from sopa_ryu.agent.paths.path_table import Label, PathTable
from tests.helpers.frames import checksum, summed

IPV4, IPV6, VLAN = b"\x08\x00", b"\x86\xdd", b"\x81\x00"
WITH_PORTS = (6, 17, 33, 132, 136)  # TCP, UDP, DCCP, SCTP, UDP-Lite
TCP = 6
ICMP, ECHOES = 1, (0, 8)
ICMPV6, ECHOES6, NEIGHBOURS = 58, (128, 129), range(133, 138)
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, OPTIONS = 0, 43, 44, 51, 60
MOST_HEADERS = 8
LINK, BASE, OPTION = 14, 20, b"\x9e\x04"
LABEL = b"\x02\x53\x9e\x04"

Result = tuple[bytes, str]


class Slot(NamedTuple):
    """The granted slot that it is: where its data goes, from which host, and by which path."""

    source: int
    destination: int
    hops: Label


class Header(NamedTuple):
    """The fields of an IPv4 header that matter here; ``header`` and ``total`` in bytes."""

    version: int
    header: int
    total: int
    fragment: int
    ident: int
    protocol: int
    src: int
    dst: int


def ipv4(packet: bytes) -> Header:
    first, _, total, ident, fragment, _, protocol, _, src, dst = struct.unpack_from("!BBHHHBBHII", packet)
    return Header(first >> 4, (first & 15) * 4, total, fragment & 0x3FFF, ident, protocol, src, dst)


def rebuilt(packet: bytes, length: int, options: bytes) -> bytes:
    """The packet with a header of other options. A right checksum is right again, and a wrong one wrong by as much."""
    old = packet[: ipv4(packet).header]
    head = bytes([0x40 | (BASE + len(options)) // 4, old[1]]) + struct.pack("!H", length) + old[4:10]
    addresses = old[12:BASE]
    check = checksum(head + b"\0\0" + addresses + options, summed(old))
    return head + struct.pack("!H", check) + addresses + options + packet[len(old) :]


def flow(packet: bytes, its: Header) -> FlowKey | None:
    """The flow of a packet; None if it ends before its ports."""
    if its.fragment:
        return FlowKey(its.src, its.dst, its.ident, its.protocol | FRAGMENT_KEY)
    payload = packet[its.header :]
    if its.protocol in (*WITH_PORTS, ICMP):
        if len(payload) < 8:
            return None
        if its.protocol != ICMP:
            return FlowKey(its.src, its.dst, struct.unpack_from("!I", payload)[0], its.protocol)
        if payload[0] in ECHOES:
            return FlowKey(its.src, its.dst, struct.unpack_from("!H", payload, 4)[0], ICMP)
    return FlowKey(its.src, its.dst, 0, its.protocol)


def flow6(packet: bytes, prefix: IPv6Network) -> tuple[FlowKey, bytes] | str:
    """The flow of an IPv6 packet, and what follows its headers; or why it gets no label."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return "malformed"
    src, dst = (IPv6Address(packet[at : at + 16]) for at in (8, 24))
    if dst.is_multicast or dst.is_link_local:
        return "outside"
    kind, rest = packet[6], packet[40:]
    label = int.from_bytes(packet[1:4], "big") & 0xFFFFF

    def key(protocol: int, ports: int) -> tuple[FlowKey, bytes]:
        return FlowKey.of(src, dst, protocol, ports >> 16, ports & 0xFFFF, prefix), rest

    for _ in range(MOST_HEADERS):
        if kind not in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, OPTIONS):
            break
        if len(rest) < 8:
            return "malformed"
        if kind == FRAGMENT and int.from_bytes(rest[2:4], "big") & 0xFFF9:
            return key(rest[0] | FRAGMENT_KEY, int.from_bytes(rest[4:8], "big"))
        length = {FRAGMENT: 8, AUTHENTICATION: 4 * (rest[1] + 2)}.get(kind, 8 * (rest[1] + 1))
        kind, rest = rest[0], rest[length:]
    if kind not in (*WITH_PORTS, ICMPV6):
        return key(kind, label)
    if len(rest) < 8:
        return "malformed"
    if kind != ICMPV6:
        return key(kind, int.from_bytes(rest[:4], "big"))
    if rest[0] in NEIGHBOURS:
        return "not_ipv4"
    return key(kind, int.from_bytes(rest[4:6], "big") if rest[0] in ECHOES6 else 0)


def _chosen(frame: bytes, table: PathTable, slot: Slot | None = None) -> tuple[FlowKey, Label, bytes] | str:
    """The flow, the label and the Ethernet destination of a packet, by a table that chooses by hash or by a slot; or why not."""
    at = _network(frame)
    if len(frame) < at:
        return "malformed"
    kind, packet = frame[at - 2 : at], frame[at:]
    if kind == IPV6 and table.prefix is not None:
        found = flow6(packet, table.prefix)
        if isinstance(found, str):
            return found
        key6, rest = found
        return (key6, slot.hops, frame[:6]) if slot and _is_data(key6, rest, slot) else _path(frame, key6, table)
    if kind != IPV4:
        return "not_ipv4"
    if len(packet) < BASE:
        return "malformed"
    its = ipv4(packet)
    if its.version != 4 or its.header < BASE or its.header > len(packet):
        return "malformed"
    key = flow(packet, its)
    if key is None:
        return "malformed"
    return (key, slot.hops, frame[:6]) if slot and _is_data(key, packet[its.header :], slot) else _path(frame, key, table)


def _is_data(key: FlowKey, segment: bytes, slot: Slot) -> bool:
    """Whether a packet takes a slot's path (docs/cfr.md, "Hosts"): it is between its hosts, and has TCP data."""
    if key.proto not in (TCP, TCP | IPV6_KEY) or (key.saddr, key.daddr) != (slot.source, slot.destination):
        return False
    return len(segment) > 12 and len(segment) > 4 * (segment[12] >> 4)


def _path(frame: bytes, key: FlowKey, table: PathTable) -> tuple[FlowKey, Label, bytes] | str:
    way = table.way_out(key)
    chosen = table.choose(key, 0)
    if chosen is None:
        return "outside" if key.leaves or table.candidates(key.daddr) is None else "no_path"
    return key, chosen, frame[:6] if way is None else way.mac


def _network(frame: bytes) -> int:
    """Where the packet begins, behind a VLAN tag if there is one."""
    return LINK + 4 * (frame[12:14] == VLAN)


def label(frame: bytes, table: PathTable, slot: Slot | None = None) -> Result:
    """tc egress, of the ``mac`` carrier."""
    found = _chosen(frame, table, slot)
    if isinstance(found, str):
        return frame, found
    _, hops, destination = found
    return destination + LABEL + bytes(hops) + frame[12:], "labelled"


def write(frame: bytes, table: PathTable, mtu: int) -> Result:
    """tc egress, of the ``option`` carrier."""
    found = _chosen(frame, table)
    if isinstance(found, str):
        return frame, found
    _, hops, destination = found
    packet = frame[_network(frame) :]
    its = ipv4(packet)
    if not its.header <= its.total <= len(packet):
        return frame, "malformed"
    if its.header == 60:
        return frame, "no_room"
    if its.total + 4 > mtu:
        return frame, "too_big"
    options = OPTION + bytes(hops) + packet[BASE : its.header]
    # the kernel keeps a tag outside the packet
    return destination + frame[6:12] + IPV4 + rebuilt(packet, its.total + 4, options), "labelled"


def wrap(frame: bytes, table: PathTable, mtu: int, secret: bytes, slot: Slot | None = None) -> Result:
    """tc egress, of the ``srv6`` carrier: RFC 8200, section 3, RFC 9800, section 6.1."""
    found = _chosen(frame, table, slot)
    if isinstance(found, str):
        return frame, found
    key, (up1, up2), destination = found
    packet = frame[LINK:]
    if frame[12:14] == VLAN:
        return frame, "not_ipv4"
    if len(packet) + 40 > mtu:
        return frame, "too_big"
    if up1 == 0xFF:
        return frame, "labelled"
    rack = destination[3:5] if key.leaves else packet[30:32] if frame[12:14] == IPV6 else packet[17:19]
    return encapsulated(frame, table, (up1, up2), rack, flow_hash(key, table.seed), secret), "labelled"


def timed(frame: bytes, table: PathTable, mtu: int, secret: bytes, slot: Slot | None) -> Result:
    """tc egress, with CFR, of the carrier of the table, ``mac`` or ``srv6``."""
    return label(frame, table, slot) if table.srv6 is None else wrap(frame, table, mtu, secret, slot)


def encapsulated(frame: bytes, table: PathTable, hops: Label, rack: bytes, hash_: int, secret: bytes) -> bytes:
    """Return a frame with an outer header that has the list of a path to a rack (its pod, its edge switch's number)."""
    assert table.srv6 is not None
    (block, own), (up1, up2), (pod, edge) = table.srv6, hops, rack
    packet, is_ipv6 = frame[LINK:], frame[12:14] == IPV6
    switches = [0x4000 | own.pod << 6 | up1, 0x8000 | up1 << 8 | up2, 0x1000 | pod << 6 | edge]
    if up2 == 0xFF:
        del switches[1]
    first = int.from_bytes(packet[:4], "big")
    traffic = (first >> 20 if is_ipv6 else first >> 16) & 0xFC
    flow_label = (first if is_ipv6 else hash_) & 0xFFFFF
    outer = struct.pack("!IHBB", 6 << 28 | traffic << 20 | flow_label, len(packet), 41 if is_ipv6 else 4, 64)
    source = struct.pack("!IHH", block, 0x1000 | own.pod << 6 | own.edge, own.number) + secret
    listed = (block.to_bytes(4, "big") + b"".join(switch.to_bytes(2, "big") for switch in switches)).ljust(16, b"\0")
    return frame[:12] + IPV6 + outer + source + listed + packet


def strip(frame: bytes) -> Result:
    """tc ingress."""
    packet = frame[LINK:]
    if frame[12:14] != IPV4 or len(packet) < BASE + 4:
        return frame, ""
    its = ipv4(packet)
    if its.version != 4 or its.header < BASE + 4 or packet[BASE : BASE + 2] != OPTION:
        return frame, ""
    if not its.header <= its.total <= len(packet):
        return frame, ""
    return frame[:LINK] + rebuilt(packet, its.total - 4, packet[BASE + 4 : its.header]), "stripped"


def parse(frame: bytes) -> Result:
    """XDP at the edge switch's port."""
    option, seen = _word(frame)
    if option is not None:
        return frame[:6] + LABEL[:2] + option + frame[12:], seen
    if frame[6:10] == LABEL:
        return frame[:8] + b"\0" + frame[9:], "forged"
    return frame, seen


def _word(frame: bytes) -> tuple[bytes | None, str]:
    at = _network(frame)
    packet = frame[at:]
    if frame[at - 2 : at] != IPV4 or len(packet) < BASE + 4:
        return None, "unlabelled"
    its = ipv4(packet)
    if its.version != 4 or its.header < BASE + 4 or packet[BASE] != OPTION[0]:
        return None, "unlabelled"
    if packet[BASE + 1] != OPTION[1] or not its.header <= its.total <= len(packet):
        return None, "malformed"
    up1, up2 = packet[BASE + 2 : BASE + 4]
    if up1 == 0xFF and up2 != 0xFF:
        return None, "reserved"
    return packet[BASE : BASE + 4], "believed"
