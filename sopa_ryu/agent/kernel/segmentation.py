"""The segmentation device of an interface: TCP's bursts that go by way of it reach the interface's tc egress as packets.

A program at tc egress sees a burst before it is cut: one label would be for up to 64 KB of a flow. A limit of one packet
a burst (``gso_max_segs`` 1) makes TCP do all its work for each packet, and where TCP paces itself (BBR), wait for a timer
before each.

The device is a macvlan on the interface that takes one packet at a time (its own ``gso_max_segs`` is 1): what is sent
through it the kernel cuts, and hands over to the interface packet by packet, within the same call. Order, socket and
pacing of the packets stay. It receives nothing (macvlan mode ``source`` with no source), answers no ARP and has no
address. Its name has the interface's index, by which the successor of a killed agent finds it.

The functions work in the calling thread's network namespace (`netns.inside`).
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ifinfmsg import IFF_NOARP, IFF_UP

from sopa_ryu.agent.kernel.netns import SYSCTLS

_IPV6 = SYSCTLS / "ipv6/conf"
_KIND, _MODE = "macvlan", "source"
_ONE = 1


def name_of(ifindex: int) -> str:
    """Return the name of an interface's segmentation device."""
    return f"sopa{ifindex}"


def create(ifindex: int) -> int:
    """Make the segmentation device of an interface, or take over a killed agent's; return its index.

    Raises:
        NetlinkError, OSError: If the kernel refuses: it has no macvlan, or the interface is a bridge's port or has ipvlans.
    """
    name = name_of(ifindex)
    with IPRoute() as route:
        if not index_of(ifindex):
            route.link("add", ifname=name, kind=_KIND, link=ifindex, macvlan_mode=_MODE)
        index = socket.if_nametoindex(name)
        if not _is_ours(route.get_links(index)[0]):
            raise OSError(f"{name} is another program's")
        try:
            own_ipv6 = _IPV6 / name / "disable_ipv6"
            if own_ipv6.exists():
                own_ipv6.write_text("1")
            route.link("set", index=index, gso_max_segs=_ONE, flags=IFF_NOARP | IFF_UP, change=IFF_NOARP | IFF_UP)
            wrong = _wrong(route, ifindex, index)
            if wrong:
                raise OSError(wrong)
        except BaseException:
            remove(ifindex)
            raise
    return index


def wrong(ifindex: int, device: int) -> str:
    """Return what keeps an interface's segmentation device from its work; empty if nothing does."""
    with IPRoute() as route:
        return _wrong(route, ifindex, device)


def index_of(ifindex: int) -> int:
    """Return the index of an interface's segmentation device; 0 if there is none."""
    try:
        return socket.if_nametoindex(name_of(ifindex))
    except OSError:
        return 0


def remove(ifindex: int) -> None:
    """Remove the segmentation device of an interface, if there is one."""
    index = index_of(ifindex)
    if index:
        with contextlib.suppress(NetlinkError), IPRoute() as route:  # it goes with its interface
            if _is_ours(route.get_links(index)[0]):
                route.link("del", index=index)


def _is_ours(link: Any) -> bool:
    info = link.get_attr("IFLA_LINKINFO")
    if not info or info.get_attr("IFLA_INFO_KIND") != _KIND:
        return False
    return bool(info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_MACVLAN_MODE") == _MODE)


def _wrong(route: IPRoute, ifindex: int, device: int) -> str:
    name = name_of(ifindex)
    if index_of(ifindex) != device:
        return f"{name} was removed"
    link = route.get_links(device)[0]
    if not _is_ours(link):
        return f"{name} is another program's"
    if link.get_attr("IFLA_LINK") != ifindex:  # the kernel makes no macvlan on another one, but beside it
        return f"{name} would be on another interface"
    if not link["flags"] & IFF_UP:
        return f"{name} was set down"
    limit = link.get_attr("IFLA_GSO_MAX_SEGS")
    return "" if limit == _ONE else f"gso_max_segs of {name} was set to {limit} instead of {_ONE}"
