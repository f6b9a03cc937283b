"""Which flows have a path for each packet, and which keep one: the rules of ``--spray`` and ``--forwarded``. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, FlowKey

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "sctp": 132, "udplite": 136}
"""Protocols by name; others by number. The rule of ICMP is ICMPv6's, too."""
ICMP, ICMPV6 = PROTOCOLS["icmp"], 58
UDP = PROTOCOLS["udp"]
ALL = "all"
MAX_RANGES = 8
DEFAULT = "tcp"
EXAMPLE = "for example tcp,udp:4791 or all"
_SPRAY = struct.Struct("=4QBB6x16H")  # struct spray of bpf/maps.h


class Spray(NamedTuple):
    """The flows each of whose packets takes the next path.

    Attributes:
        protocols: Protocol numbers.
        udp: Ranges of UDP ports, first and last; either port of a flow may be in one.
        forwarded: Whether packets that the host passes on for containers and virtual machines are sprayed by these rules, too.

    >>> spray = Spray.of("tcp,udp:4791,udp:8000-8009")
    >>> flows = (6, 1, 2), (17, 9, 8003), (17, 4791, 9), (17, 1, 2), (1, 0, 0)
    >>> [spray.sprays(FlowKey.of("10.0.0.2", "10.2.1.3", *flow)) for flow in flows]
    [True, True, True, False, False]
    """

    protocols: frozenset[int] = frozenset(range(256))
    udp: tuple[tuple[int, int], ...] = ()
    forwarded: bool = False

    @classmethod
    def of(cls, text: str, forwarded: bool = False) -> Spray:
        """Return the rules of a text; `ValueError` for one that names nothing, or says the same as another."""
        protocols, ranges = set[int](), list[tuple[int, int]]()
        rules = [rule.strip().lower() for rule in text.split(",")]
        for rule in rules:
            name, colon, ports = rule.partition(":")
            if rule == ALL:
                if len(rules) > 1:
                    raise ValueError(f"{ALL!r} names every flow: leave out the other rules")
                return cls(forwarded=forwarded)
            if colon:
                if name != "udp":
                    raise ValueError(f"rule {rule!r}: only udp takes ports, {EXAMPLE}")
                ranges.append(_ports(rule, ports))
                continue
            number = PROTOCOLS.get(name, int(name) if name.isascii() and name.isdigit() and len(name) < 4 else 256)
            if number > 255:
                raise ValueError(
                    f"rule {rule!r} names nothing: write a protocol ({', '.join(PROTOCOLS)}, or its number), {EXAMPLE}"
                )
            if number in protocols:
                raise ValueError(f"rule {rule!r} is there twice")
            protocols |= {number, ICMPV6} if number == ICMP else {number}
        if ranges and UDP in protocols:
            raise ValueError("udp names every UDP flow: leave it out, or the rules with ports")
        if len(ranges) > MAX_RANGES:
            raise ValueError(f"there is room for {MAX_RANGES} ranges of UDP ports, not for {len(ranges)}")
        return cls(frozenset(protocols), tuple(ranges), forwarded)

    def __str__(self) -> str:
        """Return the rules as `of` takes them, with ``forwarded`` at the end if they are for such packets, too."""
        told = self.protocols - {ICMPV6} if ICMP in self.protocols else self.protocols
        names = {number: name for name, number in PROTOCOLS.items()}
        rules = [names.get(number, str(number)) for number in sorted(told)] if len(self.protocols) < 256 else [ALL]
        rules += [f"udp:{first}" if first == last else f"udp:{first}-{last}" for first, last in self.udp]
        return ",".join(rules + ["forwarded"] * self.forwarded)

    def sprays(self, key: FlowKey) -> bool:
        """Tell whether a flow is sprayed; fragments, whose ports are not known, are by their protocol alone."""
        if key.proto & 0xFF in self.protocols:
            return True
        if key.protocol != UDP:
            return False
        return any(first <= port <= last for port in (key.ports >> 16, key.ports & 0xFFFF) for first, last in self.udp)

    def hashed(self, key: FlowKey) -> FlowKey:
        """Return what is hashed for a flow: all fragments of two hosts and a protocol that is not sprayed have one path."""
        return key._replace(ports=0) if key.proto & FRAGMENT_KEY and not self.sprays(key) else key

    def encode(self) -> bytes:
        """Return the rules as the program's map has them."""
        bits = sum(1 << number for number in range(256) if number not in self.protocols)
        ports = [port for pair in self.udp for port in pair]
        kept = (bits >> 64 * word & (1 << 64) - 1 for word in range(4))
        return _SPRAY.pack(*kept, self.forwarded, len(self.udp), *ports, *[0] * (2 * MAX_RANGES - len(ports)))


EVERYTHING = Spray()


def _ports(rule: str, text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    numbers = [int(port) for port in (first, last if dash else first) if port.isascii() and port.isdigit() and len(port) < 6]
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] <= 0xFFFF:
        raise ValueError(f"rule {rule!r}: write udp:PORT or udp:FIRST-LAST, ports from 0 to 65535, {EXAMPLE}")
    return numbers[0], numbers[1]
