"""The answer to a packet that leaves the fabric while nothing leads out of it: ICMP destination unreachable. Pure.

A sender that is not answered waits for its own timeouts. An edge switch sends the start of such packets to the controller, at most
four a second (`flowrules.gateways.UNREACHABLE`), and the controller answers in the name of the rack's gateway address. What it does
in all is bounded here, since every rack may have such packets at the time at which gateways fail.
"""

from __future__ import annotations

import struct
from collections import Counter
from ipaddress import IPv4Address

from topologies import Clos, Host, Switch, TopologyError
from topologies.structure import GATEWAY_MAC
from topologies.way_out import is_outside

ETHERTYPE_IPV4 = b"\x08\x00"
MAX_ANSWERS_PER_SECOND = 100
"""Of all racks."""
QUOTED_BYTES = 576 - 20 - 8
"""At most, after the headers (RFC 1812, section 4.3.2.3); a switch sends less."""
OUTCOMES = ("answered", "not_answerable", "too_many")
_ETHERNET, _HEADER = 14, struct.Struct("!BBHHHBBHII")
_LATER_FRAGMENT = 0x1FFF
_ICMP, _QUERIES = 1, frozenset({0, 8, 9, 10, 13, 14, 15, 16, 17, 18})
_UNREACHABLE, _NETWORK = 3, 0


class Unreachable:
    """Answers for undeliverable packets, which are counted by `OUTCOMES`."""

    def __init__(self, tree: Clos) -> None:
        self._tree = tree
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._second, self._answers = 0, 0

    def answer(self, switch: Switch, port: int, frame: bytes, now: float) -> bytes | None:
        """Return the frame that answers a packet that a switch has sent to the controller; None if there is to be no answer.

        The packet came in by ``port``; ``frame`` is the start of its frame.
        """
        sender = self._sender(switch, port)
        packet = frame[_ETHERNET:]
        if sender is None or frame[12:14] != ETHERTYPE_IPV4 or not is_answerable(packet, self._tree.ip(sender)):
            self.outcomes["not_answerable"] += 1
            return None
        if int(now) != self._second:
            self._second, self._answers = int(now), 0
        if self._answers >= MAX_ANSWERS_PER_SECOND:
            self.outcomes["too_many"] += 1
            return None
        self._answers += 1
        self.outcomes["answered"] += 1
        quoted = packet[: min(QUOTED_BYTES, struct.unpack_from("!H", packet, 2)[0])]
        message = _with_checksum(struct.pack("!BBHI", _UNREACHABLE, _NETWORK, 0, 0) + quoted, 2)
        ends = self._tree.gateway(sender).packed + self._tree.ip(sender).packed
        # type of service: internetwork control (RFC 1812, section 4.3.2.5)
        header = struct.pack("!BBHHHBBH", 0x45, 0xC0, 20 + len(message), 0, 0, 64, _ICMP, 0) + ends
        ethernet = bytes.fromhex((self._tree.mac(sender) + GATEWAY_MAC).replace(":", "")) + ETHERTYPE_IPV4
        return ethernet + _with_checksum(header, 10) + message

    def _sender(self, switch: Switch, port: int) -> Host | None:
        try:
            node = self._tree.neighbour(switch, port)
        except TopologyError:
            return None
        return node if isinstance(node, Host) else None


def is_answerable(packet: bytes, sender: IPv4Address) -> bool:
    """Return whether a packet that cannot be delivered may be answered (RFC 1122, section 3.2.2; RFC 1812, section 4.3.2.7).

    ``packet`` is its start, from the IPv4 header on, and ``sender`` the host that it must be of.
    """
    if len(packet) < _HEADER.size:
        return False
    first, _, total, _, fragment, _, protocol, _, src, dst = _HEADER.unpack_from(packet)
    length = (first & 15) * 4
    if first >> 4 != 4 or length < _HEADER.size or total < length + 8 or len(packet) < length + 8:
        return False
    if IPv4Address(src) != sender or not is_outside(IPv4Address(dst)) or fragment & _LATER_FRAGMENT:
        return False
    return protocol != _ICMP or packet[length] in _QUERIES


def _with_checksum(data: bytes, at: int) -> bytes:
    """Return bytes with their Internet checksum (RFC 1071) written over the two zeros at an offset."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return data[:at] + struct.pack("!H", ~total & 0xFFFF) + data[at + 2 :]
