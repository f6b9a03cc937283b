"""The tables of packets on their way up: *up* follows a packet's label, *unlabelled* hashes its flow.

While nothing has failed and capacities are even, the entries are the same for all destinations. Packets are steered away from an
uplink (`flowrules.steering`) in both tables: a sender that does not know of a remote failure yet, or whose agent has died, still
names paths that have failed. Where the paths by some uplinks have more weight than those by others, *unlabelled* has their ports
more often in the list that it hashes over.

An entry that reads a hop of the label writes `label.UNUSED` over it. So all labelled packets reach their receiver with one and the
same Ethernet source address, and Linux merges those of a flow before TCP sees them (generic receive offload, which compares the
whole Ethernet header). Open vSwitch keeps a cached decision for each value of the bits that an action sets: these have been
matched anyway, whereas a new source address at the last switch would multiply its decisions by the number of paths.

A *self-probe* (docs/probes.md) leads up to a switch and back to the host that has sent it. Its Ethernet destination is `TURN_MAC`,
so that no switch takes its destination for one below. Its label has numbers of ports, not of uplinks: no entry steers it, and no
group leads it around a port that is down, as it tells what the link is like that it names. It turns at a core switch, or at the
aggregation switch for which its label has no port.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network

from flowrules import label
from flowrules.model import IN_PORT, Bucket, ConsumeHop, Field, Flow, Group, HashOver, Output, OutputHop, Table, ToGroup, destined
from flowrules.steering import steering
from topologies.failures import Failures
from topologies.structure import TURN_MAC, Clos, Level, Switch

STEERED = 30  # above the entries for labels to all destinations; a longer prefix adds its rank
RANK = {16: 16, 24: 24, 56: 16, 64: 24}
"""By the length of a pod's and a rack's prefix: entries of all families have the priorities of IPv4's."""


def upward(tree: Clos, switch: Switch, failures: Failures | None) -> Iterator[Flow]:
    """Yield the entries of `Table.UP` and `Table.UNLABELLED` of an edge or aggregation switch."""
    everyone = tree.uplinks(switch)
    yield from _labels(switch.level, everyone)
    for below, uplinks, inherited, slots, inherited_slots in steering(tree, switch, failures):
        for prefix in (None,) if below is None else (family.prefix(below) for family in tree.families):
            if prefix is None or slots != inherited_slots:
                ports = tuple(tree.uplink_port(switch.level, index) for index in slots)
                yield _hash(switch.level, prefix, ports, uplinks == everyone)
            if uplinks != inherited:
                yield from _steered_labels(switch.level, prefix, uplinks, inherited)


@lru_cache
def turned(level: Level) -> tuple[Flow, ...]:
    """Return the entries for self-probes that come from below; ``level`` is the core's of every switch without uplinks."""
    match: tuple[Field, ...] = (("eth_dst", TURN_MAC),)
    here = (Output(IN_PORT),)
    if level is Level.CORE:
        return (Flow(Table.DOWN, 45, match, "self-probe: turn here", apply=here),)
    match = (("metadata", 0), *match)
    up = (*match, ("eth_src", label.LABELLED))
    last = (*match, ("eth_src", label.match_hop(1, label.UNUSED)))
    return (
        Flow(Table.DOWN, 45, up, "self-probe: up", apply=(OutputHop(_hop(level)),)),
        *([Flow(Table.DOWN, 46, last, "self-probe: turn here", apply=here)] if level is Level.AGGREGATION else []),
    )


def groups(tree: Clos, switch: Switch) -> tuple[Group, ...]:
    """Return one group for each uplink: its buckets are that uplink and then the following ones, in a circle."""
    return _groups(tree.uplinks(switch), tree.uplink_port(switch.level, 0))


@lru_cache
def _groups(uplinks: tuple[int, ...], first_port: int) -> tuple[Group, ...]:
    buckets = [Bucket(first_port + index) for index in uplinks]
    return tuple(Group(_group_id(index), (*buckets[at:], *buckets[:at])) for at, index in enumerate(uplinks))


def _group_id(index: int) -> int:
    return index + 1


@lru_cache
def _labels(level: Level, uplinks: tuple[int, ...]) -> tuple[Flow, ...]:
    return (
        *(_follow(level, index, 20, None) for index in uplinks),
        _unfollowed(level, 10, (("eth_src", label.LABELLED),), "up index out of range: as unlabelled"),
        Flow(Table.UP, 0, (), "no word", goto=Table.UNLABELLED),
    )


@lru_cache(maxsize=1 << 14)
def _steered_labels(
    level: Level, prefix: IPv4Network | IPv6Network | None, uplinks: tuple[int, ...], inherited: tuple[int, ...]
) -> tuple[Flow, ...]:
    """Return the fewest entries after which exactly the labels that name one of ``uplinks`` are followed for ``prefix``."""
    priority = STEERED + (RANK[prefix.prefixlen] if prefix else 0)
    different = sorted(set(uplinks) ^ set(inherited))
    if len(different) <= 1 + len(uplinks):
        return tuple((_follow if index in uplinks else _ignore)(level, index, priority + 1, prefix) for index in different)
    every = (*(destined(prefix) if prefix else ()), ("eth_src", label.LABELLED))
    return (
        _unfollowed(level, priority, every, "no way by most uplinks: as unlabelled"),
        *(_follow(level, index, priority + 1, prefix) for index in uplinks),
    )


def _follow(level: Level, index: int, priority: int, prefix: IPv4Network | IPv6Network | None) -> Flow:
    hop, match = _naming(level, index, prefix)
    actions = (ConsumeHop(hop), ToGroup(_group_id(index)))
    return Flow(Table.UP, priority, match, f"up{hop + 1} names this uplink", apply=actions)


def _ignore(level: Level, index: int, priority: int, prefix: IPv4Network | IPv6Network | None) -> Flow:
    hop, match = _naming(level, index, prefix)
    purpose = f"no way by the uplink that up{hop + 1} names: as unlabelled"
    return _unfollowed(level, priority, match, purpose)


def _unfollowed(level: Level, priority: int, match: tuple[Field, ...], purpose: str) -> Flow:
    """Return an entry for labelled packets that are treated as unlabelled."""
    return Flow(Table.UP, priority, match, purpose, apply=(ConsumeHop(_hop(level)),), goto=Table.UNLABELLED)


def _hop(level: Level) -> int:
    """Return the label's hop, 0 or 1, that a switch of this level reads."""
    return 0 if level is Level.EDGE else 1


def _naming(level: Level, index: int, prefix: IPv4Network | IPv6Network | None) -> tuple[int, tuple[Field, ...]]:
    """Return the label's hop of this level, and the match of packets for ``prefix`` whose label names that uplink."""
    hop = _hop(level)
    return hop, (*(destined(prefix) if prefix else ()), ("eth_src", label.match_hop(hop, index)))


@lru_cache(maxsize=1 << 14)
def _hash(level: Level, prefix: IPv4Network | IPv6Network | None, ports: tuple[int, ...], every: bool) -> Flow:
    """Return the entry that hashes unlabelled packets for ``prefix`` over the ports of those uplinks, or of every one."""
    match = destined(prefix) if prefix else ()
    priority = RANK[prefix.prefixlen] if prefix else 0
    if not ports:
        return Flow(Table.UNLABELLED, priority, match, "no way left: drop")
    purpose = "hash per flow" if every else "hash per flow, around a failure"
    if len(set(ports)) < len(ports):
        purpose += ", by weight"
    return Flow(Table.UNLABELLED, priority, match, purpose, apply=(HashOver(ports, basis=level),))
