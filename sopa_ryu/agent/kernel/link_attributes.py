"""An interface's attributes, by netlink, in the calling thread's network namespace (`netns.inside`)."""

from __future__ import annotations

import socket

from pyroute2 import IPRoute


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


def write_segments(ifindex: int, count: int) -> None:
    """Set ``gso_max_segs``."""
    with IPRoute() as route:
        route.link("set", index=ifindex, gso_max_segs=count)


def mtus(ifindex: int) -> dict[int, int]:
    """Return the interface's MTU, and those of the interfaces on top of it (VLANs), which the kernel lowers with it.

    Returns
    -------
    dict
        By interface index, in bytes; the interface itself is the first.
    """
    with IPRoute() as route:
        links = route.get_links()
    found = {int(link["index"]): link for link in links}
    on_top = [index for index, link in found.items() if link.get_attr("IFLA_LINK") == ifindex and index != ifindex]
    return {index: int(found[index].get_attr("IFLA_MTU")) for index in (ifindex, *on_top)}


def write_mtu(ifindex: int, mtu: int) -> None:
    """Set the MTU, in bytes."""
    with IPRoute() as route:
        route.link("set", index=ifindex, mtu=mtu)
