"""The hash by which Open vSwitch sends a flow without a label out of one of several ports (`flowrules.model.HashOver`). Pure.

It is that of the action ``bundle`` with the algorithm ``hrw`` over the fields ``symmetric_l3l4+udp`` (ovs-actions(7)), in a build
for processors in general, as distributions have it: one for SSE4.2 or for ARM's CRC32 mixes with the processor's own instruction
and chooses other ports. Little-endian machines only.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

TCP, UDP, SCTP = 6, 17, 132
WITH_PORTS = (TCP, UDP, SCTP)
"""The protocols whose ports are hashed."""
_MASK = 0xFFFFFFFF


class FiveTuple(NamedTuple):
    """A flow: the ports are 0 where its protocol has none."""

    src: IPv4Address
    dst: IPv4Address
    protocol: int = TCP
    sport: int = 0
    dport: int = 0


def chosen(flow: FiveTuple, ports: Sequence[int], basis: int) -> int | None:
    """Return the port of ``ports`` that a flow leaves by; None if there is none.

    Args:
        ports: The live ones, in the order of the action; one that is named more often gets more flows.
        basis: Of the action: other bases choose independently.

    Returns:
        By highest random weight: each place in the list has a hash with the flow, and the highest wins (Thaler, Ravishankar,
        IEEE/ACM Transactions on Networking 6(1), 1998).

    >>> flow = FiveTuple(IPv4Address("10.0.0.2"), IPv4Address("10.2.1.3"), TCP, 40000, 5201)
    >>> [chosen(flow, (3, 4), basis) for basis in range(6)]
    [3, 4, 3, 4, 3, 4]
    """
    if not ports:
        return None
    hashed = _symmetric(flow, basis)
    # the first of equals, as Open vSwitch has it
    return ports[max(range(len(ports)), key=lambda place: _two_words(place, hashed))]


def _symmetric(flow: FiveTuple, basis: int) -> int:
    """Return the hash of a flow, which is that of its opposite direction, too."""
    words = [_swapped(int(flow.src) ^ int(flow.dst), 4), flow.protocol]
    if flow.protocol in WITH_PORTS:
        words.append(_swapped(flow.sport ^ flow.dport, 2))
    hashed = basis
    for word in words:
        hashed = _add(hashed, word)
    return _finish(hashed ^ basis)


def _swapped(number: int, size: int) -> int:
    """Return a number of the packet as a little-endian machine reads it."""
    return int.from_bytes(number.to_bytes(size, "big"), "little")


def _two_words(one: int, other: int) -> int:
    return _finish(_add(_add(one, 0), other) ^ 8)


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


def _add(hashed: int, word: int) -> int:
    """Mix a word in: MurmurHash3 for 32 bits (Appleby, 2011)."""
    word = _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotated(hashed ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _finish(hashed: int) -> int:
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    return hashed ^ hashed >> 16
