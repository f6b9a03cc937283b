"""What a fat-tree's routers are told: addresses and autonomous systems, and FRR's configuration. Pure.

The plan is RFC 7938's, section 5.2: external BGP on every link; all core routers are one autonomous system, a pod's aggregation
routers another, and each edge router has its own, so that a way that came down is refused going up again by its AS path.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import NamedTuple

from topologies import FatTree, Level, Switch

LINKS = IPv4Address("172.16.0.0")  # 2 addresses each, RFC 3021
FIRST_PRIVATE_AS = 4_200_000_000  # RFC 6996
BFD_MS = 100
BFD_MISSED = 3


class Session(NamedTuple):
    """A link between two routers, seen from one of them."""

    own: IPv4Address
    peer: IPv4Address
    peer_as: int
    port: int


def autonomous_system(tree: FatTree, router: Switch) -> int:
    """The number of a router's autonomous system."""
    if router.level is Level.CORE:
        return FIRST_PRIVATE_AS
    if router.level is Level.AGGREGATION:
        return FIRST_PRIVATE_AS + 1 + router.pod
    return FIRST_PRIVATE_AS + 1 + tree.k + router.pod * tree.half + router.index


def sessions(tree: FatTree) -> dict[Switch, list[Session]]:
    """Every router's BGP sessions, in the order of the fabric's links."""
    found: dict[Switch, list[Session]] = {switch: [] for switch in tree.switches()}
    between = (link for link in tree.links() if isinstance(link.lower, Switch))
    for number, link in enumerate(between):
        lower, upper = link.lower, link.upper
        assert isinstance(lower, Switch)
        down, up = LINKS + 2 * number, LINKS + 2 * number + 1
        found[lower].append(Session(down, up, autonomous_system(tree, upper), tree.port(lower, upper)))
        found[upper].append(Session(up, down, autonomous_system(tree, lower), tree.port(upper, lower)))
    return found


def bgp_configuration(tree: FatTree, router: Switch, number: int, its: list[Session]) -> str:
    """What ``bgpd`` reads: eBGP with every neighbour, all equal ways in use, BFD on each session.

    Parameters
    ----------
    tree : FatTree
    router : Switch
    number : int
        Its own in the fabric, from 1; BGP's router id is made of it, and is not an address of anything.
    its : list of Session
    """
    lines = [
        f"router bgp {autonomous_system(tree, router)}",
        f" bgp router-id {IPv4Address(number)}",
        " no bgp ebgp-requires-policy",
        " no bgp network import-check",
        " bgp bestpath as-path multipath-relax",
        " bgp fast-convergence",
        # Advertised at once: the default holds updates back for seconds, and nobody runs that in a data centre.
        " timers bgp 3 9",
    ]
    for session in its:
        lines += [
            f" neighbor {session.peer} remote-as {session.peer_as}",
            f" neighbor {session.peer} advertisement-interval 0",
            f" neighbor {session.peer} timers connect 1",
            f" neighbor {session.peer} bfd",
            f" neighbor {session.peer} bfd profile fabric",
        ]
    lines += [" address-family ipv4 unicast", "  maximum-paths 64"]
    if router.level is Level.EDGE:
        lines.append(f"  network {tree.prefix(router)}")
    return "\n".join([*lines, " exit-address-family", ""])


def zebra_configuration() -> str:
    """What ``zebra`` reads: each route has its next hops itself.

    As objects of the kernel, which are its default, they are shared; the kernel takes a port that goes down out of them, and zebra
    of FRR 8.4 does not notice that they lack it when it is back.
    """
    return "no zebra nexthop kernel enable\n"


def bfd_configuration() -> str:
    """What ``bfdd`` reads."""
    return f"""bfd
 profile fabric
  receive-interval {BFD_MS}
  transmit-interval {BFD_MS}
  detect-multiplier {BFD_MISSED}
"""


def addresses(tree: FatTree, router: Switch, its: list[Session]) -> Iterator[tuple[int, str]]:
    """A router's addresses, each with its port's number; an edge router's ports towards hosts have none."""
    for session in its:
        yield session.port, f"{session.own}/31"
