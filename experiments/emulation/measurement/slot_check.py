"""What a capture of all links says of slots: when packets were sent in them, and which of them shared a link. Pure.

The check knows nothing of grants. A packet belongs to the slot in which its host sent it, on every link of its path; two hosts'
packets of one slot on one link are what the arbiter rules out.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_FILE = struct.Struct("=IHHiIII")
_RECORD = struct.Struct("=IIII")
_NANOSECONDS, _COOKED_V2 = 0xA1B23C4D, 276
_COOKED = struct.Struct("!HHIHBB8s")
_OUTGOING = 4
_IPV4 = struct.Struct("!BBHHHBBHII")
_TCP = struct.Struct("!HHI")
_ETHERTYPE_IPV4, _PROTOCOL_TCP = 0x0800, 6


class SeenPacket(NamedTuple):
    """A packet of TCP as it passed an interface, by its index.

    ``packet`` tells it from all others: addresses, ports, sequence number, identification.
    """

    at_ns: int
    interface: int
    outgoing: bool
    packet: tuple[int, int, int, int, int, int]

    @property
    def pair(self) -> tuple[int, int]:
        """Addresses of sender and receiver."""
        return self.packet[:2]


class SlotCheck(NamedTuple):
    """What a capture shows.

    Args:
        packets: Packets of data that were sent.
        late_ns: For each of them, the time since the beginning of its slot, in order of size.
        used, shared: Slots of links in which packets passed, and those in which packets of several pairs of hosts did.
    """

    packets: int
    late_ns: list[int]
    used: int
    shared: int

    def late_ms(self, share: float) -> float:
        """Return the time since the beginning of the slot that a share of packets does not exceed."""
        return self.late_ns[min(len(self.late_ns) - 1, int(share * len(self.late_ns)))] / 1e6 if self.late_ns else 0.0


def read_capture(capture: bytes) -> Iterator[SeenPacket]:
    """Yield the TCP packets of a capture by ``tcpdump -i any -y LINUX_SLL2 --time-stamp-precision=nano``.

    Raises ValueError if it is of another form. A record that is cut off at its end is left out.
    """
    if len(capture) < _FILE.size:
        raise ValueError(f"it has {len(capture)} bytes")
    magic, *_, link = _FILE.unpack_from(capture)
    if (magic, link) != (_NANOSECONDS, _COOKED_V2):
        raise ValueError(f"it is no capture of cooked packets with nanoseconds, but {magic:#x} of link type {link}")
    at = _FILE.size
    while at + _RECORD.size <= len(capture):
        seconds, nanoseconds, size, _ = _RECORD.unpack_from(capture, at)
        at += _RECORD.size
        if at + size > len(capture):
            return
        seen = _packet(seconds * 1_000_000_000 + nanoseconds, capture[at : at + size])
        if seen is not None:
            yield seen
        at += size


def _packet(at_ns: int, data: bytes) -> SeenPacket | None:
    if len(data) < _COOKED.size + _IPV4.size:
        return None
    ethertype, _, interface, _, kind, _, _ = _COOKED.unpack_from(data)
    first, _, _, identification, _, _, protocol, _, src, dst = _IPV4.unpack_from(data, _COOKED.size)
    tcp = _COOKED.size + 4 * (first & 15)
    if ethertype != _ETHERTYPE_IPV4 or protocol != _PROTOCOL_TCP or len(data) < tcp + _TCP.size:
        return None
    sport, dport, sequence = _TCP.unpack_from(data, tcp)
    return SeenPacket(at_ns, interface, kind == _OUTGOING, (src, dst, sport, dport, sequence, identification))


def check(seen: Iterable[SeenPacket], hosts: Mapping[int, int], links: Iterable[int], slot_ns: int, zero_ns: int) -> SlotCheck:
    """Return what a capture, in order of time, shows of slots.

    Args:
        hosts: Addresses of hosts by the index of the interface of their edge switch towards them.
        links: Indices of the interfaces at the ends of links between switches.
        zero_ns: The beginning of slot 0 by the machine's clock.

    Host 1 sends to host 2 in slot 0, and host 3 in the same slot, over the same link (interface 9); slots have 100 ns:

    >>> one, other = (1, 2, 7, 7, 0, 1), (3, 2, 7, 7, 0, 1)
    >>> sent = [SeenPacket(5, 1, False, one), SeenPacket(8, 3, False, other)]
    >>> seen = [*sent, SeenPacket(20, 9, False, one), SeenPacket(140, 9, False, other)]
    >>> check(seen, {1: 1, 3: 3}, [9], 100, 0)
    SlotCheck(packets=2, late_ns=[5, 8], used=1, shared=1)
    """
    between = set(links)
    slot_of: dict[tuple[int, ...], int] = {}
    late: list[int] = []
    pairs: dict[tuple[int, bool, int], set[tuple[int, int]]] = defaultdict(set)
    for seen_packet in seen:
        sender = hosts.get(seen_packet.interface)
        if sender == seen_packet.packet[0] and not seen_packet.outgoing:
            slot, since = divmod(seen_packet.at_ns - zero_ns, slot_ns)
            slot_of[seen_packet.packet] = slot
            late.append(since)
        elif seen_packet.packet in slot_of and (
            seen_packet.outgoing if sender is not None else seen_packet.interface in between and not seen_packet.outgoing
        ):
            pairs[seen_packet.interface, seen_packet.outgoing, slot_of[seen_packet.packet]].add(seen_packet.pair)
    shared = sum(len(its) > 1 for its in pairs.values())
    return SlotCheck(len(late), sorted(late), len(pairs), shared)
