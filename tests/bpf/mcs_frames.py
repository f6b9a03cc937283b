"""MCS on frames, byte by byte: what tc egress and tc ingress make of a frame, by `mcs_reference.Host`."""

import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from flowrules.label import UNUSED
from sopa_ryu.agent.paths.flow_hash import TO_OUTSIDE, Address, FlowKey, flow_hash, scaled
from sopa_ryu.agent.paths.path_table import PathTable
from tests.bpf.mcs_reference import Block, Host, Key, Mco, NoRoom, NoSuchConnection, Room, Segment, Verdict
from tests.bpf.reference import encapsulated
from tests.helpers.frames import PREFIX, summed

LINK, IP_BASE, IP6_BASE, TCP_BASE, TCP = 14, 20, 40, 20, 6
L4 = LINK + IP_BASE
"""Where the TCP header of IPv4 begins."""
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
FRAGMENT_BITS = 0x3FFF
FIN, SYN, RST, ACK = 1, 2, 4, 0x10
RESERVED = 0x08  # of the TCP header's byte 12
MAX_OPTIONS = 40
END, NOP, SCALE = 0, 1, 3
SACK_BEGINS, TIMESTAMPS, BLOCK = bytes([NOP, NOP, 5]), bytes([NOP, NOP, 8, 10]), 8
KIND, MCO_BYTES, VERSION = 253, 16, 1
PLACEHOLDER = bytes([KIND, MCO_BYTES]).ljust(MCO_BYTES, b"\0")
OPTION = struct.Struct("!BBHHBBII")
ECN, ECT_0, CE = 3, 2, 3
CARRIER = bytes.fromhex("02539e04")


class Kind(Enum):
    PATHS = 0
    PORTS = 1


def option(its: Mco, version: int = VERSION) -> bytes:
    return OPTION.pack(KIND, MCO_BYTES, its.rcb, its.rb, its.rp, version << 4 | its.channel, its.gsn, its.lsn)


def mco_of(header: bytes) -> tuple[Mco, int] | None:
    """Return the MCO and the version at the end of a TCP header; None if there is none."""
    if len(header) < TCP_BASE + MCO_BYTES or header[-MCO_BYTES:][:2] != PLACEHOLDER[:2]:
        return None
    _, _, rcb, rb, rp, channel, gsn, lsn = OPTION.unpack(header[-MCO_BYTES:])
    return Mco(rcb, rb, rp, channel & 15, gsn, lsn), channel >> 4


def window_scale(header: bytes) -> int:
    """Return the shift count that a SYN's TCP header announces, -1 if none."""
    at = TCP_BASE
    while at + 3 <= len(header) and header[at] != END:
        if header[at] == NOP:
            at += 1
            continue
        if header[at : at + 2] == bytes([SCALE, 3]):
            return header[at + 2]
        if header[at + 1] < 2:
            break
        at += header[at + 1]
    return -1


def sack_in(header: bytes) -> slice | None:
    """Return the place of a SACK option and the two NOPs before it, where Linux writes it: first, or behind the timestamps."""
    at = TCP_BASE
    if header[at : at + 4] == TIMESTAMPS:
        at += 12
    place = slice(at, at + 2 + header[at + 3] if len(header) > at + 3 else at)
    if header[at : at + 3] != SACK_BEGINS or place.stop > len(header):
        return None
    return place if place.stop - place.start in (12, 20, 28, 36) else None


def blocks_of(header: bytes, place: slice | None) -> tuple[Block, ...]:
    """Return the blocks of a SACK option (RFC 2018)."""
    return () if place is None else tuple(struct.iter_unpack("!II", header[place.start + 4 : place.stop]))


def changed_word(frame: bytearray, check: int, at: int, value: int) -> None:
    """Write a 16-bit word, and change the checksum at ``check`` accordingly (RFC 1624)."""
    (old,) = struct.unpack_from("!H", frame, at)
    struct.pack_into("!H", frame, at, value)
    changed_sum(frame, check, 0xFFFF - old + value)


def changed_sum(frame: bytearray, check: int, difference: int) -> None:
    """Change a checksum after what it covers has changed by a sum; it is never left as 0xffff, the other form of 0."""
    (was,) = struct.unpack_from("!H", frame, check)
    struct.pack_into("!H", frame, check, 0xFFFF - ((0xFFFF - was + difference) % 0xFFFF or 0xFFFF))


def l4_of(frame: bytes) -> int:
    return LINK + (IP6_BASE if frame[LINK - 2 : LINK] == IPV6 else IP_BASE)


def tos_of(frame: bytes) -> int:
    """Return the type of service, which is IPv6's traffic class."""
    first: int = struct.unpack_from("!H", frame, LINK)[0]
    return first >> 4 & 0xFF if frame[LINK - 2 : LINK] == IPV6 else first & 0xFF


def set_tos(frame: bytearray, tos: int) -> None:
    """Write it into a frame that has none; checksums stay as they are."""
    shift = 4 if frame[LINK - 2 : LINK] == IPV6 else 0
    frame[LINK : LINK + 2] = (int.from_bytes(frame[LINK : LINK + 2], "big") | tos << shift).to_bytes(2, "big")


@dataclass
class Parsed:
    """An unfragmented TCP segment behind an IP header without options or extension headers, in a frame without a VLAN tag."""

    l4: int
    flow: FlowKey
    back: FlowKey
    """The flow in the other direction."""
    sport: int
    dport: int
    header: bytes
    scattered: bool
    """The reserved bit is set."""
    sack: slice | None
    segment: Segment

    @property
    def end(self) -> int:
        return self.l4 + len(self.header)

    def key(self, outwards: bool) -> Key:
        """Return the connection, as this host has it; with IPv6 a host outside the fabric is 0."""
        flow, ports = (self.flow, (self.sport, self.dport)) if outwards else (self.back, (self.dport, self.sport))
        return Key(flow.saddr, 0 if flow.proto & TO_OUTSIDE else flow.daddr, *ports, flow.proto & ~TO_OUTSIDE)


def _segment_in(frame: bytes, gso_size: int, prefix: IPv6Network | None) -> tuple[Address, Address, bytes] | None:
    """Return the addresses of a packet and the TCP segment in it, without padding; None for any other packet."""
    kind, packet = frame[LINK - 2 : LINK], frame[LINK:]
    base = l4_of(frame) - LINK
    if kind not in (IPV4, IPV6) or len(packet) < base + TCP_BASE:
        return None
    source: Address
    destination: Address
    if kind == IPV4:
        version, _, total, fragment, protocol, src, dst = struct.unpack_from("!BBHxxHxBxxII", packet)
        if version != 0x45 or protocol != TCP or fragment & FRAGMENT_BITS:
            return None
        source, destination = IPv4Address(src), IPv4Address(dst)
    else:
        total, protocol = struct.unpack_from("!4xHB", packet)
        if packet[0] >> 4 != 6 or protocol != TCP or prefix is None:
            return None
        source, destination = IPv6Address(packet[8:24]), IPv6Address(packet[24:40])
        total += base if total else 0
    if not total and gso_size:  # a burst above 64 KB
        total = len(packet)
    tcp = packet[base:total]
    return None if total > len(packet) or len(tcp) < TCP_BASE else (source, destination, tcp)


def parse(frame: bytes, gso_size: int = 0, gso_segments: int = 0, prefix: IPv6Network | None = PREFIX) -> Parsed | None:
    """Return what a frame carries; None for what MCS has nothing to do with."""
    found = _segment_in(frame, gso_size, prefix)
    if found is None:
        return None
    source, destination, tcp = found
    tos = tos_of(frame)
    sport, dport, seq, ack, offset, flags, window = struct.unpack_from("!HHIIBBH", tcp)
    length = (offset >> 4) * 4
    if not TCP_BASE <= length <= len(tcp):
        return None
    header, option_room = tcp[:length], mco_of(tcp[:length])
    segment = Segment(
        seq=seq, ack=ack if flags & ACK else None, payload=len(tcp) - length, syn=bool(flags & SYN), fin=bool(flags & FIN),
        rst=bool(flags & RST), window=window, scale=window_scale(header), ect=bool(tos & ECN), ce=tos & ECN == CE,
        gso_size=gso_size, segments=max(1, gso_segments),
    )  # fmt: skip
    sack = sack_in(header)
    segment.sack = blocks_of(header, sack)
    if option_room is not None and option_room[1] == VERSION and offset & RESERVED:
        segment.mco = option_room[0]
    segment.room = Room.NONE
    if sack is not None and sack.stop > length - MCO_BYTES:
        full = length > TCP_BASE + MAX_OPTIONS - MCO_BYTES
        if full and sack.stop == length and segment.ack is not None and len(segment.sack) > 1:
            segment.room = Room.IN_SACK
    elif option_room is not None and not option_room[1]:
        segment.room = Room.PLACEHOLDER
    flow, back = FlowKey.of(source, destination, TCP, sport, dport, prefix), FlowKey.of(destination, source, TCP, prefix=prefix)
    return Parsed(l4_of(frame), flow, back, sport, dport, header, bool(offset & RESERVED), sack, segment)


NOBODY = Key(0, 0, 0, 0)
MTU, OUTER, NO_SECRET = 1500, 40, bytes(8)
"""With lists of uSIDs: what fits, and what they add; the programs of tests have no secret."""


@dataclass
class Wire:
    """Both tc programs of a host."""

    host: Host
    peers: set[int]
    leaving: set[int] = field(default_factory=set)
    kind: Kind = Kind.PATHS
    table: PathTable | None = None
    prefix: IPv6Network | None = PREFIX
    counters: Counter[str] = field(default_factory=Counter)
    key: Key = NOBODY
    """The connection of the last packet that has one."""

    def set(self, channels: int, kind: Kind, filtering: bool = True, regulating: bool = True, patience_us: int = 0) -> None:
        its, self.kind = self.host, kind
        its.channels, its.filtering, its.regulating, its.patience_us = channels, filtering, regulating, patience_us

    def egress(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> tuple[Verdict, bytes]:
        its = parse(frame, gso_size, gso_segments, self.prefix)
        if its is None or its.key(True).remote not in self.peers | self.leaving:
            return self._passed("unscattered", frame)
        segment, self.key = its.segment, its.key(True)
        if self.key.remote in self.leaving:
            segment.room = Room.NONE
        segment.mco = None
        try:
            verdict = self.host.send(self.key, segment)
        except NoSuchConnection as reason:
            self.counters["no_connection"] += isinstance(reason, NoRoom)
            return self._passed("unscattered", frame)
        if verdict is Verdict.DROP:
            self.counters["ack_filtered"] += 1
            return verdict, frame
        if segment.mco is None:
            return self._passed("unscattered", frame)
        out = bytearray(frame)
        self._write_header(out, its)
        if segment.ect and not tos_of(frame) & ECN:
            if frame[LINK - 2 : LINK] == IPV6:
                out[LINK + 1] |= ECT_0 << 4
            else:
                changed_word(out, LINK + 10, LINK, out[LINK] << 8 | out[LINK + 1] | ECT_0)
        if self.kind is Kind.PATHS:
            self._write_label(out, its, gso_size, gso_segments)
        return self._passed("scattered", bytes(out))

    def ingress(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> bytes:
        """Return what the host's TCP gets of a frame."""
        its = parse(frame, gso_size, gso_segments, self.prefix)
        if its is None:
            return frame
        if its.key(False).remote not in self.peers | self.leaving:
            self.counters["mco_unknown"] += its.scattered and not its.segment.syn
            return frame
        out, segment = bytearray(frame), its.segment
        if its.scattered and not segment.syn:
            self.counters["mco_taken" if segment.mco else "mco_malformed"] += 1
            if segment.mco is None:
                return frame
            if self.kind is Kind.PORTS and segment.mco.channel:
                its.sport = (its.sport + segment.mco.channel) & 0xFFFF
                changed_word(out, its.l4 + 16, its.l4, its.sport)
        window = segment.window
        self.key = its.key(False)
        try:
            self.host.receive(self.key, segment)
        except NoSuchConnection as reason:
            self.counters["no_connection"] += isinstance(reason, NoRoom)
            return bytes(out)
        if segment.window != window:
            changed_word(out, its.l4 + 16, its.l4 + 14, segment.window)
            self.counters["window_lowered"] += 1
        return bytes(out)

    def _passed(self, reason: str, frame: bytes) -> tuple[Verdict, bytes]:
        self.counters[reason] += 1
        return Verdict.PASS, frame

    def _write_header(self, out: bytearray, its: Parsed) -> None:
        assert its.segment.mco is not None
        if its.sack is not None:
            first, end = its.l4 + its.sack.start, its.l4 + its.sack.stop
            if not its.segment.sack:
                out[first:end] = bytes([NOP]) * (end - first)
            else:
                out[first + 3] = 2 + BLOCK * len(its.segment.sack)
        out[its.end - MCO_BYTES : its.end] = option(its.segment.mco)
        out[its.l4 + 12] |= RESERVED
        if self.kind is Kind.PORTS:
            struct.pack_into("!H", out, its.l4, (its.sport - its.segment.mco.channel) & 0xFFFF)
        without = (0xFFFF - word for word in struct.unpack(f"!{len(its.header) // 2}H", its.header))
        changed_sum(out, its.l4 + 16, sum(without) + summed(bytes(out[its.l4 : its.end])))

    def _write_label(self, out: bytearray, its: Parsed, gso_size: int, gso_segments: int) -> None:
        assert its.segment.mco is not None
        if self.table is None:
            self.counters["no_table"] += 1
            return
        candidates = self.table.candidates(its.flow.daddr)
        if not candidates:
            self.counters["outside" if candidates is None else "no_path"] += 1
            return
        start = scaled(flow_hash(its.flow, self.table.seed), len(candidates))
        hops = candidates[(start + its.segment.mco.channel) % len(candidates)]
        if self.table.srv6 is None:
            out[6:12] = CARRIER + bytes(hops)
        elif not gso_size and len(out) - LINK + OUTER > MTU:
            self.counters["too_big"] += 1
            return
        elif hops[0] != UNUSED and gso_size:  # in a test run a burst is not TCP's to the kernel, which opens room in no other
            self.counters["not_writable"] += 1
            return
        elif hops[0] != UNUSED:
            rack = self.key.remote.to_bytes(4, "big")[1:3]
            out[:] = encapsulated(bytes(out), self.table, hops, rack, flow_hash(its.flow, self.table.seed), NO_SECRET)
        self.counters["labelled"] += 1
        self.counters["gso"] += gso_segments > 1
