"""Which way the switches send a flow without a label: by the hashes of `flowrules.upward`, computed. Pure.

The hash (`flowrules.model.HashOver`) is that of the action ``bundle`` with the algorithm ``hrw`` over the fields
``symmetric_l3l4+udp`` (ovs-actions(7)), in a build for processors in general, as distributions have it: one for SSE4.2 or for ARM's
CRC32 mixes with the processor's own instruction and chooses other ports. Little-endian machines only.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from struct import iter_unpack
from typing import NamedTuple

from flowrules.steering import allowed_uplinks, hash_slots
from topologies.failures import Failures
from topologies.structure import Clos, Host, Level, Switch

TCP, UDP, SCTP = 6, 17, 132
WITH_PORTS = (TCP, UDP, SCTP)
"""The protocols whose ports are hashed."""
_MASK = 0xFFFFFFFF


class FiveTuple(NamedTuple):
    """A flow: the ports are 0 where its protocol has none."""

    src: IPv4Address | IPv6Address
    dst: IPv4Address | IPv6Address
    protocol: int = TCP
    sport: int = 0
    dport: int = 0


def chosen(flow: FiveTuple, ports: Sequence[int], basis: int) -> int | None:
    """Return the port of ``ports`` that a flow leaves by; None if there is none.

    The ports are the live ones, in the order of the action; one that is named more often gets more flows. By highest random weight:
    each place in the list has a hash with the flow, and the highest wins (Thaler, Ravishankar, IEEE/ACM Transactions on Networking
    6(1), 1998). Actions of other bases choose independently.

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
    ends = (int(flow.src) ^ int(flow.dst)).to_bytes(flow.src.max_prefixlen // 8, "big")
    words = [*(word for (word,) in iter_unpack("<I", ends)), flow.protocol]
    if flow.protocol in WITH_PORTS:
        words.append(int.from_bytes((flow.sport ^ flow.dport).to_bytes(2, "big"), "little"))
    hashed = basis
    for word in words:
        hashed = _add(hashed, word)
    return _finish(hashed ^ basis)


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


class HashedWay(NamedTuple):
    """The way of a flow that the switches hash, by its uplinks; None if a switch on the way has no uplink left and drops it.

    ``reachable`` are all ways that some flow between these hosts may take.
    """

    up: tuple[int, ...] | None
    reachable: tuple[tuple[int, ...], ...]


def hashed_way(failures: Failures, src: Host, dst: Host, flow: FiveTuple) -> HashedWay:
    """Return the way of a flow from one host to another, once all switches have the rules for these failures.

    Until then a switch may send it elsewhere: around a port that has just lost its link.

    >>> from ipaddress import IPv4Address
    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> flow = FiveTuple(IPv4Address("10.0.0.2"), IPv4Address("10.2.1.3"), 6, 40000, 5201)
    >>> hashed_way(Failures(tree), tree.host("h0_0_2"), tree.host("h2_1_3"), flow).up
    (1, 0)
    """
    tree = failures.tree
    edge, rack = tree.edge_of(src), tree.edge_of(dst)
    if edge == rack:
        return HashedWay((), ((),))
    first = _slots(failures, edge, rack)
    if edge.pod == rack.pod:
        up1 = _uplink(tree, edge, first, flow)
        return HashedWay(None if up1 is None else (up1,), tuple((up,) for up in sorted(set(first))))
    above = {up: _slots(failures, Switch(Level.AGGREGATION, edge.pod, up), rack) for up in sorted(set(first))}
    reachable = tuple((one, two) for one, slots in above.items() for two in sorted(set(slots)))
    up1 = _uplink(tree, edge, first, flow)
    if up1 is None:
        return HashedWay(None, reachable)
    up2 = _uplink(tree, Switch(Level.AGGREGATION, edge.pod, up1), above[up1], flow)
    return HashedWay(None if up2 is None else (up1, up2), reachable)


def _slots(failures: Failures, switch: Switch, rack: Switch) -> tuple[int, ...]:
    """Return the uplinks over which a switch hashes flows for a rack, by weight."""
    tree = failures.tree
    if not failures and tree.even:
        return tree.uplinks(switch)
    allowed = allowed_uplinks(tree, switch, failures, pods=(rack.pod,))
    return hash_slots(switch, failures, allowed)[rack]


def _uplink(tree: Clos, switch: Switch, slots: tuple[int, ...], flow: FiveTuple) -> int | None:
    """Return the uplink that a switch sends a flow to."""
    ports = tuple(tree.uplink_port(switch.level, index) for index in slots)
    port = chosen(flow, ports, basis=switch.level)
    return None if port is None else slots[ports.index(port)]
