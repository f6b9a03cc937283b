"""The way out: entries for packets to addresses outside the fabric, which go to hosts that are gateways.

Such an address has no prefix by which switches could send its packets down. The Ethernet destination has: while a packet crosses
the fabric, it is the planned address of the gateway, ``02:00:0a:pod:edge:number``, and switches match its octets as they match
those of an IPv4 destination in the fabric. A sending agent writes it. For other packets the first edge switch chooses
the gateway by a hash of the flow; so it does where a host names anything that is no gateway in use.

The choice is kept: a flow's gateway is the first in use of a sequence that is the flow's own (`Choose` with one basis after the
other). A gateway that goes away moves its own flows only, and they return with it.

In *down*, everything below the entries for the fabric's addresses is for such packets. A fabric without gateways has none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import ceil, log

from flowrules import label
from flowrules.model import (
    DESCENDING,
    IP,
    Choose,
    Field,
    Flow,
    LookUp,
    Output,
    SendNoMore,
    SendNoMore6,
    SendStart,
    SetField,
    Table,
    destined,
)
from flowrules.upward import RANK
from topologies.failures import Failures
from topologies.identity import Family
from topologies.structure import Clos, Host, Level, Switch
from topologies.way_out import gateways_from

BASIS = 0x100
"""Of the first choice; those of the hashes over uplinks are levels of switches."""
MAX_ROUNDS = 16  # Open vSwitch processes a packet by 64 tables at most
UNLUCKY = 0.01
"""The share of flows, at most, that find no gateway in use in all rounds while some are away: they go to the first."""
ANSWER_BYTES = {4: 128, 6: 14 + 1280 - 40 - 8}
"""Of a packet that cannot be delivered, by the version of IP: its Ethernet and IPv4 headers with all options, and more than 8 bytes
after them; of IPv6 what an answer of 1,280 bytes has room for (RFC 4443, section 3.1)."""
ANSWER_BITS = 2
PLANNED = "02:00:0a"

ANY_FRAGMENT: Field = ("ip_frag", (1, 1))
CHOICE, ROUND = "reg1", "reg2"
"""The registers with the number of the chosen gateway, and of the choices before it that led to none in use."""


@lru_cache
def unreachable(version: int) -> Flow:
    """Return the last entry of an edge switch: the controller answers, a rack so seldom that nobody can flood it by that."""
    no_more = SendNoMore(ANSWER_BITS) if version == 4 else SendNoMore6(ANSWER_BITS)
    purpose = f"outside the fabric: ICMP{'v6' * (version == 6)} unreachable, {1 << ANSWER_BITS} a second"
    return Flow(Table.DOWN, 0, (IP[version],), purpose, apply=(no_more, SendStart(ANSWER_BYTES[version])))


def ingress(family: Family, gateway: Host, port: Field, no_label: bool) -> Iterator[Flow]:
    """Yield the entries for IP from a gateway: its own address and all that are outside, to the fabric only.

    Packets from outside to outside would circle between gateways that take each other for the way out.
    """
    network, source = family.network, f"ipv{family.number}_src"
    inside = (port, *destined(network)) if family.number == 4 else (port, IP[6])  # of IPv6 `_edge` drops what is for outside
    own: Field = (source, family.text(gateway))
    fabric: Field = (source, (str(network.network_address), str(network.netmask)))
    yield Flow(Table.INGRESS, 30, (*inside, own), "gateway's own address", goto=Table.DOWN)
    yield Flow(Table.INGRESS, 28, (port, IP[family.number], fabric), "another's address: drop")
    yield Flow(Table.INGRESS, 25, inside, "from outside by a gateway", goto=Table.DOWN)
    if no_label:
        labelled: Field = ("eth_src", label.LABELLED)
        plain = SetField("eth_src", Clos.mac(gateway))
        purpose = "has no right to a label: as unlabelled"
        yield Flow(Table.INGRESS, 35, (*inside, own, labelled), purpose, apply=(plain,), goto=Table.DOWN)
        yield Flow(Table.INGRESS, 26, (*inside, labelled), purpose, apply=(plain,), goto=Table.DOWN)


def down(tree: Clos, switch: Switch, failures: Failures | None) -> Iterator[Flow]:
    """Yield a switch's entries for packets that leave the fabric, except for `Table.UP` and `Table.UNLABELLED`."""
    if not tree.gateways:
        return
    if switch.level is Level.EDGE:
        yield from _edge(tree, switch, failures or Failures(tree))
        return
    if switch.level is Level.CORE:
        absent = tree.absent_pods(switch)
        for pod in sorted({gateway.pod for gateway in tree.gateways} - absent):
            yield from _below(tree, _pod(pod), tree.downlink_port(pod))
    else:
        racks = {tree.edge_of(gateway) for gateway in tree.gateways}
        for edge in tree.below(switch):
            if edge in racks:
                yield from _below(tree, _rack(edge), tree.port(switch, edge))
    if tree.uplinks(switch):
        for ip in _protocols(tree):
            yield Flow(Table.DOWN, 8, (ip, ("eth_dst", _pod(switch.pod))), "no such gateway below: drop")
            yield Flow(Table.DOWN, 6, (ip,), "leaves by a gateway elsewhere: up", goto=Table.UP)
        yield _CAME_DOWN
    else:
        for family in tree.families:
            yield Flow(Table.DOWN, 10, destined(family.network), "no such host: drop")


def upward(tree: Clos, flows: Iterable[Flow]) -> Iterator[Flow]:
    """Yield the twins of entries that steer packets for prefixes with gateways: they steer packets that leave by these.

    A twin's priority is above the entries for all destinations, and below those for prefixes.
    """
    if not tree.gateways:
        return
    macs = {}
    for gateway, family in product(tree.gateways, tree.families):
        edge, pod = tree.edge_of(gateway), Switch(Level.AGGREGATION, gateway.pod, 0)
        for below, mac in ((edge, _rack(edge)), (pod, _pod(gateway.pod))):
            prefix = family.prefix(below)
            macs[destined(prefix)[1]] = mac, RANK[prefix.prefixlen] // 2
    for flow in flows:
        destination = next((field for field in flow.match if field in macs), None)
        if destination is not None:
            mac, less = macs[destination]
            twin = (*(field for field in flow.match if field != destination), ("eth_dst", mac))
            yield flow._replace(priority=flow.priority - less, match=twin)


def _edge(tree: Clos, edge: Switch, failures: Failures) -> Iterator[Flow]:
    in_use = gateways_from(failures, edge)
    for gateway in tree.gateways:
        named: Field = ("eth_dst", tree.mac(gateway))
        if tree.edge_of(gateway) == edge:
            port = tree.port(edge, gateway)
            # of a gateway that is not in use, only what other switches have sent to it before they heard of it
            came_down: tuple[Field, ...] = () if gateway in in_use else (("metadata", DESCENDING),)
            write = (Output(port),)
            if len(tree.families) > 1:
                yield Flow(Table.DOWN, 10, (("in_port", port), IP[6]), "from a gateway to the outside: drop")
            for ip in _protocols(tree):
                match = (*came_down, ip, named)
                yield Flow(Table.DOWN, 9, match, "to a gateway", write=write, metadata=port, goto=Table.DELIVER)
        elif gateway in in_use:
            for ip in _protocols(tree):
                yield Flow(Table.DOWN, 7, (ip, named), "leaves by a gateway elsewhere: up", goto=Table.UP)
    yield _CAME_DOWN
    if not in_use:
        return
    count = len(tree.gateways)
    # later fragments have no ports: all between two addresses go to one gateway, so that none is lost to a translator of addresses
    for ip, (priority, fragments) in product(_protocols(tree), ((6, True), (5, False))):
        match = (ip, *((ANY_FRAGMENT,) if fragments else ()))
        chosen = Choose(count, BASIS, fragments)
        yield Flow(Table.DOWN, priority, match, "choose a gateway per flow", apply=(chosen, LookUp(Table.OUTSIDE)))
    yield from _choice(_protocols(tree), tree.gateways, in_use)


@lru_cache(maxsize=1 << 8)
def _choice(protocols: tuple[Field, ...], gateways: tuple[Host, ...], in_use: tuple[Host, ...]) -> tuple[Flow, ...]:
    """Return the entries of `Table.OUTSIDE`, which write the chosen gateway into a packet."""

    def towards(priority: int, match: tuple[Field, ...], gateway: Host) -> Flow:
        named = SetField("eth_dst", Clos.mac(gateway))
        return Flow(Table.OUTSIDE, priority, match, "by this gateway", apply=(named, LookUp(Table.DOWN)))

    flows = [towards(10, ((CHOICE, at),), each) for at, each in enumerate(gateways) if each in in_use]
    if len(in_use) == len(gateways):
        return tuple(flows)
    missed = 1 - len(in_use) / len(gateways)
    rounds = min(MAX_ROUNDS, ceil(log(UNLUCKY) / log(missed))) if len(in_use) > 1 else 0
    for at in range(rounds):
        for ip, (priority, fragments) in product(protocols, ((6, True), (5, False))):
            match = ((ROUND, at), ip, *((ANY_FRAGMENT,) if fragments else ()))
            again = (Choose(len(gateways), BASIS + at + 1, fragments), SetField(ROUND, at + 1), LookUp(Table.OUTSIDE))
            flows.append(Flow(Table.OUTSIDE, priority, match, "its gateway is away: choose again", apply=again))
    return (*flows, towards(0, (), in_use[0]))


def _below(tree: Clos, mac: tuple[str, str], port: int) -> Iterator[Flow]:
    for ip in _protocols(tree):
        yield Flow(Table.DOWN, 9, (ip, ("eth_dst", mac)), "towards a gateway", apply=(Output(port),))


def _protocols(tree: Clos) -> tuple[Field, ...]:
    """Return the Ethernet types of a fabric's packets."""
    return tuple(IP[family.number] for family in tree.families)


def _pod(pod: int) -> tuple[str, str]:
    return f"{PLANNED}:{pod:02x}:00:00", "ff:ff:ff:ff:00:00"


def _rack(edge: Switch) -> tuple[str, str]:
    return f"{PLANNED}:{edge.pod:02x}:{edge.index:02x}:00", "ff:ff:ff:ff:ff:00"


_CAME_DOWN = Flow(Table.DOWN, 8, (("metadata", DESCENDING),), "came down, never goes up again: drop")
