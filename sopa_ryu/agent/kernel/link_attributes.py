"""An interface's attributes, by netlink, in the calling thread's network namespace (`netns.inside`)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from pyroute2 import IPRoute

from sopa_ryu.agent.kernel.netns import SYSCTLS

_FLUSH = SYSCTLS / "ipv4/route/flush"
_ON_TOP = frozenset({"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"})


def alive(ifindex: int) -> bool:
    """Return True if there is an interface of that index."""
    try:
        socket.if_indextoname(ifindex)
    except OSError:
        return False
    return True


def segments(ifindex: int) -> int:
    """Return ``gso_max_segs``: the number of packets that TCP hands over as one."""
    with IPRoute() as route:
        return int(route.get_links(ifindex)[0].get_attr("IFLA_GSO_MAX_SEGS"))


def mac(ifindex: int) -> str:
    """Return the MAC address; empty for an interface without one."""
    with IPRoute() as route:
        return str(route.get_links(ifindex)[0].get_attr("IFLA_ADDRESS") or "")


def write_segments(ifindex: int, count: int) -> None:
    """Set ``gso_max_segs``."""
    with IPRoute() as route:
        route.link("set", index=ifindex, gso_max_segs=count)


def forget_routes() -> None:
    """Have TCP look up its routes again, and with them how long its bursts may be."""
    _FLUSH.write_text("0")


def mtus(ifindex: int) -> dict[int, int]:
    """Return the MTUs of the interface and of the interfaces on top of it (`on_top`), which send through it.

    Returns:
        By interface index, in bytes; the interface itself is the first.
    """
    with IPRoute() as route:
        links = {int(link["index"]): StackedLink.of(link) for link in route.get_links()}
    return {index: links[index].mtu for index in (ifindex, *on_top(ifindex, links))}


class StackedLink(NamedTuple):
    """What matters of an interface for `on_top`."""

    mtu: int
    kind: str = ""
    lower: int | None = None
    elsewhere: bool = False
    """The interface below, or the peer, is one of another network namespace, and ``lower`` an index there."""
    master: int | None = None

    @classmethod
    def of(cls, link: Any) -> StackedLink:
        info = link.get_attr("IFLA_LINKINFO")
        return cls(
            int(link.get_attr("IFLA_MTU")),
            (info.get_attr("IFLA_INFO_KIND") if info else None) or "",
            link.get_attr("IFLA_LINK"),
            link.get_attr("IFLA_LINK_NETNSID") is not None,
            link.get_attr("IFLA_MASTER"),
        )


def on_top(ifindex: int, links: Mapping[int, StackedLink]) -> list[int]:
    """Return the interfaces whose packets go out by an interface as they are, directly or by way of another one.

    They are VLANs, macvlans and the like on it, and the bridge of which it is a port. A peer (veth) is not on top of it, nor
    is a tunnel, which has an MTU of its own, nor is anything that is in another namespace, or on top of an interface there.
    """
    found: list[int] = []
    below = [ifindex]
    while below:
        index = below.pop(0)
        above = [
            other
            for other, link in links.items()
            if (link.lower == index and not link.elsewhere and link.kind in _ON_TOP)
            or (other == links[index].master and link.kind == "bridge")
        ]
        fresh = [other for other in above if other != ifindex and other not in found]
        found += fresh
        below += fresh
    return found


def addresses(ifindex: int) -> list[IPv4Address]:
    """Return the interface's IPv4 addresses."""
    with IPRoute() as route:
        found = route.get_addr(family=socket.AF_INET, index=ifindex)
        return [IPv4Address(message.get_attr("IFA_LOCAL")) for message in found]


def write_mtu(ifindex: int, mtu: int) -> None:
    """Set the MTU, in bytes."""
    with IPRoute() as route:
        route.link("set", index=ifindex, mtu=mtu)
