"""Addresses, autonomous systems and FRR configuration of the routers of a Clos fabric. Pure.

The plan is that of RFC 7938, section 5.2: external BGP on every link. All core routers form one autonomous system, the
aggregation routers of a pod another, and each edge router has its own. A route that came down is therefore rejected on
the way up by its AS path.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import NamedTuple

from topologies import Clos, Level, Switch

LINKS = IPv4Address("172.16.0.0")  # 2 addresses each, RFC 3021
FIRST_PRIVATE_AS = 4_200_000_000  # RFC 6996
BFD_MS = 100
BFD_MISSED = 3


class Session(NamedTuple):
    """A link between two routers, as seen by one of them."""

    own: IPv4Address
    peer: IPv4Address
    peer_as: int
    port: int


def autonomous_system(tree: Clos, router: Switch) -> int:
    """Return the number of the autonomous system of a router."""
    if router.level is Level.CORE:
        return FIRST_PRIVATE_AS
    if router.level is Level.AGGREGATION:
        return FIRST_PRIVATE_AS + 1 + router.pod
    return FIRST_PRIVATE_AS + 1 + tree.pods + router.pod * tree.edges + router.index


def sessions(tree: Clos) -> dict[Switch, list[Session]]:
    """Return the BGP sessions of every router, in the order of the links."""
    found: dict[Switch, list[Session]] = {switch: [] for switch in tree.switches()}
    for number, link in enumerate(tree.switch_links()):
        lower, upper = link.lower, link.upper
        assert isinstance(lower, Switch)
        down, up = LINKS + 2 * number, LINKS + 2 * number + 1
        found[lower].append(Session(down, up, autonomous_system(tree, upper), tree.port(lower, upper)))
        found[upper].append(Session(up, down, autonomous_system(tree, lower), tree.port(upper, lower)))
    return found


def bgp_configuration(tree: Clos, router: Switch, number: int, sessions: list[Session]) -> str:
    """Return the configuration of ``bgpd``: eBGP to every neighbour, multipath over all equal routes, BFD on each session.

    ``number`` is unique in the fabric, from 1. The BGP router id is derived from it; it is not an address in use.
    """
    lines = [
        f"router bgp {autonomous_system(tree, router)}",
        f" bgp router-id {IPv4Address(number)}",
        " no bgp ebgp-requires-policy",
        " no bgp network import-check",
        " bgp bestpath as-path multipath-relax",
        " bgp fast-convergence",
        # Advertise immediately: the default delays updates by seconds, which is unusual in data centres.
        " timers bgp 3 9",
    ]
    for session in sessions:
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
    """Return the configuration of ``zebra``: each route contains its own next hops.

    By default, next hops are shared objects in the kernel. The kernel removes a port that goes down from them, and
    zebra of FRR 8.4 does not add it again when it is back.
    """
    return "no zebra nexthop kernel enable\n"


def bfd_configuration() -> str:
    """Return the configuration of ``bfdd``."""
    return f"""bfd
 profile fabric
  receive-interval {BFD_MS}
  transmit-interval {BFD_MS}
  detect-multiplier {BFD_MISSED}
"""
