"""The ingress table of an edge switch: what a host may send, and the answers to its ARP requests.

The rule: nothing that a switch or the controller would take for its own enters the fabric at a host's port, and nothing of it is
processed by a switch. Only ARP requests, IPv4 and, in a fabric with it, IPv6 from the port's own address pass; LLDP, CFM, LACP,
spanning tree and all else are dropped with them. Of IP these are denied before:

- BFD. Open vSwitch takes BFD packets out *before* its tables, at every port with BFD, so a forged one has to end where it enters.
  BFD between switches uses an Ethernet address of its own (`BFD_MAC`), and a packet for it is dropped, whatever it contains.
  Links on which somebody enabled BFD without that address are covered by what else makes a packet BFD: its UDP ports, and for a
  first fragment, whose ports no entry sees, the TTL of 255 that receivers require (RFC 5881, section 5).
- A group's Ethernet address: 01:80:c2 (IEEE 802.1Q, table 8-1) and every other one. IPv4 in such a frame is no host's either
  (RFC 1122, section 3.3.6).
- Addresses that the plan keeps for switches (Al-Fares et al., section 3.2): 10.k.0.0/16 above k pods, and 10.*.*.1 in them, which
  is dropped on its way up (`not_below`). So no packet for in-band OpenFlow, VXLAN or Geneve at a switch leaves the first one.

What a port makes the switch learn by ARP and by neighbour discovery is bounded, too: one entry a port, changed by each of them at
most eight times a second. So are the decisions that Open vSwitch caches for invented addresses: of those that it tracks it reads no
more bits than tell them from the entries' (`topologies.fabric_plan.PREFIXES`). It tracks three fields of a table, so that this one
matches no destination of IPv6, and none of the target of neighbour discovery, which is read only where an answer needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import product

from flowrules import gateways, label
from flowrules.model import (
    ARP,
    DESCENDING,
    IP,
    LLDP,
    AnswerArp,
    AnswerSolicitation,
    Field,
    Flow,
    LearnNeighbour,
    LearnNoMore,
    LearnNoNeighbour,
    LearnSender,
    LookUp,
    SetField,
    Table,
    ToController,
    destined,
)
from topologies.identity import FIRST_HOST, IPV4, Family, Shape
from topologies.structure import BFD_MAC, GATEWAY_MAC, Clos, Host, Level, Switch

ARP_REQUEST = 1
UDP: Field = ("ip_proto", 17)
ICMPV6: Field = ("ip_proto", 58)
SOLICITATION, ADVERTISEMENT = 135, 136
ND_TYPES = range(133, 138)
"""Router and neighbour solicitations and advertisements, and redirects (RFC 4861, section 4)."""
ND_HOPS = 255
GATEWAY_GROUP = "ff02::1:ff00:1"
"""The solicited-node address of every gateway, whose address ends in 1 (RFC 4291, section 2.7.1)."""
ND_ADDRESS = {SOLICITATION: "nd_sll", ADVERTISEMENT: "nd_tll"}
"""The link-layer address in a message (RFC 4861, section 4.6.1): of its sender, of its target."""
BFD_PORTS = ((3784, 0xFFFE), (4784, 0xFFFF), (6784, 0xFFFF), (7784, 0xFFFE))
"""UDP ports and masks: single-hop and echo (RFC 5881), multihop (RFC 5883), of LAG members (RFC 7130), seamless (RFC 7881)."""
BFD_TTL = 255
FIRST_FRAGMENT = 1  # NXM_NX_IP_FRAG of Open vSwitch: bit 0 for any fragment, bit 1 for a later one
GROUP_BIT = "01:00:00:00:00:00"
NO_MAC, RACK_BITS = "00:00:00:00:00:00", "ff:ff:ff:ff:ff:00"
LEARN_BITS = 3
DENIED = 65  # above ARP and everything that passes


def edge_ingress(tree: Clos, edge: Switch, no_label: Collection[Host]) -> Iterator[Flow]:
    """Yield the entries of an edge switch's ingress table, except that for packets from other switches."""
    planned = f"02:00:0a:{edge.pod:02x}:{edge.index:02x}:00"
    for index, family in product(tree.uplinks(edge), tree.families):
        yield _from_above(tree.uplink_port(edge.level, index), family.number)
    for family in tree.families:
        yield from _denied(family, tree.pods)
        if family.number == 6:
            yield from _neighbours(str(family.gateway(next(tree.hosts_of(edge)))), planned)
    yield from _arp(planned)
    for host in tree.hosts_of(edge):
        port: Field = ("in_port", tree.port(edge, host))
        address = IPV4.text(host)
        # RFC 5227, section 2.4: an answer would be a conflict, and the host would give up its own address.
        announced: tuple[Field, ...] = (ARP, ("arp_op", ARP_REQUEST), ("arp_spa", address), ("arp_tpa", address))
        purpose = "announcement of the host's own address: learn sender, no answer"
        yield Flow(Table.INGRESS, 55, (port, *announced), purpose, apply=(LookUp(Table.LEARN),))
        for family in tree.families:
            if family.number == 6:
                advertised = (port, *_discovery(ADVERTISEMENT), ("ipv6_src", family.text(host)))
                yield Flow(Table.INGRESS, DENIED + 1, advertised, purpose, apply=(LookUp(Table.LEARN),))
            if host in tree.gateways:
                yield from gateways.ingress(family, host, port, host in no_label)
            else:
                yield from _own_address(family, host, port, host in no_label)
        yield Flow(Table.INGRESS, 20, (port,), "foreign source or protocol: drop")
    yield from lldp(15)  # below the hosts' ports: only switches take part in link discovery


def _own_address(family: Family, host: Host, port: Field, no_label: bool) -> Iterator[Flow]:
    ip, source = IP[family.number], (f"ipv{family.number}_src", family.text(host))
    if no_label:
        plain = SetField("eth_src", Clos.mac(host))
        labelled: Field = ("eth_src", label.LABELLED)
        purpose = "has no right to a label: as unlabelled"
        yield Flow(Table.INGRESS, 35, (port, ip, source, labelled), purpose, apply=(plain,), goto=Table.DOWN)
    yield Flow(Table.INGRESS, 30, (port, ip, source), "host's own address", goto=Table.DOWN)


@lru_cache(maxsize=1 << 14)
def _from_above(port: int, version: int) -> Flow:
    """Return the entry for IP from an uplink of an edge switch: it stands before the denials, which are for packets of hosts.

    So the decisions that Open vSwitch caches for such packets do not depend on what those read (protocol, port, TTL).
    """
    match: tuple[Field, ...] = (("in_port", port), IP[version])
    first = DENIED + (1 if version == 4 else 3)  # what neighbour discovery reads is more than what is denied
    return Flow(Table.INGRESS, first, match, "from another switch", metadata=DESCENDING, goto=Table.DOWN)


@lru_cache
def not_below(family: Family, shape: Shape) -> tuple[Flow, ...]:
    """Return an edge switch's entries for destinations that are not below it: hosts' go up, and .0 and .1 nowhere.

    The address of a host ends in 2 or more: one of the bits from the second on is set. One entry for each of these bits reads some
    bits of the address' end. One entry for .1 would read all of them, and Open vSwitch would cache a decision for each end. A match
    of such bits is no prefix, so that all before them is read, too: of IPv4 an octet. Of IPv6 it would be 48 bits, of addresses
    outside as well: its entries have a table of their own.
    """
    ip, field, network = IP[family.number], f"ipv{family.number}_dst", family.network
    bits = [1 << bit for bit in range(1, (FIRST_HOST + shape.hosts - 1).bit_length())]
    if family.number == 4:
        ends = [(str(network.network_address + bit), str(network.netmask + bit)) for bit in bits]
        return (
            *(Flow(Table.DOWN, 10 + rank, (ip, (field, end)), "not below: up", goto=Table.UP) for rank, end in enumerate(ends, 1)),
            Flow(Table.DOWN, 10, destined(network), "a switch's address: drop"),
        )
    ends = [(str(IPv6Address(bit)),) * 2 for bit in bits]
    up = (LookUp(Table.UP),)
    return (
        Flow(Table.DOWN, 12, _kept(family, shape.pods), "a switch's address: drop"),
        Flow(Table.DOWN, 11, destined(network), "not below", apply=(LookUp(Table.ELSEWHERE),)),
        *(Flow(Table.ELSEWHERE, rank, (ip, (field, end)), "not below: up", apply=up) for rank, end in enumerate(ends, 1)),
        Flow(Table.ELSEWHERE, 0, (ip,), "a switch's address: drop"),
    )


def _kept(family: Family, pods: int) -> tuple[Field, ...]:
    """Return the match of destinations that the plan keeps for switches, beside those of racks' gateways."""
    return destined(family.prefix(Switch(Level.AGGREGATION, pods, 0)))


@lru_cache
def _denied(family: Family, pods: int) -> tuple[Flow, ...]:
    """Return the drops of what would be taken for a switch's own; from other switches none of it arrives here either."""

    def drop(purpose: str, *match: Field) -> Flow:
        return Flow(Table.INGRESS, DENIED, match, purpose)

    ip, version = IP[family.number], family.number
    return (
        *([drop("Ethernet address of the switches' BFD: drop", ("eth_dst", BFD_MAC))] if version == 4 else []),
        # Open vSwitch shows no protocol where headers end early, or the length is 0: Linux reads on (`ipv6_rcv`), and finds an
        # advertisement
        *([drop("extension headers that cannot be read: drop", ip, ("ip_proto", 0))] if version == 6 else []),
        *(drop("BFD: drop", ip, UDP, ("udp_dst", port if port[1] != 0xFFFF else port[0])) for port in BFD_PORTS),
        drop("first fragment that may be BFD: drop", ip, UDP, ("nw_ttl", BFD_TTL), ("ip_frag", FIRST_FRAGMENT)),
        drop(f"IPv{version} to a group's Ethernet address: drop", ip, ("eth_dst", (GROUP_BIT, GROUP_BIT))),
        *([drop("a switch's address: drop", *_kept(family, pods))] if version == 4 else []),
    )


def _discovery(kind: int) -> tuple[Field, ...]:
    """Return the match of messages of neighbour discovery that a host takes for such (RFC 4861, sections 7.1.1 and 7.1.2)."""
    return (IP[6], ICMPV6, ("nw_ttl", ND_HOPS), ("icmpv6_type", kind), ("icmpv6_code", 0))


@lru_cache(maxsize=1 << 14)
def _neighbours(gateway: str, planned: str) -> tuple[Flow, ...]:
    """Return the entries for neighbour discovery (RFC 4861): the gateway is answered for, and nothing of it enters the fabric.

    Its messages have a hop limit of 255, which switches do not count down: one for another rack would be believed there. A
    solicitation from the unspecified address is for duplicate address detection (RFC 4862, section 5.4), and is not answered. The
    gateway is asked for at its solicited-node group, or at its own address (RFC 4861, sections 7.2.2 and 7.3.3).
    """
    icmp: tuple[Field, ...] = (IP[6], ICMPV6)
    asked = _discovery(SOLICITATION)
    said = (*icmp, ("icmpv6_type", ADVERTISEMENT), ("icmpv6_code", 0))
    asks = (*icmp, ("icmpv6_type", SOLICITATION), ("icmpv6_code", 0))
    answer = (LookUp(Table.LEARN), SetField("icmpv6_type", ADVERTISEMENT), LookUp(Table.ADVERTISE))
    # no entry sees the type in a first fragment, and not every host ignores neighbour discovery in fragments (RFC 6980)
    fragment = (*icmp, ("nw_ttl", ND_HOPS), ("ip_frag", FIRST_FRAGMENT))
    return (
        Flow(Table.INGRESS, DENIED + 2, (*asked, ("ipv6_src", "::")), "address in use: no answer"),
        Flow(Table.INGRESS, DENIED + 1, asked, "neighbour solicitation", apply=(LookUp(Table.ADVERTISE),)),
        *(
            Flow(
                Table.ADVERTISE,
                1,
                (*asks, ("ipv6_dst", at), ("ipv6_nd_target", gateway)),
                "answer a neighbour solicitation, learn sender",
                apply=answer,
            )
            for at in (GATEWAY_GROUP, gateway)
        ),
        Flow(Table.ADVERTISE, 0, asks, "neighbour discovery: drop"),
        *(Flow(Table.INGRESS, DENIED, (*icmp, ("icmpv6_type", kind)), "neighbour discovery: drop") for kind in ND_TYPES),
        Flow(Table.INGRESS, DENIED, fragment, "first fragment that may be neighbour discovery: drop"),
        Flow(Table.ADVERTISE, 0, said, "answer a neighbour solicitation", apply=(AnswerSolicitation(GATEWAY_MAC),)),
        *(flow for kind in ND_ADDRESS for flow in _learn_neighbour(kind, planned)),
    )


def _learn_neighbour(kind: int, planned: str) -> Iterator[Flow]:
    field = ND_ADDRESS[kind]
    message: tuple[Field, ...] = (IP[6], ICMPV6, ("icmpv6_type", kind), ("icmpv6_code", 0))
    enough = LearnNoNeighbour(LEARN_BITS, field)
    forget = (LearnNeighbour(1, field), enough)
    yield Flow(Table.LEARN, 3, (*message, (f"ipv6_{field}", NO_MAC)), "without the sender's Ethernet address")
    yield Flow(Table.LEARN, 1, (*message, (f"ipv6_{field}", (planned, RACK_BITS))), "forget what was learned", apply=forget)
    yield Flow(Table.LEARN, 0, message, "learn sender", apply=(LearnNeighbour(0, field), enough))


def _arp(planned: str) -> Iterator[Flow]:
    request: tuple[Field, ...] = (ARP, ("arp_op", ARP_REQUEST))
    answer = AnswerArp(GATEWAY_MAC)
    # An address probe (RFC 5227, section 2.1.1) must stay unanswered: an answer would keep the host from using its own address.
    yield Flow(Table.INGRESS, 60, (*request, ("arp_spa", "0.0.0.0")), "address probe: no answer")
    sender: Field = ("arp_sha", (planned, RACK_BITS))
    learn, enough = LookUp(Table.LEARN), LearnNoMore(LEARN_BITS)
    yield Flow(Table.INGRESS, 50, (*request, sender), "answer ARP", apply=(learn, answer))
    yield Flow(Table.INGRESS, 40, request, "answer ARP, learn sender", apply=(learn, answer))
    # Learned for a second only: the entry replaces what was learned before, and then the planned address is used again.
    yield Flow(Table.LEARN, 1, (ARP, sender), "forget what was learned", apply=(LearnSender(1), enough))
    yield Flow(Table.LEARN, 0, (ARP,), "learn sender", apply=(LearnSender(0), enough))


@lru_cache
def lldp(priority: int) -> tuple[Flow, ...]:
    """Return the entry that sends LLDP frames to the controller."""
    return (Flow(Table.INGRESS, priority, (LLDP,), "LLDP probe: to the controller", apply=(ToController(),)),)
