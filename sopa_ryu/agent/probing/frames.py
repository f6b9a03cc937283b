"""The frames of probes and answers, byte by byte (docs/probes.md). Pure; bpf/probe.h is the twin in C."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from typing import NamedTuple

from flowrules.label import OPTION_LENGTH, OPTION_TYPE, UNUSED, Carrier, carrier_mac, option
from sopa_ryu.channel.messages import Stream
from topologies.identity import TURN_MAC

PORT = 862
"""STAMP's, of both ends."""
MAGIC = b"SOPA"
TLV_TYPE, TLV_BYTES = 252, 12
UNRECOGNIZED = 0x80
"""The TLV's flag that a session-sender sets and a session-reflector clears."""
ERROR_ESTIMATE = 0x4001
"""Not synchronized, PTP, multiplier 1."""
_TOS, _TTL, _DONT_FRAGMENT, _UDP = 0xC0, 255, 0x4000, 17
_ETHERNET, _IP, _UDP_HEADER = 14, 20, struct.Struct("!HHHH")
_STAMP = struct.Struct("!IIIHHIIIIIHHB3x")
_TLV = struct.Struct("!BBH4sBBHI")
_NUMBER_AND_TIME = struct.Struct("!III")
_SECOND = 1_000_000_000
_TURN_MAC = bytes.fromhex(TURN_MAC.replace(":", ""))
FRAME_BYTES = _ETHERNET + _IP + _UDP_HEADER.size + _STAMP.size + _TLV.size
"""Of a probe and of its answer, without FCS; `Carrier.overhead` more."""


class Ends(NamedTuple):
    """What all probes of a host have in common.

    Attributes:
        mac: Of the interface.
        gateway: The fabric's Ethernet address.
        secret: 32 bits by which the host knows answers to its own probes.
        own_secret: 32 bits by which it knows its self-probes, which no other host sees.
    """

    address: IPv4Address
    mac: bytes
    gateway: bytes
    carrier: Carrier
    secret: int
    own_secret: int


class ProbeFrame:
    """The frame of a stream's probes, in which only number, time and checksum change.

    Args:
        ssid: 16 bits.
        ports: Of a self-probe: the switches' ports that its label has; routers read its hops.

    >>> ends = Ends(IPv4Address("10.0.0.2"), bytes(6), bytes(6), Carrier.MAC, 1, 2)
    >>> frame = ProbeFrame(ends, Stream(IPv4Address("10.2.1.3"), 0, 1), 9)
    >>> len(frame.numbered(0, 5)), frame.numbered(3, 5).hex()[84:92]
    (102, '00000003')
    """

    def __init__(self, ends: Ends, stream: Stream, ssid: int, ports: tuple[int, int] | None = None) -> None:
        by_ports = ports if ends.carrier is not Carrier.SRV6 else None
        hops = _taken(*(by_ports or (stream.up1, stream.up2)))
        with_option = ends.carrier is Carrier.OPTION
        source = ends.mac if with_option else bytes.fromhex(carrier_mac(hops).replace(":", ""))
        label = bytes.fromhex(option(hops)) if with_option else b""
        secret = ends.secret if ports is None else ends.own_secret
        stamp = _STAMP.pack(0, 0, 0, ERROR_ESTIMATE, ssid, 0, 0, 0, 0, 0, 0, 0, 0)
        tlv = _TLV.pack(UNRECOGNIZED, TLV_TYPE, TLV_BYTES, MAGIC, stream.up1, stream.up2, 0, secret)
        bytes_of_udp = _UDP_HEADER.size + len(stamp) + len(tlv)
        udp = _UDP_HEADER.pack(PORT, PORT, bytes_of_udp, 0)
        addresses = ends.address.packed + stream.destination.packed
        header = _ip_header(addresses, label, bytes_of_udp)
        towards = _TURN_MAC if by_ports else ends.gateway
        self._frame = bytearray(towards + source + b"\x08\x00" + header + udp + stamp + tlv)
        self._stamp_at = _ETHERNET + len(header) + _UDP_HEADER.size
        self._sum = _sum(addresses + struct.pack("!HH", _UDP, bytes_of_udp) + udp + stamp + tlv)

    def numbered(self, number: int, now_ns: int) -> bytearray:
        """Return the frame of the probe with that number; the next call changes it.

        Args:
            now_ns: The host's monotonic clock.
        """
        seconds, nanoseconds = divmod(now_ns, _SECOND)
        number &= 0xFFFFFFFF
        _NUMBER_AND_TIME.pack_into(self._frame, self._stamp_at, number, seconds, nanoseconds)
        # the sum of 32-bit words has the same remainder as that of 16-bit words
        check = 0xFFFF - ((self._sum + number + seconds + nanoseconds) % 0xFFFF)
        self._frame[self._stamp_at - 2 : self._stamp_at] = check.to_bytes(2, "big")
        return self._frame


class Packet(NamedTuple):
    """A probe or an answer, as a host reads it.

    Attributes:
        label: The TLV's.
        carried: The label that switches see; None if there is none.
        flags: The TLV's.
        times: When it was sent, received and sent first, in nanoseconds.
    """

    source: IPv4Address
    destination: IPv4Address
    label: tuple[int, int]
    carried: tuple[int, int] | None
    flags: int
    number: int
    ssid: int
    sender_number: int
    secret: int
    times: tuple[int, int, int]


def read(frame: bytes) -> Packet | None:
    """Return what a frame says as a probe or an answer; None if it is neither, or damaged.

    The option's label counts as carried only if there is none in the Ethernet source address.
    """
    words = frame[_ETHERNET] & 15 if len(frame) >= FRAME_BYTES else 0
    if words not in (5, 6) or frame[12:15] != b"\x08\x00" + bytes([0x40 | words]):
        return None
    at = _ETHERNET + 4 * words
    header, udp = frame[_ETHERNET:at], frame[at:]
    if len(frame) != FRAME_BYTES + 4 * (words - 5) or header[9] != _UDP:
        return None
    if _sum(header) % 0xFFFF or _sum(header[12:20] + struct.pack("!HH", _UDP, len(udp)) + udp) % 0xFFFF:
        return None
    number, seconds, nanos, _, ssid, got, got_nanos, sender, first, first_nanos, *_ = _STAMP.unpack_from(udp, 8)
    flags, kind, size, magic, up1, up2, _, secret = _TLV.unpack_from(udp, 8 + _STAMP.size)
    if (_UDP_HEADER.unpack_from(udp)[:2], kind, size, magic) != ((PORT, PORT), TLV_TYPE, TLV_BYTES, MAGIC):
        return None
    carried = None
    if frame[6:10] == b"\x02\x53\x9e\x04":
        carried = frame[10], frame[11]
    elif words == 6 and header[20:22] == bytes((OPTION_TYPE, OPTION_LENGTH)):
        carried = header[22], header[23]
    times = (seconds * _SECOND + nanos, got * _SECOND + got_nanos, first * _SECOND + first_nanos)
    source, destination = IPv4Address(header[12:16]), IPv4Address(header[16:20])
    return Packet(source, destination, (up1, up2), carried, flags, number, ssid, sender, secret, times)


def _taken(*hops: int) -> tuple[int, ...]:
    return tuple(hop for hop in hops if hop != UNUSED)


def _ip_header(addresses: bytes, label: bytes, bytes_of_udp: int) -> bytes:
    words = 5 + len(label) // 4
    head = struct.pack("!BBHHHBB", 0x40 | words, _TOS, 4 * words + bytes_of_udp, 0, _DONT_FRAGMENT, _TTL, _UDP)
    check = 0xFFFF - _sum(head + addresses + label) % 0xFFFF
    return head + check.to_bytes(2, "big") + addresses + label


def _sum(data: bytes) -> int:
    """Return the sum of the 16-bit words of data of even length."""
    return sum(struct.unpack(f"!{len(data) // 2}H", data))
