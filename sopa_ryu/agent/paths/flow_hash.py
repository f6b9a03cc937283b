"""The flow hash of the eBPF program and the choices made from it, number for number (bpf/flowhash.h). Pure.

Hashes and ports are unsigned integers in host order.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from topologies.structure import FABRIC_NETWORK

FRAGMENT_KEY, IPV6_KEY, FROM_OUTSIDE, TO_OUTSIDE = 0x100, 0x200, 0x400, 0x800
_LOW = (1 << 64) - 1
_RACKS = 0xFFFF
_MASK = (1 << 64) - 1
_MIX_0, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Address = IPv4Address | IPv6Address


class FlowKey(NamedTuple):
    """The key of a flow in the program's map; all numbers in host order.

    ``ports`` is ``source << 16 | destination``, an ICMP echo's identifier, or a fragment's identification; where
    there is none of these it is 0, and with IPv6 the flow label. ``proto`` is the protocol number, plus `FRAGMENT_KEY` for
    a fragment, and with IPv6 `IPV6_KEY`, and what says of each address that it is none of the fabric. An IPv6 address has 32
    bits here: those of the same host's IPv4 address, and a hash where it is no host's of the fabric.
    """

    saddr: int
    daddr: int
    ports: int
    proto: int

    @classmethod
    def of(
        cls, src: Address | str, dst: Address | str, proto: int, sport: int = 0, dport: int = 0, prefix: IPv6Network | None = None
    ) -> FlowKey:
        """Return the key of a flow between two addresses of one family; ``ValueError`` for others.

        Args:
            prefix: The fabric's, which IPv6 addresses need.

        >>> fabric = IPv6Network("fd53:4f50:4100::/48")
        >>> key = FlowKey.of("fd53:4f50:4100::2", "fd53:4f50:4100:201::3", 6, 40000, 5001, fabric)
        >>> str(IPv4Address(key.daddr)), key._replace(proto=6) == FlowKey.of("10.0.0.2", "10.2.1.3", 6, 40000, 5001)
        ('10.2.1.3', True)
        """
        source, destination = ip_address(src), ip_address(dst)
        if isinstance(source, IPv4Address) and isinstance(destination, IPv4Address):
            return cls(int(source), int(destination), sport << 16 | dport, proto)
        if not isinstance(source, IPv6Address) or not isinstance(destination, IPv6Address) or prefix is None:
            raise ValueError(f"{src} and {dst} are no two addresses of one family that the fabric has")
        proto |= IPV6_KEY | (source not in prefix and FROM_OUTSIDE) | (destination not in prefix and TO_OUTSIDE)
        return cls(short_address(source, prefix), short_address(destination, prefix), sport << 16 | dport, proto)

    @property
    def protocol(self) -> int:
        """The protocol number, plus `FRAGMENT_KEY` for a fragment."""
        return self.proto & (FRAGMENT_KEY | 0xFF)

    @property
    def leaves(self) -> bool:
        """Whether the destination is no address of the fabric."""
        if self.proto & IPV6_KEY:
            return bool(self.proto & TO_OUTSIDE)
        return IPv4Address(self.daddr) not in FABRIC_NETWORK


def short_address(address: IPv6Address, prefix: IPv6Network) -> int:
    """Return an IPv6 address in 32 bits: of the fabric by its rack and number, as the same host's IPv4 address; else a hash."""
    high, low = int(address) >> 64, int(address) & _LOW
    if address not in prefix:
        return mix64(high + low * _MIX_0 & _MASK) >> 32
    for half in (32, 16, 8):
        low ^= low >> half
    return int(FABRIC_NETWORK.network_address) | (high & _RACKS) << 8 | low & 0xFF


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
