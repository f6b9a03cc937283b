"""Whether an interface's qdisc keeps packets until their departure times (``skb->tstamp``): fq does, if all packets go to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address

from sopa_ryu.agent.kernel.netns import NetnsError, inside
from sopa_ryu.agent.kernel.qdiscs import ROOT, Qdisc, qdiscs
from sopa_ryu.agent.slots.cfr_grants import Grants

LOG = logging.getLogger("sopa.agent")

FQ, HTB = "fq", "htb"
_HANDS_ON = frozenset({"mq", "mqprio", "tbf", "prio", "drr", "hfsc", HTB})
"""Qdiscs that give each packet to one of those below them, or drop it."""
_NUMBER = 0xFFFF0000


def instead_of_fq(tree: Sequence[Qdisc]) -> str:
    """Return a qdisc of an interface that is not fq and that packets leave by; empty if all leave by fq.

    >>> instead_of_fq([Qdisc("fq", 0x8001_0000, ROOT)]), instead_of_fq([Qdisc("noqueue", 0, ROOT)])
    ('', 'noqueue')
    >>> instead_of_fq([Qdisc("mq", 0, ROOT), Qdisc("fq", 0, 1), Qdisc("fq", 0, 2)])
    ''
    """
    roots = [qdisc for qdisc in tree if qdisc.parent == ROOT]
    return _other(roots[0], tree) if roots else "no qdisc"


def _other(qdisc: Qdisc, tree: Sequence[Qdisc]) -> str:
    if qdisc.kind == FQ:
        return ""
    below = [
        current for current in tree if current is not qdisc and current.parent != ROOT and current.parent & _NUMBER == qdisc.handle
    ]
    if qdisc.kind not in _HANDS_ON or not below or (not qdisc.handle and qdisc.parent != ROOT):
        return qdisc.kind
    if qdisc.kind == HTB and not any(current.parent == qdisc.default_class for current in below):
        return f"{HTB} without a default class"  # what no filter has given a class is not queued in any
    return next(filter(None, (_other(current, tree) for current in below)), "")


class DepartureTimes:
    """What is known of one interface; told to the grants of its host.

    Args:
        address: Of the host, for log lines.
        netns: Path of the interface's network namespace.
        read: Returns the qdiscs of an interface in the thread's network namespace.
    """

    def __init__(
        self,
        address: IPv4Address,
        ifname: str,
        ifindex: int,
        netns: str | None,
        grants: Grants,
        read: Callable[[int], Sequence[Qdisc]] = qdiscs,
    ) -> None:
        self._address, self._ifname, self._ifindex, self._netns = address, ifname, ifindex, netns
        self._grants, self._read = grants, read
        self._found: str | None = None

    def look(self) -> None:
        """Look at the interface's qdiscs; what has changed is logged, and followed from the next grant on."""
        try:
            with inside(self._netns):
                found = instead_of_fq(self._read(self._ifindex))
        except (NetnsError, OSError) as error:
            found = str(error)
        before, self._found = self._found, found
        self._grants.departure_times = not found
        if found == before:
            return
        if not found:
            LOG.info("%s: %s has the qdisc fq: data goes to it shortly ahead of its slot, and leaves when the slot begins",
                     self._address, self._ifname)  # fmt: skip
        elif before == "":
            LOG.warning(
                "%s: %s has the qdisc fq no more (%s). A thread of the agent now sends packets when it wakes for "
                "their slot, later on a busy host. Put fq back: tc qdisc replace dev %s root fq",
                self._address,
                self._ifname,
                found,
                self._ifname,
            )
        else:
            LOG.info(
                "%s: %s does not have the qdisc fq (%s). A thread of the agent sends packets when it wakes for their "
                "slot. fq keeps slots more exactly: tc qdisc replace dev %s root fq",
                self._address,
                self._ifname,
                found,
                self._ifname,
            )
