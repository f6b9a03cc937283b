"""SRv6 uSIDs of a Clos fabric: of switches and of paths, and what each router needs to forward by them. Pure.

A path is the destination of an outer IPv6 header: a block of 32 bits and a uSID of 16 bits for each switch that chooses the way. A
router that finds its own uSID there shifts the rest up (uN, End with NEXT-CSID); the last edge takes the header off (uDT46).

References:
    RFC 9800, Compressed SRv6 Segment List Encoding: sections 4.1 (NEXT-CSID) and 4.1.1; RFC 8986, section 4.8 (End.DT46).
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Any, NamedTuple

from topologies.identity import Host, Identities, Level, Shape, Switch, TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topologies.structure import Clos

BLOCK = IPv6Network("fcbb:bb00::/32")
"""The usual block, as in RFC 9800's examples."""
BLOCK_BITS, USID_BITS = 32, 16
GROUP = 64
"""Switches of a pod and level, or core switches of a group, that have a uSID."""
_LINK_LOCAL = int(IPv6Address("fe80::"))
_KIND = {Level.EDGE: (0x1000, 6), Level.AGGREGATION: (0x4000, 6), Level.CORE: (0x8000, 8)}


def usid(switch: Switch) -> int:
    """Return the uSID of a switch, which `problems` says is its own.

    >>> [f"{usid(switch):x}" for switch in (Switch(Level.EDGE, 1, 0), Switch(Level.AGGREGATION, 1, 1), Switch(Level.CORE, 1, 2))]
    ['1040', '4041', '8102']
    """
    base, shift = _KIND[switch.level]
    return base | switch.pod << shift | switch.index


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


def block_of(described: Any) -> IPv6Network:
    """Return the block of a fabric's ``srv6``; `TopologyError` if it has none."""
    if not isinstance(described, dict) or described.keys() != {"block"}:
        raise TopologyError(f"srv6 must be an object with block, not {described!r:.60}")
    try:
        block = IPv6Network(described["block"])
    except ValueError as error:
        raise TopologyError(f"srv6 {described['block']!r:.60} is no block: {error}") from None
    if block.prefixlen != BLOCK_BITS or block.is_multicast or block.overlaps(IPv6Network("fe80::/10")) or not int(block[0]):
        raise TopologyError(f"srv6 {block} is no block: a /{BLOCK_BITS} of unicast addresses, as {BLOCK}")
    return block


def problems(shape: Shape, block: IPv6Network, prefix6: IPv6Network | None) -> Iterator[str]:
    """Yield why the switches of a fabric cannot all have a uSID in a block: each names the two that do not go together."""
    identities = Identities(shape)
    for level in Level:
        if identities.group_size(level) > GROUP:
            first, last, beyond = (identities.name(Switch(level, 0, index)) for index in (0, GROUP - 1, GROUP))
            yield f"{beyond} has no uSID: a group has {GROUP} at most, {first} to {last}"
        taken: dict[int, Switch] = {}
        for pod in range(identities.groups(level) if identities.group_size(level) else 0):
            first_of = Switch(level, pod, 0)
            other = taken.setdefault(usid(first_of), first_of)
            if other != first_of:
                yield f"{identities.name(first_of)} and {identities.name(other)} have the same uSID {usid(first_of):#x}"
                break
    if prefix6 is not None and prefix6.overlaps(block):
        yield f"the block {block} has the hosts' prefix6 {prefix6} in it"


# -- routers --------------------------------------------------------------------------------------------------------------


class Route(NamedTuple):
    """A static route by a port: to a uSID by the next router's link-local address, or to a host on the link (``via`` is None)."""

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
        routes: To uSIDs by neighbours, and of an edge switch to its hosts.
        to_routers, to_hosts: Ports.
        closed: Those of ``to_hosts`` from which no packet to the block is taken: their hosts may not choose paths.
    """

    block: IPv6Network
    sid: IPv6Network
    loopback: IPv6Address
    link_local: IPv6Address
    gateways: tuple[Any, ...]
    routes: tuple[Route, ...]
    to_routers: tuple[int, ...]
    to_hosts: tuple[int, ...]
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
    for family in tree.families:
        routes += [Route(type(family.network)(family.address(host)), port, None) for port, host in hosts.items()]
    return Router(
        block=block,
        sid=sid,
        loopback=sid[1],
        link_local=link_local(switch),
        gateways=tuple(family.gateway(host) for family in tree.families for host in [*hosts.values()][:1]),
        routes=tuple(routes),
        to_routers=tuple(routers),
        to_hosts=tuple(hosts),
        closed=tuple(port for port, host in hosts.items() if host in tree.no_label),
    )


def require(shape: Shape, block: IPv6Network, prefix6: IPv6Network | None) -> None:
    """Raise `TopologyError` with the first of the `problems`."""
    problem = next(problems(shape, block, prefix6), None)
    if problem:
        raise TopologyError(f"srv6: {problem}")


def link_local(switch: Switch) -> IPv6Address:
    """Return a router's address on its links to other routers."""
    return IPv6Address(_LINK_LOCAL + usid(switch))


def _sid(block: IPv6Network, switch: Switch) -> IPv6Network:
    base = int(block.network_address) | usid(switch) << 128 - BLOCK_BITS - USID_BITS
    return IPv6Network((base, BLOCK_BITS + USID_BITS))
