"""MCS on frames, byte by byte: what tc egress and tc ingress make of a frame, by `mcs_reference.Host`."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum

from sopa_ryu.agent.paths.flow_hash import FlowKey, flow_hash, scaled
from sopa_ryu.agent.paths.path_table import PathTable
from tests.bpf.mcs_reference import Block, Host, Key, Mco, NoSuchConnection, Room, Segment, Verdict

LINK, TAG, IP_BASE, TCP_BASE, TCP = 14, 4, 20, 20, 6
IPV4, VLAN = b"\x08\x00", b"\x81\x00"
FRAGMENT_BITS = 0x3FFF
FIN, SYN, RST, ACK = 1, 2, 4, 0x10
RESERVED = 0x08  # of the TCP header's byte 12
END, NOP, SCALE, SACK = 0, 1, 3, 5
BLOCK = 8
KIND, MCO_BYTES, VERSION = 253, 16, 1
PLACEHOLDER = bytes([KIND, MCO_BYTES]).ljust(MCO_BYTES, b"\0")
OPTION = struct.Struct("!BBHHBBII")
ECN, ECT_0, CE = 3, 2, 3
CARRIER = bytes.fromhex("02539e04")


class Kind(Enum):
    PATHS = 0
    PORTS = 1


def option(its: Mco, version: int = VERSION) -> bytes:
    """Return an MCO as it stands in a header."""
    return OPTION.pack(KIND, MCO_BYTES, its.rcb, its.rb, its.rp, version << 4 | its.channel, its.gsn, its.lsn)


def mco_of(header: bytes) -> tuple[Mco, int] | None:
    """Return the MCO and the version at the end of a TCP header; None if there is none."""
    if len(header) < TCP_BASE + MCO_BYTES or header[-MCO_BYTES:][:2] != PLACEHOLDER[:2]:
        return None
    _, _, rcb, rb, rp, channel, gsn, lsn = OPTION.unpack(header[-MCO_BYTES:])
    return Mco(rcb, rb, rp, channel & 15, gsn, lsn), channel >> 4


def find_option(header: bytes, kind: int, end: int) -> slice | None:
    """Return the place of the first option of a kind that is complete before byte ``end`` of a TCP header."""
    at = TCP_BASE
    while at < end and header[at] != END:
        if header[at] == NOP:
            at += 1
            continue
        if at + 1 == end or header[at + 1] < 2 or at + header[at + 1] > end:
            return None
        if header[at] == kind:
            return slice(at, at + header[at + 1])
        at += header[at + 1]
    return None


def blocks_of(header: bytes, place: slice | None) -> tuple[Block, ...]:
    """Return the blocks of a SACK option (RFC 2018)."""
    if place is None or (place.stop - place.start) % BLOCK != 2 or place.stop - place.start < 2 + BLOCK:
        return ()
    return tuple(struct.iter_unpack("!II", header[place.start + 2 : place.stop]))


def adjusted(frame: bytearray, check: int, at: int, value: int) -> None:
    """Write a 16-bit word, and change a checksum accordingly (RFC 1624); neither has to be at an even place."""
    (old,), (was,) = struct.unpack_from("!H", frame, at), struct.unpack_from("!H", frame, check)
    total = (0xFFFF - was) + (0xFFFF - old) + value
    struct.pack_into("!H", frame, at, value)
    struct.pack_into("!H", frame, check, 0xFFFF - (total % 0xFFFF or 0xFFFF))


@dataclass
class Parsed:
    """The places of an unfragmented TCP segment's headers in its frame."""

    l3: int
    l4: int
    payload: int  # where it begins
    src: int
    dst: int
    sport: int
    dport: int
    header: bytes
    sack: slice | None
    segment: Segment


def parse(frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> Parsed | None:
    """Return what a frame carries if that is a whole TCP segment over IPv4."""
    l3 = LINK + TAG * (frame[12:14] == VLAN)
    packet = frame[l3:]
    if frame[l3 - 2 : l3] != IPV4 or len(packet) < IP_BASE:
        return None
    version_and_length, tos, total, fragment, protocol, src, dst = struct.unpack_from("!BBHxxHxBxxII", packet)
    words = version_and_length & 15
    if version_and_length >> 4 != 4 or words < 5 or protocol != TCP or fragment & FRAGMENT_BITS:
        return None
    if total > len(packet) or total < words * 4 + TCP_BASE:
        return None
    tcp = packet[words * 4 : total]
    sport, dport, seq, ack, offset, flags, window = struct.unpack_from("!HHIIBBH", tcp)
    length = (offset >> 4) * 4
    if not TCP_BASE <= length <= len(tcp):
        return None
    header = tcp[:length]
    found = mco_of(header)
    sack = find_option(header, SACK, length - MCO_BYTES * (found is not None))
    blocks = blocks_of(header, sack)
    scale = find_option(header, SCALE, length)
    room = Room.NONE
    if found is not None and not found[1]:
        room = Room.PLACEHOLDER
    segment = Segment(
        seq=seq,
        ack=ack if flags & ACK else None,
        payload=len(tcp) - length,
        syn=bool(flags & SYN),
        fin=bool(flags & FIN),
        rst=bool(flags & RST),
        sack=blocks,
        window=window,
        scale=header[scale.start + 2] if scale is not None and scale.stop - scale.start == 3 else None,
        ect=bool(tos & ECN),
        ce=tos & ECN == CE,
        mco=found[0] if found is not None and found[1] == VERSION and offset & RESERVED else None,
        gso_size=gso_size,
        segments=max(1, gso_segments),
    )
    full = length > TCP_BASE + 40 - MCO_BYTES
    if found is None and full and segment.pure_ack and len(blocks) > 1 and sack is not None and sack.stop == length:
        room = Room.IN_SACK
    segment.room = room
    l4 = l3 + words * 4
    return Parsed(l3, l4, l4 + length, src, dst, sport, dport, header, sack if blocks else None, segment)


@dataclass
class Wire:
    """Both tc programs of a host.

    Attributes
    ----------
    host : Host
    peers : set of int
        Addresses of hosts that run MCS.
    kind : Kind
    table : PathTable, optional
        In force; `Kind.PATHS` needs it.
    """

    host: Host
    peers: set[int]
    kind: Kind = Kind.PATHS
    table: PathTable | None = None
    labels: list[bytes] = field(default_factory=list)

    def egress(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> tuple[Verdict, bytes]:
        """Return what becomes of a frame of this host's own, and the frame afterwards."""
        its = parse(frame, gso_size, gso_segments)
        if its is None or its.dst not in self.peers:
            return Verdict.PASS, frame
        segment = its.segment
        segment.mco = None
        try:
            verdict = self.host.send(Key(its.src, its.dst, its.sport, its.dport), segment)
        except NoSuchConnection:
            return Verdict.PASS, frame
        if verdict is Verdict.DROP or segment.mco is None:
            return verdict, frame
        out = bytearray(frame)
        if its.sack is not None:
            self._write_sack(out, its)
        out[its.payload - MCO_BYTES : its.payload] = option(segment.mco)
        out[its.l4 + 12] |= RESERVED
        if segment.ect and not out[its.l3 + 1] & ECN:
            adjusted(out, its.l3 + 10, its.l3, out[its.l3] << 8 | out[its.l3 + 1] | ECT_0)
        if self.kind is Kind.PORTS:
            struct.pack_into("!H", out, its.l4, (its.sport - segment.mco.channel) & 0xFFFF)
        elif (label := self.label(its, segment.mco.channel)) is not None:
            out[6:12] = CARRIER + label
        return Verdict.PASS, bytes(out)

    def ingress(self, frame: bytes, gso_segments: int = 0) -> bytes:
        """Return what the host's TCP gets of a frame."""
        its = parse(frame, gso_segments=gso_segments)
        if its is None or its.src not in self.peers:
            return frame
        out, segment = bytearray(frame), its.segment
        if segment.mco is not None and self.kind is Kind.PORTS:
            its.sport = (its.sport + segment.mco.channel) & 0xFFFF
            adjusted(out, its.l4 + 16, its.l4, its.sport)
        window = segment.window
        try:
            self.host.receive(Key(its.dst, its.src, its.dport, its.sport), segment)
        except NoSuchConnection:
            return bytes(out)
        if segment.window != window:
            adjusted(out, its.l4 + 16, its.l4 + 14, segment.window)
        return bytes(out)

    def label(self, its: Parsed, channel: int) -> bytes | None:
        """Return the hop bytes of a channel's path."""
        candidates = self.table.candidates(its.dst) if self.table else None
        if not self.table or not candidates:
            return None
        flow = FlowKey(its.src, its.dst, its.sport << 16 | its.dport, TCP)
        start = scaled(flow_hash(flow, self.table.seed), len(candidates))
        return bytes(candidates[(start + channel * len(candidates) // self.host.channels) % len(candidates)])

    @staticmethod
    def _write_sack(out: bytearray, its: Parsed) -> None:
        assert its.sack is not None
        place = slice(its.l4 + its.sack.start, its.l4 + its.sack.stop)
        if not its.segment.sack:
            out[place] = bytes([NOP]) * (place.stop - place.start)
        else:
            out[place.start + 1] = 2 + BLOCK * len(its.segment.sack)
