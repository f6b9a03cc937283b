"""SRv6 uSIDs of a Clos fabric: of switches and of paths, and what each router needs to forward by them. Pure.

A path is the destination of an outer IPv6 header: a block of 32 bits and a uSID of 16 bits for each switch that chooses the way. A
router that finds its own uSID there shifts the rest up (uN, End with NEXT-CSID); the last edge takes the header off (uDT46).

References:
    RFC 9800, Compressed SRv6 Segment List Encoding: sections 4.1 (NEXT-CSID) and 4.1.1; RFC 8986, section 4.8 (End.DT46).
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from typing import Any, NamedTuple

from topologies.identity import Host, Level, Switch
from topologies.structure import Clos
from topologies.usids import BLOCK, BLOCK_BITS, USID_BITS, edge_sids, require, usid

_LINK_LOCAL = int(IPv6Address("fe80::"))


def usid_list(tree: Clos, src: Switch, dst: Switch, up: tuple[int, ...]) -> IPv6Address:
    """Return the destination that leads from a host below one edge switch by uplinks ``up``, as of `Path`, to another edge switch.

    From an edge switch to itself it is a self-probe's, which turns at the edge, aggregation or core switch that ``up`` leads to.

    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> here, there = tree.switch("e0_0"), tree.switch("e2_1")
    >>> [str(usid_list(tree, here, there, up)) for up in ((1, 0), (1,), ())]
    ['fcbb:bb00:4001:8100:1081::', 'fcbb:bb00:4001:1081::', 'fcbb:bb00:1081::']
    >>> str(usid_list(tree, here, here, (1, 0)))
    'fcbb:bb00:4001:8100:1000::'
    """
    switches = [dst]
    if len(up) == 2:
        switches.insert(0, Switch(Level.CORE, *up))
    if up:
        switches.insert(0, Switch(Level.AGGREGATION, src.pod, up[0]))
    value = int((tree.srv6 or BLOCK).network_address)
    for place, switch in enumerate(switches, start=1):
        value |= usid(switch) << 128 - BLOCK_BITS - place * USID_BITS
    return IPv6Address(value)


def source_prefix(tree: Clos, host: Host) -> IPv6Network:
    """Return the /64 that a host takes the source addresses of its outer headers from: in its edge switch's SID.

    Routers send their ICMPv6 errors about lists there. The host chooses the other 64 bits at random, so that nobody who has not
    seen its outer headers, which no other host does, can send it such a message.

    >>> from topologies import FatTree
    >>> source_prefix(FatTree(4), FatTree(4).host("h0_1_3"))
    IPv6Network('fcbb:bb00:1001:3::/64')
    """
    base = int(_sid(tree.srv6 or BLOCK, Switch(Level.EDGE, host.pod, host.edge)).network_address)
    return IPv6Network((base | host.number << 64, 64))


# -- routers --------------------------------------------------------------------------------------------------------------


class Route(NamedTuple):
    """A static route by a port: by the address of a router or host there, or to a host on the link (``via`` is None)."""

    prefix: Any
    port: int
    via: IPv6Address | None


class Router(NamedTuple):
    """What a switch needs to forward by uSIDs.

    Attributes:
        sid: Its own: uN, or at an edge switch uDT46, which looks the inner destination up in the main tables.
        loopback: Its own address, inside ``sid``.
        link_local: Its address on each port to a router, the next hop of its neighbours' routes.
        gateways: Of an edge switch, its address on each port to a host, one for each family.
        routes: To uSIDs by neighbours, and of an edge switch to its hosts: their addresses, and where ICMPv6 errors find them.
            Several to one prefix are equal-cost next hops.
        unreachable: Prefixes that are unreachable where no longer one has a route: the block, and at an aggregation switch the
            SIDs of its pod's edge switches, or core switches would send their packets back.
        to_routers, to_hosts: Ports.
        outside: Of an edge switch, the addresses of hosts that lead out of the fabric, and their ports.
        closed: Those of ``to_hosts`` from which no packet to the block is taken: their hosts may not choose paths.
    """

    block: IPv6Network
    sid: IPv6Network
    loopback: IPv6Address
    link_local: IPv6Address
    gateways: tuple[Any, ...]
    routes: tuple[Route, ...]
    unreachable: tuple[IPv6Network, ...]
    to_routers: tuple[int, ...]
    to_hosts: tuple[int, ...]
    outside: tuple[tuple[Any, int], ...]
    closed: tuple[int, ...]


def router(tree: Clos, switch: Switch) -> Router:
    """Return what a switch needs in the block of the fabric, or without one in `BLOCK`; `TopologyError` if not all have a uSID."""
    block = tree.srv6 or BLOCK
    if tree.srv6 is None:
        require(tree.shape, block, tree.prefix6)
    sid, ports = _sid(block, switch), tree.ports(switch)
    routers = {port: node for port, node in ports.items() if isinstance(node, Switch)}
    hosts = {port: node for port, node in ports.items() if isinstance(node, Host)}
    routes = [
        Route(_sid(block, behind), port, link_local(towards))
        for port, towards in routers.items()
        for behind in (tree.below(towards) if switch.level is Level.CORE else (towards,))
    ]
    unreachable = [block]
    up = [port for port, towards in routers.items() if towards.level is Level.CORE]
    if up and any(family.number == 6 for family in tree.families):  # ICMPv6 errors to hosts of other pods take it
        routes += [Route(edge_sids(block), port, link_local(routers[port])) for port in up]
        unreachable.append(edge_sids(block, switch.pod))
    for family in tree.families:
        routes += [Route(type(family.network)(family.address(host)), port, None) for port, host in hosts.items()]
        if family.number == 6:
            routes += [Route(source_prefix(tree, host), port, family.address(host)) for port, host in hosts.items()]
    return Router(
        block=block,
        sid=sid,
        loopback=sid[1],
        link_local=link_local(switch),
        gateways=tuple(family.gateway(host) for family in tree.families for host in [*hosts.values()][:1]),
        routes=tuple(routes),
        unreachable=tuple(unreachable),
        to_routers=tuple(routers),
        to_hosts=tuple(hosts),
        outside=tuple(
            (family.address(host), port) for family in tree.families for port, host in hosts.items() if host in tree.gateways
        ),
        closed=tuple(port for port, host in hosts.items() if host in tree.no_label),
    )


def link_local(switch: Switch) -> IPv6Address:
    """Return a router's address on its links to other routers."""
    return IPv6Address(_LINK_LOCAL + usid(switch))


def _sid(block: IPv6Network, switch: Switch) -> IPv6Network:
    base = int(block.network_address) | usid(switch) << 128 - BLOCK_BITS - USID_BITS
    return IPv6Network((base, BLOCK_BITS + USID_BITS))
