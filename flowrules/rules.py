"""The rules of every switch of a fat-tree, healthy or not.

A packet's way through the tables of one switch: *ingress* (may this packet come in by this port?), *down* (is its destination
below?), *up* (which uplink does its word name?), *unlabelled* (which uplink does its flow hash to?), *deliver* (has the host at
that port another Ethernet address than planned?). What came from above is marked and never goes up again: the fabric is
valley-free by construction. The source of the tables is DESIGN, section 4; of the prefixes, Al-Fares et al., section 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network

from flowrules import word
from flowrules.model import (
    AnswerArp,
    Bucket,
    Field,
    Flow,
    Group,
    HashOver,
    LearnSender,
    Output,
    SetField,
    SwitchRules,
    Table,
    ToGroup,
)
from flowrules.steering import allowed_uplinks
from topologies.failures import Failures
from topologies.fattree import FABRIC_NETWORK, GATEWAY_MAC, FatTree, Level, Switch

ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ARP_REQUEST = 1
DESCENDING = 1  # metadata of a packet that came from above

IPV4: Field = ("eth_type", ETH_IPV4)
ARP: Field = ("eth_type", ETH_ARP)


def switch_rules(tree: FatTree, switch: Switch, failures: Failures | None = None) -> SwitchRules:
    """Every flow entry and group that a switch should hold.

    Parameters
    ----------
    tree : FatTree
    switch : Switch
        A switch of that fat-tree.
    failures : Failures, optional
        What has failed or is drained. Labelled packets need no rule for it (the hosts stop naming such paths, and the groups
        cover what is under way); unlabelled ones are steered around remote failures by extra entries.

    Returns
    -------
    SwitchRules
        For a healthy fabric at most 2k + 16 flow entries. Entries that do not depend on the switch are shared objects.
    """
    if switch.level is Level.CORE:
        return SwitchRules((*_from_above(False), *_core_down(tree), *_down_misses(None)), ())
    edge = switch.level is Level.EDGE
    flows = (
        *(_edge_ingress(tree, switch) if edge else _aggregation_ingress(tree)),
        *_from_above(True),
        *(_edge_down(tree, switch) if edge else _aggregation_down(tree, switch)),
        *_down_misses(str(tree.prefix(switch).network_address), str(tree.prefix(switch).netmask)),
        *_up(tree, switch.level),
        *_unlabelled(tree, switch, failures),
        *(_DELIVER if edge else ()),
    )
    return SwitchRules(flows, _groups(tree))


def fabric_rules(tree: FatTree, failures: Failures | None = None) -> Iterator[tuple[Switch, SwitchRules]]:
    """The rules of every switch, in the order of the datapath ids."""
    return ((switch, switch_rules(tree, switch, failures)) for switch in tree.switches())


def _edge_ingress(tree: FatTree, edge: Switch) -> Iterator[Flow]:
    yield from _arp(f"02:00:0a:{edge.pod:02x}:{edge.index:02x}:00")
    for host in tree.hosts_of(edge):
        port: Field = ("in_port", tree.port(edge, host))
        source: Field = ("ipv4_src", str(tree.ip(host)))
        yield Flow(Table.INGRESS, 30, (port, IPV4, source), "host's own address", goto=Table.DOWN)
        yield Flow(Table.INGRESS, 20, (port,), "foreign source or protocol: drop")


def _arp(planned: str) -> Iterator[Flow]:
    request: tuple[Field, ...] = (ARP, ("arp_op", ARP_REQUEST))
    answer = AnswerArp(GATEWAY_MAC)
    # A probe (RFC 5227, section 2.1.1) asks whether an address is free: an answer would keep the host from using its own.
    yield Flow(Table.INGRESS, 60, (*request, ("arp_spa", "0.0.0.0")), "address probe: no answer")
    sender: Field = ("arp_sha", (planned, "ff:ff:ff:ff:ff:00"))
    # Remembered for a second only: it takes the place of what was learned before and then leaves the plan in force.
    yield Flow(Table.INGRESS, 50, (*request, sender), "answer ARP", apply=(LearnSender(1), answer))
    yield Flow(Table.INGRESS, 40, request, "answer ARP, learn sender", apply=(LearnSender(0), answer))


def _aggregation_ingress(tree: FatTree) -> Iterator[Flow]:
    for port in range(1, tree.half + 1):
        yield Flow(Table.INGRESS, 30, (("in_port", port),), "from an edge switch", goto=Table.DOWN)


@lru_cache
def _from_above(marked: bool) -> tuple[Flow, ...]:
    mark = DESCENDING if marked else None
    return (Flow(Table.INGRESS, 10, (), "from another switch", metadata=mark, goto=Table.DOWN),)


def _edge_down(tree: FatTree, edge: Switch) -> Iterator[Flow]:
    for host in tree.hosts_of(edge):
        port = tree.port(edge, host)
        yield Flow(
            Table.DOWN,
            40,
            (IPV4, ("ipv4_dst", str(tree.ip(host)))),
            "to a host",
            apply=(SetField("eth_dst", tree.mac(host)),),
            write=(Output(port),),
            metadata=port,
            goto=Table.DELIVER,
        )


def _aggregation_down(tree: FatTree, switch: Switch) -> Iterator[Flow]:
    for index in range(tree.half):
        edge = Switch(Level.EDGE, switch.pod, index)
        prefix = tree.prefix(edge)
        match: Field = ("ipv4_dst", (str(prefix.network_address), str(prefix.netmask)))
        yield Flow(Table.DOWN, 40, (IPV4, match), "to a rack", apply=(Output(tree.port(switch, edge)),))


@lru_cache
def _core_down(tree: FatTree) -> tuple[Flow, ...]:
    core = Switch(Level.CORE, 0, 0)
    flows = []
    for pod in range(tree.k):
        below = Switch(Level.AGGREGATION, pod, 0)
        prefix = tree.prefix(below)
        match: Field = ("ipv4_dst", (str(prefix.network_address), str(prefix.netmask)))
        flows.append(Flow(Table.DOWN, 40, (IPV4, match), "to a pod", apply=(Output(tree.port(core, below)),)))
    return tuple(flows)


@lru_cache(maxsize=1 << 14)
def _down_misses(network: str | None, netmask: str = "") -> tuple[Flow, ...]:
    nowhere = Flow(Table.DOWN, 0, (), "outside the fabric: drop")
    if network is None:
        return (nowhere,)
    fabric: Field = ("ipv4_dst", (str(FABRIC_NETWORK.network_address), str(FABRIC_NETWORK.netmask)))
    return (
        Flow(Table.DOWN, 30, (("metadata", DESCENDING),), "came down, never goes up again: drop"),
        Flow(Table.DOWN, 20, (IPV4, ("ipv4_dst", (network, netmask))), "no such host below: drop"),
        Flow(Table.DOWN, 10, (IPV4, fabric), "not below: up", goto=Table.UP),
        nowhere,
    )


@lru_cache
def _up(tree: FatTree, level: Level) -> tuple[Flow, ...]:
    hop = 0 if level is Level.EDGE else 1
    return (
        *(
            Flow(
                Table.UP,
                20,
                (("eth_src", word.match_hop(hop, index)),),
                f"up{hop + 1} names this uplink",
                apply=(ToGroup(group_id(index)),),
            )
            for index in range(tree.half)
        ),
        Flow(
            Table.UP, 10, (("eth_src", word.LABELLED),), "up index out of range: as unlabelled", goto=Table.UNLABELLED
        ),
        Flow(Table.UP, 0, (), "no word", goto=Table.UNLABELLED),
    )


_DELIVER = (Flow(Table.DELIVER, 0, (), "as planned"),)


def group_id(index: int) -> int:
    """The group of an uplink index."""
    return index + 1


@lru_cache
def _groups(tree: FatTree) -> tuple[Group, ...]:
    ports = [tree.uplink_port(index) for index in range(tree.half)]
    buckets = [Bucket(port) for port in ports]
    return tuple(Group(group_id(index), (*buckets[index:], *buckets[:index])) for index in range(tree.half))


def _unlabelled(tree: FatTree, switch: Switch, failures: Failures | None) -> Iterator[Flow]:
    """Hash over the uplinks; with failures, the fewest entries that keep packets off uplinks which do not lead to their rack."""
    everyone = tuple(range(tree.half))
    if not failures:
        yield _hash(tree, switch.level, None, everyone)
        return
    racks = allowed_uplinks(tree, switch, failures)
    default = _commonest(racks.values(), everyone)
    yield _hash(tree, switch.level, None, default)
    for pod in range(tree.k):
        inside = {edge: uplinks for edge, uplinks in racks.items() if edge.pod == pod}
        common = default
        # a /16 of the switch's own pod would take in the racks below it, too
        if pod != switch.pod:
            common = _commonest(inside.values(), default)
            if common != default:
                yield _hash(tree, switch.level, tree.prefix(Switch(Level.AGGREGATION, pod, 0)), common)
        for edge, uplinks in inside.items():
            if uplinks != common:
                yield _hash(tree, switch.level, tree.prefix(edge), uplinks)


def _commonest(uplinks: Iterable[tuple[int, ...]], otherwise: tuple[int, ...]) -> tuple[int, ...]:
    ranked = Counter(uplinks).most_common(1)
    return ranked[0][0] if ranked else otherwise


@lru_cache(maxsize=1 << 14)
def _hash(tree: FatTree, level: Level, prefix: IPv4Network | None, uplinks: tuple[int, ...]) -> Flow:
    """Unlabelled packets for ``prefix`` (None: for all that no longer prefix takes) go over those uplinks."""
    match: tuple[Field, ...] = ()
    if prefix is not None:
        match = (IPV4, ("ipv4_dst", (str(prefix.network_address), str(prefix.netmask))))
    priority = prefix.prefixlen if prefix else 0
    if not uplinks:
        return Flow(Table.UNLABELLED, priority, match, "no way left: drop")
    ports = tuple(tree.uplink_port(index) for index in uplinks)
    purpose = "hash per flow" if len(uplinks) == tree.half else "hash per flow, around a failure"
    return Flow(Table.UNLABELLED, priority, match, purpose, apply=(HashOver(ports, basis=level),))
