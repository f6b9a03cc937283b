"""The answer to a packet that leaves the fabric while nothing leads out of it: ICMP or ICMPv6 destination unreachable. Pure.

A sender that is not answered waits for its own timeouts. An edge switch sends the start of such packets to the controller, at most
four a second (`flowrules.gateways.unreachable`), and the controller answers in the name of the rack's gateway address. What it does
in all is bounded here, since every rack may have such packets at the time at which gateways fail.
"""

from __future__ import annotations

import struct
from collections import Counter
from ipaddress import IPv4Address, IPv6Address

from topologies import Clos, Host, Switch, TopologyError
from topologies.identity import Family
from topologies.structure import GATEWAY_MAC
from topologies.way_out import is_outside

ETHERTYPES = {b"\x08\x00": 4, b"\x86\xdd": 6}
"""The version of IP that an Ethernet type says."""
MAX_ANSWERS_PER_SECOND = 100
"""Of all racks."""
QUOTED_BYTES = {4: 576 - 20 - 8, 6: 1280 - 40 - 8}
"""At most, after the headers (RFC 1812, section 4.3.2.3; RFC 4443, section 3.1); of IPv4 a switch sends less."""
OUTCOMES = ("answered", "not_answerable", "too_many")
_ETHERNET, _HEADER = 14, struct.Struct("!BBHHHBBHII")
_LATER_FRAGMENT = 0x1FFF
_ICMP, _QUERIES = 1, frozenset({0, 8, 9, 10, 13, 14, 15, 16, 17, 18})
_UNREACHABLE, _NETWORK = 3, 0
_HEADER6 = struct.Struct("!IHBB16s16s")
_ICMPV6, _NO_ROUTE, _INFORMATIONAL, _REDIRECT = 58, (1, 0), 0x80, 137
_FRAGMENT, _AUTHENTICATION, _NO_NEXT = 44, 51, 59
_EXTENSIONS = frozenset({0, 43, _FRAGMENT, _AUTHENTICATION, 60, 135, 139, 140})
"""Headers after which there is another one (RFC 7045, section 1.1). One that is encrypted is none of these."""
_INTERNETWORK_CONTROL = 0xC0
"""Type of service and traffic class (RFC 1812, section 4.3.2.5)."""


class Unreachable:
    """Answers for undeliverable packets, which are counted by `OUTCOMES`."""

    def __init__(self, tree: Clos) -> None:
        self._tree = tree
        self._families: dict[int, Family] = {family.number: family for family in tree.families}
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._second, self._answers = 0, 0

    def answer(self, switch: Switch, port: int, frame: bytes, now: float) -> bytes | None:
        """Return the frame that answers a packet that a switch has sent to the controller; None if there is to be no answer.

        The packet came in by ``port``; ``frame`` is the start of its frame.
        """
        sender = self._sender(switch, port)
        packet = frame[_ETHERNET:]
        family = self._families.get(ETHERTYPES.get(frame[12:14], 0))
        if sender is None or family is None or not is_answerable(packet, sender, family):
            self.outcomes["not_answerable"] += 1
            return None
        if int(now) != self._second:
            self._second, self._answers = int(now), 0
        if self._answers >= MAX_ANSWERS_PER_SECOND:
            self.outcomes["too_many"] += 1
            return None
        self._answers += 1
        self.outcomes["answered"] += 1
        ends = family.gateway(sender).packed + family.address(sender).packed
        ethernet = bytes.fromhex((self._tree.mac(sender) + GATEWAY_MAC).replace(":", "")) + frame[12:14]
        return ethernet + (_error4 if family.number == 4 else _error6)(packet, ends)

    def _sender(self, switch: Switch, port: int) -> Host | None:
        try:
            node = self._tree.neighbour(switch, port)
        except TopologyError:
            return None
        return node if isinstance(node, Host) else None


def is_answerable(packet: bytes, sender: Host, family: Family) -> bool:
    """Return whether a packet that cannot be delivered may be answered (RFC 1122, 3.2.2; RFC 1812, 4.3.2.7; RFC 4443, 2.4).

    ``packet`` is its start, from the IP header on, and ``sender`` the host that it must be of.
    """
    return (_is_answerable4 if family.number == 4 else _is_answerable6)(packet, sender, family)


def _is_answerable4(packet: bytes, sender: Host, family: Family) -> bool:
    if len(packet) < _HEADER.size:
        return False
    first, _, total, _, fragment, _, protocol, _, src, dst = _HEADER.unpack_from(packet)
    length = (first & 15) * 4
    if first >> 4 != 4 or length < _HEADER.size or total < length + 8 or len(packet) < length + 8:
        return False
    if IPv4Address(src) != family.address(sender) or not is_outside(IPv4Address(dst), family) or fragment & _LATER_FRAGMENT:
        return False
    return protocol != _ICMP or packet[length] in _QUERIES


def _is_answerable6(packet: bytes, sender: Host, family: Family) -> bool:
    """Look through the extension headers for what the packet is; what ends before that, or hides it, may be an error."""
    if len(packet) < _HEADER6.size:
        return False
    first, length, kind, _, src, dst = _HEADER6.unpack_from(packet)
    if first >> 28 != 6 or IPv6Address(src) != family.address(sender) or not is_outside(IPv6Address(dst), family):
        return False
    packet, at = packet[: _HEADER6.size + length], _HEADER6.size
    while kind in _EXTENSIONS:
        if len(packet) < at + 8 or (kind == _FRAGMENT and (packet[at + 2] << 8 | packet[at + 3]) >> 3):
            return False
        size = 8 if kind == _FRAGMENT else (packet[at + 1] + 2) * 4 if kind == _AUTHENTICATION else (packet[at + 1] + 1) * 8
        kind, at = packet[at], at + size
    if kind == _NO_NEXT or len(packet) < at + 8:
        return False
    return kind != _ICMPV6 or bool(packet[at] & _INFORMATIONAL and packet[at] != _REDIRECT)


def _error4(packet: bytes, ends: bytes) -> bytes:
    quoted = packet[: min(QUOTED_BYTES[4], struct.unpack_from("!H", packet, 2)[0])]
    message = _with_checksum(struct.pack("!BBHI", _UNREACHABLE, _NETWORK, 0, 0) + quoted, 2)
    header = struct.pack("!BBHHHBBH", 0x45, _INTERNETWORK_CONTROL, 20 + len(message), 0, 0, 64, _ICMP, 0) + ends
    return _with_checksum(header, 10) + message


def _error6(packet: bytes, ends: bytes) -> bytes:
    quoted = packet[: min(QUOTED_BYTES[6], _HEADER6.size + struct.unpack_from("!H", packet, 4)[0])]
    message = struct.pack("!BBHI", *_NO_ROUTE, 0, 0) + quoted
    pseudo = ends + struct.pack("!II", len(message), _ICMPV6)  # RFC 8200, section 8.1
    message = _with_checksum(pseudo + message, len(pseudo) + 2)[len(pseudo) :]
    return struct.pack("!IHBB", 6 << 28 | _INTERNETWORK_CONTROL << 20, len(message), _ICMPV6, 64) + ends + message


def _with_checksum(data: bytes, at: int) -> bytes:
    """Return bytes with their Internet checksum (RFC 1071) written over the two zeros at an offset."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return data[:at] + struct.pack("!H", ~total & 0xFFFF) + data[at + 2 :]
