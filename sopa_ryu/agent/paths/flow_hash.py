"""The flow hash of the eBPF program and the choices made from it, number for number (bpf/flowhash.h). Pure.

Hashes and ports are unsigned integers in host order.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import NamedTuple

FRAGMENT_KEY = 0x100
_MASK = (1 << 64) - 1
_MIX_0, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class FlowKey(NamedTuple):
    """The key of a flow in the program's map; all numbers in host order.

    ``ports`` is ``source << 16 | destination``, an ICMP echo's identifier, or a fragment's IPv4
    identification, and 0 where there is none of these; ``proto`` is the IPv4 protocol number, plus
    `FRAGMENT_KEY` for a fragment.
    """

    saddr: int
    daddr: int
    ports: int
    proto: int

    @classmethod
    def of(cls, src: IPv4Address | str, dst: IPv4Address | str, proto: int, sport: int = 0, dport: int = 0) -> FlowKey:
        """Return the key of a flow between two addresses; ``ValueError`` for a malformed one."""
        return cls(int(IPv4Address(src)), int(IPv4Address(dst)), sport << 16 | dport, proto)


def mix64(x: int) -> int:
    """Return the finaliser of splitmix64 for 64 bits.

    Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
    """
    x = (x ^ x >> 30) * _MIX_1 & _MASK
    x = (x ^ x >> 27) * _MIX_2 & _MASK
    return x ^ x >> 31


def flow_hash(key: FlowKey, seed: int) -> int:
    """Return the 32-bit hash of a flow under a 32-bit seed.

    The hash decides where in the round-robin order of 4 candidate paths a flow starts:

    >>> key = FlowKey.of("10.0.0.2", "10.2.1.3", 6, 40000, 5001)
    >>> flow_hash(key, seed=1)
    2974046264
    >>> [round_robin(flow_hash(key, seed=1), n, 4) for n in range(6)]
    [2, 3, 0, 1, 2, 3]
    """
    x = (key.saddr << 32 | key.daddr) + seed * _MIX_0 & _MASK
    x = (x ^ x >> 32) * _MIX_1 & _MASK
    x ^= key.ports << 32 | key.proto
    return mix64(x) >> 32


def scaled(bits: int, count: int) -> int:
    """Return an even choice from ``0 .. count - 1`` by 32 random bits."""
    return bits * count >> 32


def round_robin(hash_: int, n: int, count: int) -> int:
    """Return the index of the path of a flow's packet ``n`` (from 0): each of ``count`` in turn, from the flow's own start."""
    return (n + scaled(hash_, count)) % count


def random_choice(hash_: int, n: int, count: int) -> int:
    """Return the index of the path of a flow's packet ``n`` (from 0): pseudorandom, and the same for the same seed."""
    return scaled(mix64((hash_ << 32) + (n + 1) * _MIX_0 & _MASK) >> 32, count)
