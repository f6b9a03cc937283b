"""The rules of every switch of a Clos fabric, with or without failures.

The tables of one switch, in the order in which a packet passes them: *ingress* (is this source allowed at this port?), *down*
(is the destination below?), *up* (which uplink does the label name?), *unlabelled* (which uplink does the flow hash to?),
*deliver* (does the host at that port have another Ethernet address than planned?). Packets from above are marked and never go
up again: the fabric is valley-free by construction. docs/architecture.md, section 5, has the tables; the prefixes are those of
Al-Fares et al., section 3.3.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import product

from flowrules import gateways
from flowrules.host_ports import edge_ingress, lldp, not_below
from flowrules.model import DESCENDING, IP, Field, Flow, Output, SetField, SwitchRules, Table, destined, digest
from flowrules.upward import groups, turned, upward
from topologies.failures import Failures
from topologies.identity import Family
from topologies.structure import Clos, Host, Level, Switch


def switch_rules(tree: Clos, switch: Switch, failures: Failures | None = None, no_label: Collection[Host] = ()) -> SwitchRules:
    """Compute every flow entry and group of a switch.

    Args:
        failures: What has failed or is drained. Additional entries steer packets around it: unlabelled packets, and labelled
            ones whose path has failed. Until they are installed, the groups cover the failures that a switch detects itself.
        no_label: Hosts that may not choose paths: their packets are treated as unlabelled.

    Returns:
        For a healthy fat-tree at most 3k + 30 flow entries, and one more for each host in ``no_label``. Entries that do not
        depend on the switch are shared objects.

    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> rules = switch_rules(tree, tree.switch("c0_1"))
    >>> [(flow.table.name, flow.purpose, flow.apply) for flow in rules.flows if flow.priority == 40][1]
    ('DOWN', 'to a pod', (Output(port=1),))
    >>> len(switch_rules(tree, tree.switch("e0_0")).flows)
    38
    """
    if switch.level is Level.CORE or not tree.uplink_count(switch.level):
        down = _pods_below(tree, tree.absent_pods(switch)) if switch.level is Level.CORE else _racks_below(tree, switch)
        out = gateways.down(tree, switch, failures)
        return SwitchRules((*lldp(40), *_from_above(False), *turned(Level.CORE), *down, *out, _NOWHERE), ())
    edge = switch.level is Level.EDGE
    up = tuple(upward(tree, switch, failures))
    up += tuple(gateways.upward(tree, up))
    flows = (
        _shape(sum(map(digest, up))),
        *(edge_ingress(tree, switch, no_label) if edge else _aggregation_ingress(tree, switch)),
        *_from_above(True),
        *turned(switch.level),
        *(_edge_down(tree, switch) if edge else _racks_below(tree, switch)),
        *_down_misses(tree.families, switch, bool(tree.gateways)),
        *(flow for family in tree.families for flow in (not_below(family, tree.shape) if edge else _not_below(family))),
        *gateways.down(tree, switch, failures),
        *((gateways.unreachable(family.number) for family in tree.families) if edge else (_NOWHERE,)),
        *up,
        *(_DELIVER if edge else ()),
    )
    return SwitchRules(flows, groups(tree, switch))


def fabric_rules(
    tree: Clos, failures: Failures | None = None, no_label: Collection[Host] = ()
) -> Iterator[tuple[Switch, SwitchRules]]:
    """Yield every switch with its rules, in the order of the datapath ids."""
    return ((switch, switch_rules(tree, switch, failures, no_label)) for switch in tree.switches())


@lru_cache(maxsize=1 << 12)
def _shape(code: int) -> Flow:
    """Return an entry that no packet matches, whose mask differs between any two versions of a switch's upward entries.

    Open vSwitch caches its decisions as megaflows, each with a mask of the bits that the decision depends on. After a change it
    revalidates the cache and modifies megaflows whose actions changed; but its userspace datapath finds the megaflow to modify by
    a matching packet, and modifies the wrong one if two overlap (seen with 3.1.0: packets went to a dead uplink for as long as the
    flow lasted). A megaflow whose mask lacks bits that a decision now depends on is deleted instead, by its identity. So each
    version makes every decision depend on another half of the bits of the packet's mark, which is 0 in all packets; no such half
    contains another. Nothing else may read the mark. A header's bits would not do: where a port has ``bfd_remote_dst_mac``, every
    decision depends on all of the destination's Ethernet address. It has to be the last entry to change (`renews_cache`).
    """
    mask = sum(1 << bit for bit in random.Random(f"{code} shape").sample(range(32), 16))
    return Flow(Table.INGRESS, 70, (("pkt_mark", (mask, mask)),), "no packet: renews what is cached")


def renews_cache(match: Iterable[Field]) -> bool:
    """Tell whether a match is that of the entry that makes Open vSwitch renew what it has cached.

    A decision that is cached while a switch changes from one version to the next depends on the masks that stood then. If the
    entry changes after all others, such decisions lack bits of its mask, and are renewed as those of the version before.
    """
    return any(field == "pkt_mark" for field, _ in match)


def _aggregation_ingress(tree: Clos, switch: Switch) -> Iterator[Flow]:
    yield from lldp(40)
    for edge in tree.below(switch):
        port = tree.port(switch, edge)
        yield Flow(Table.INGRESS, 30, (("in_port", port),), "from an edge switch", goto=Table.DOWN)


@lru_cache
def _from_above(marked: bool) -> tuple[Flow, ...]:
    mark = DESCENDING if marked else None
    return (Flow(Table.INGRESS, 10, (), "from another switch", metadata=mark, goto=Table.DOWN),)


def _edge_down(tree: Clos, edge: Switch) -> Iterator[Flow]:
    for host in tree.hosts_of(edge):
        port = tree.port(edge, host)
        apply, write = (SetField("eth_dst", tree.mac(host)),), (Output(port),)
        for family in tree.families:
            match = (IP[family.number], (f"ipv{family.number}_dst", family.text(host)))
            yield Flow(Table.DOWN, 40, match, "to a host", apply=apply, write=write, metadata=port, goto=Table.DELIVER)


def _racks_below(tree: Clos, switch: Switch) -> Iterator[Flow]:
    for edge in tree.below(switch):
        yield from _to_rack(tree.families, edge, tree.port(switch, edge))


@lru_cache(maxsize=1 << 14)  # all aggregation switches of a pod have the same
def _to_rack(families: tuple[Family, ...], edge: Switch, port: int) -> tuple[Flow, ...]:
    return tuple(Flow(Table.DOWN, 40, destined(family.prefix(edge)), "to a rack", apply=(Output(port),)) for family in families)


@lru_cache(maxsize=1 << 10)
def _pods_below(tree: Clos, absent: frozenset[int]) -> tuple[Flow, ...]:
    """Return a core switch's entries for the pods below it, without those to which it has no cable."""
    pods = (Switch(Level.AGGREGATION, pod, 0) for pod in range(tree.pods) if pod not in absent)
    return tuple(
        Flow(Table.DOWN, 40, destined(family.prefix(below)), "to a pod", apply=(Output(tree.downlink_port(below.pod)),))
        for below, family in product(pods, tree.families)
    )


@lru_cache(maxsize=1 << 14)
def _down_misses(families: tuple[Family, ...], below: Switch, gateways: bool) -> tuple[Flow, ...]:
    # what leaves by a gateway comes down, too
    within = [destined(family.network) for family in families] if gateways else [()]
    return (
        *(Flow(Table.DOWN, 30, (("metadata", DESCENDING), *its), "came down, never goes up again: drop") for its in within),
        *(Flow(Table.DOWN, 20, destined(family.prefix(below)), "no such host below: drop") for family in families),
    )


@lru_cache
def _not_below(family: Family) -> tuple[Flow, ...]:
    return (Flow(Table.DOWN, 10, destined(family.network), "not below: up", goto=Table.UP),)


_NOWHERE = Flow(Table.DOWN, 0, (), "outside the fabric: drop")
_DELIVER = (Flow(Table.DELIVER, 0, (), "as planned"),)
