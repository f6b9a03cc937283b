"""The path table: all that the choice of a packet's path depends on, as plain data and as the bytes in the kernel.

Pure. The layout is that of bpf/maps.h, in 8-byte words of the machine's byte order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import NamedTuple

from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, IPV6_KEY, FlowKey, flow_hash, mix64, random_choice, round_robin, scaled
from topologies.identity import Host

_FIRST_GROUP = 0xE  # addresses from 224.0.0.0 on are no single host's

Label = tuple[int, int]
"""The two hop bytes of a path, 0xff for a hop that it does not take."""

WORD_BYTES = 8
_FABRIC = struct.Struct("=II")
_CHOICE = struct.Struct("=IHBB")
_DESTINATION = struct.Struct("=II")
_PARAMETER = struct.Struct("=Q")
_OUTSIDE = struct.Struct("=IBBxx")
_PREFIX = struct.Struct("=Q")
_SRV6 = struct.Struct("=I4B")
_HEADER_WORDS = 6
_MAX_CANDIDATES, _MAX_WORDS = (1 << 13) - 1, 1 << 24  # what a flow's state has room for (bpf/choose.h)


class Policy(IntEnum):
    """The rule that chooses a packet's path from its destination's candidates, by the numbers of bpf/maps.h."""

    ROUND_ROBIN = 0
    """Each candidate in turn, for each flow from a start of its own."""
    RANDOM = 1
    """A random candidate for each packet."""
    HASH = 2
    """One candidate per flow."""
    LEAST_USED = 3
    """The candidate that has carried the fewest bytes of all flows from this host, counted per processor. (PLTS-CNT of Dixit et
    al., SIGCOMM 2011, is another one: switches count what their ports carry.) It compares at most 8 (Mitzenmacher, 2001): those
    that follow each other in round-robin order from a random place on. One that was excluded for long counts as 64 KB behind the
    others. It evens the bytes of all candidates, whose weights decide only how often each is compared."""
    FLOWLET = 4
    """A random candidate after each gap in the flow (LetFlow: Vanini et al., NSDI 2017)."""
    FLOWCELL = 5
    """The next candidate after a number of bytes of the flow (Presto: He et al., SIGCOMM 2015)."""
    SOPA_SKIP = 7
    """`ROUND_ROBIN`, and a path to a rack that has more than its part of this host's retransmissions loses 4 turns for each, 15
    after a timeout (the bitmap of ultraethernet/uet-htsim, without marks)."""

    @property
    def option_name(self) -> str:
        """The policy's name on the command line, such as ``round-robin``."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def named(cls, name: str) -> Policy:
        """Return the policy of a name on the command line; `ValueError` with all names for an unknown one."""
        try:
            return cls[name.upper().replace("-", "_")]
        except KeyError:
            names = ", ".join(policy.option_name for policy in cls)
            raise ValueError(f"unknown policy {name!r}: choose from {names}") from None


PARAMETERS = {Policy.FLOWLET: 500_000, Policy.FLOWCELL: 65_536}
"""The default of a policy's parameter: the gap in nanoseconds, the cell in bytes."""


GATEWAY_SLOTS = 256
GATEWAY_SEED = 0x6F757473


class WayOut(NamedTuple):
    """A gateway that packets to the outside may take: its Ethernet address, and the labels of the candidate paths to it."""

    mac: bytes
    labels: tuple[Label, ...]


@lru_cache(maxsize=1 << 10)
def _preference(mac: bytes) -> tuple[int, ...]:
    """Return how much each slot prefers a gateway: each takes the one that it prefers most."""
    return tuple(mix64(int.from_bytes(mac, "big") << 16 | slot) for slot in range(GATEWAY_SLOTS))


class PathTable(NamedTuple):
    """The candidate paths from one host to every destination rack.

    Attributes:
        network: The fabric; packets to other addresses are not labelled.
        stride: Edge switches per pod, 1 to 255. Destination index = pod octet * stride + edge octet.
        sets: The distinct path sets, each with its labels in the order of their turns; one of more weight occurs more often.
        destinations: By destination index: an index in ``sets``, or -1 where no path is left.
        seed: 32 bits that decide every flow's start and every random choice.
        parameter: `Policy.FLOWLET`: the gap in nanoseconds; `Policy.FLOWCELL`: the cell in bytes.
        ways_out: The gateways to which packets to other addresses go, each flow's to one of them; without any they are not
            labelled.
        leads_out: This host is a gateway: forwarded packets with a source outside the fabric are labelled, too.
        prefix: Of the fabric's IPv6 addresses, a /48; None if IPv6 is not labelled.
        spreads: The edge switch's port has the same sets, and spreads the packets of a burst (`Carrier.ID`).
        srv6: With `Carrier.SRV6`: the 32 bits of the block of uSIDs, and the host that sends.

    A fabric with one pod of two racks: one path set for the own rack, one for the other.

    >>> own, other = ((0xFF, 0xFF),), ((0, 0xFF), (1, 0xFF))
    >>> table = PathTable(IPv4Network("10.0.0.0/8"), stride=2, sets=(own, other), destinations=(0, 1))
    >>> table.candidates(IPv4Address("10.0.1.2"))
    ((0, 255), (1, 255))
    >>> key = FlowKey.of("10.0.0.2", "10.0.1.2", 6, 40000, 5001)
    >>> [table.choose(key, n) for n in range(3)]
    [(1, 255), (0, 255), (1, 255)]
    >>> len(table.encode()) == 8 * table.words
    True
    """

    network: IPv4Network
    stride: int
    sets: tuple[tuple[Label, ...], ...]
    destinations: tuple[int, ...]
    seed: int = 0
    policy: Policy = Policy.ROUND_ROBIN
    parameter: int = 0
    ways_out: tuple[WayOut, ...] = ()
    leads_out: bool = False
    spreads: bool = False
    prefix: IPv6Network | None = None
    srv6: tuple[int, Host] | None = None

    @property
    def cut_off(self) -> int:
        """The number of racks to which no path is left."""
        return self.destinations.count(-1)

    @property
    def prefix_bits(self) -> int:
        """The upper 64 bits of the prefix; 0 without one."""
        return 0 if self.prefix is None else int(self.prefix.network_address) >> 64

    @property
    def words(self) -> int:
        """The number of 8-byte words of the encoded table."""
        slots = GATEWAY_SLOTS if self.ways_out else 0
        return _HEADER_WORDS + len(self.destinations) + sum(map(len, self._every_set())) + slots

    def _every_set(self) -> Iterator[tuple[Label, ...]]:
        yield from self.sets
        yield from (way.labels for way in self.ways_out)

    def encode(self) -> bytes:
        """Return the table as the kernel's map contains it, 8 bytes a word.

        Raises:
            ValueError: For a stride, seed, policy, hop byte, set index or number of candidates that the layout has no room for.
        """
        if not 1 <= self.stride <= 255 or len(self.destinations) > 256 * self.stride:
            raise ValueError(f"stride {self.stride} cannot index {len(self.destinations)} destinations: "
                             "it is the number of edge switches per pod, 1 to 255, for at most 256 pods")  # fmt: skip
        if not 0 <= self.seed < 1 << 32:
            raise ValueError(f"the seed has 32 bits: {self.seed} is not in 0 .. 4294967295")
        if self.words > _MAX_WORDS or max(map(len, self._every_set()), default=0) > _MAX_CANDIDATES:
            raise ValueError(
                f"the table has room for {_MAX_CANDIDATES} candidates of a rack and {_MAX_WORDS} words, not for "
                f"{max(map(len, self._every_set()))} and {self.words}"
            )
        places, labels = [], bytearray()
        first = _HEADER_WORDS + len(self.destinations)
        for candidates in self.sets:
            places.append(_DESTINATION.pack(first + len(labels) // WORD_BYTES, len(candidates)))
            for label in candidates:  # bytes() refuses hop values outside 0..255
                labels += bytes(label).ljust(WORD_BYTES, b"\0")
        exits = []
        for way in self.ways_out:
            exits.append(_DESTINATION.pack(first + len(labels) // WORD_BYTES, len(way.labels)))
            labels += b"".join(bytes(label) + way.mac for label in way.labels)
        first_slot = first + len(labels) // WORD_BYTES
        labels += b"".join([exits[index] for index in self.slots])
        if any(not -1 <= index < len(places) for index in self.destinations):
            raise ValueError(f"a destination refers to a set outside 0 .. {len(places) - 1} (-1: no path)")
        places.append(_DESTINATION.pack(0, 0))  # reached as index -1
        fabric = _FABRIC.pack(int(self.network.network_address), int(self.network.netmask))
        choice = _CHOICE.pack(self.seed, len(self.destinations), self.stride, Policy(self.policy))
        if not 0 <= self.parameter < 1 << 63 or (self.policy in PARAMETERS and not self.parameter):
            raise ValueError(f"{self.policy.name.lower()} needs a parameter of 1 to 2^63 - 1, not {self.parameter}")
        return (
            fabric
            + choice
            + _PARAMETER.pack(self.parameter)
            + _OUTSIDE.pack(first_slot, bool(self.ways_out), self.leads_out)
            + _PREFIX.pack(self.prefix_bits)
            + _SRV6.pack(*(0, 0, 0, 0) if self.srv6 is None else (self.srv6[0], *self.srv6[1]), 0)
            + b"".join([places[index] for index in self.destinations])
            + labels
        )

    def candidates(self, destination: IPv4Address | int) -> tuple[Label, ...] | None:
        """Return the labels of the candidate paths to a destination address; None outside the fabric."""
        address = int(destination)
        edge = address >> 8 & 0xFF
        index = (address >> 16 & 0xFF) * self.stride + edge
        if IPv4Address(address) not in self.network or edge >= self.stride or index >= len(self.destinations):
            return None
        return () if self.destinations[index] < 0 else self.sets[self.destinations[index]]

    @property
    def slots(self) -> tuple[int, ...]:
        """The index in `ways_out` that each slot has; none without gateways.

        A gateway that is added or removed changes its own slots only (rendezvous hashing: Thaler, Ravishankar, IEEE/ACM
        Transactions on Networking 6(1), 1998).
        """
        preferences = [_preference(way.mac) for way in self.ways_out]
        indices = range(len(preferences))
        return tuple(
            max(indices, key=lambda index: preferences[index][slot]) for slot in (range(GATEWAY_SLOTS) if preferences else ())
        )

    def way_out(self, key: FlowKey) -> WayOut | None:
        """Return the gateway of a flow to the outside, whose Ethernet address its packets get; None for any other."""
        if not key.leaves or not self.ways_out or (not key.proto & IPV6_KEY and key.daddr >> 28 >= _FIRST_GROUP):
            return None
        if key.proto & FRAGMENT_KEY:  # later fragments have no ports
            key = key._replace(ports=0, proto=key.proto & ~FRAGMENT_KEY)
        return self.ways_out[self.slots[flow_hash(key, GATEWAY_SEED) % GATEWAY_SLOTS]]

    def choose(self, key: FlowKey, n: int) -> Label | None:
        """Return the label that the eBPF program writes into packet ``n`` (from 0) of a flow; None if it writes none.

        ``n`` is the number of the flowlet or cell with `Policy.FLOWLET` and `Policy.FLOWCELL`. The choice of `Policy.LEAST_USED`
        depends on the bytes of all flows; here it is that of round-robin.
        """
        way = self.way_out(key)
        candidates = way.labels if way else None if key.leaves else self.candidates(key.daddr)
        if not candidates:
            return None
        hash_, count = flow_hash(key, self.seed), len(candidates)
        if self.policy is Policy.HASH or key.proto & FRAGMENT_KEY:
            return candidates[scaled(hash_, count)]
        at_random = self.policy in (Policy.RANDOM, Policy.FLOWLET)
        return candidates[(random_choice if at_random else round_robin)(hash_, n, count)]
