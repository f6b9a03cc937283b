"""The eBPF program's hash and choices in Python, number for number (bpf/flowhash.h): for tests, simulation
and explanations.

Pure. Hashes and ports are unsigned integers in host order.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import NamedTuple

FRAGMENT_KEY = 0x100
_MASK = (1 << 64) - 1
_MIX_0, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class FlowKey(NamedTuple):
    """A flow as the program tells flows apart; all numbers in host order.

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
        """The key of a flow between two addresses; ``ValueError`` for a malformed one."""
        return cls(int(IPv4Address(src)), int(IPv4Address(dst)), sport << 16 | dport, proto)


def mix64(x: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA
    2014)."""
    x = (x ^ x >> 30) * _MIX_1 & _MASK
    x = (x ^ x >> 27) * _MIX_2 & _MASK
    return x ^ x >> 31


def flow_hash(key: FlowKey, seed: int) -> int:
    """The 32-bit hash of a flow under a 32-bit seed."""
    x = (key.saddr << 32 | key.daddr) + seed * _MIX_0 & _MASK
    x = (x ^ x >> 32) * _MIX_1 & _MASK
    x ^= key.ports << 32 | key.proto
    return mix64(x) >> 32


def scaled(bits: int, count: int) -> int:
    """An even choice from ``0 .. count - 1`` by 32 random bits."""
    return bits * count >> 32


def round_robin(hash_: int, n: int, count: int) -> int:
    """The position of a flow's packet ``n`` (from 0): each of ``count`` once per turn, from the flow's own
    start."""
    return (n + scaled(hash_, count)) % count


def random_choice(hash_: int, n: int, count: int) -> int:
    """The position of a flow's packet ``n`` (from 0), as good as random, and the same for the same seed."""
    return scaled(mix64((hash_ << 32) + (n + 1) * _MIX_0 & _MASK) >> 32, count)
