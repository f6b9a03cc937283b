"""The counters of a labelling program, read from the kernel (bpf/maps.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from flowrules.label import UNUSED
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.paths.path_table import Label
from topologies import Clos

_HOPS = 65
OTHERS: Label = (-1, -1)
"""Stands for all labels that name an uplink above 63."""


class Handling(IntEnum):
    """The outcome for a packet, by the program's counter numbers (bpf/maps.h)."""

    LABELLED = 0
    NOT_IPV4 = 1
    OUTSIDE = 2
    """Its destination is not an address of the fabric."""
    NO_PATH = 3
    NO_TABLE = 4
    MALFORMED = 5
    GSO = 6
    """Labelled, but as one of several segments that share the label (counted as labelled, too)."""
    NO_FLOW_STATE = 7
    """No room for its flow's position: its path was chosen by hash (counted as labelled, too)."""
    NOT_WRITABLE = 8
    """The kernel has no memory to unshare the packet's header or to open room in it, or cannot open any in such a packet."""
    NO_ROOM = 9
    """Its IPv4 header has no room for four more bytes of options."""
    TOO_BIG = 10
    """With the option it would be larger than the fabric's MTU."""
    STRIPPED = 11
    """Received with an option, which was taken out."""
    NOT_STRIPPED = 12
    """Received with an option, which the kernel had no memory to take out."""
    FORWARDED = 13
    """Passed on for a container or a virtual machine behind the host: the switches hash its flow."""
    CUT = 14
    """A burst that was sent to the segmentation device, which returns its packets one by one; they are counted on their return."""
    SCATTERED = 15
    """Sent on a channel of its connection, with an MCO."""
    UNSCATTERED = 16
    """Sent as it was: TCP had left no room for an MCO, or the destination does not run MCS."""
    MCO_TAKEN = 17
    """Received with an MCO."""
    ACK_FILTERED = 18
    """A duplicate ACK that only showed that packets overtook each other, and was not sent."""
    WINDOW_LOWERED = 19
    """Received with a larger window than congestion allows (counted as received, too)."""
    NO_CONNECTION = 20
    """No room for the connection's state (counted as sent as it was, or as received, too)."""
    MCO_UNKNOWN = 21
    """Received with an MCO from a host that has never been known to run MCS, and passed on as it was."""
    MCO_MALFORMED = 22
    """Received with the mark of an MCO but without one of this version, and passed on as it was."""
    GRANTED = 23
    """Data that was sent in a slot granted to it (counted as labelled, too)."""
    HELD = 24
    """Data that TCP tried to send without a slot for it, and keeps. It may try the same data several times."""
    PASSED_IN_GUARD = 25
    """Data that does not wait for a slot: the first packet of a connection, and what is sent again."""
    GATE_OPEN = 26
    """Data that was sent while no arbiter granted slots."""
    HASHED = 27
    """Of a flow that keeps one path, since ``--spray`` does not name it (counted as labelled, too)."""
    SPREAD = 28
    """A packet or burst whose paths the edge switch's port chooses (counted as labelled, too)."""
    IDS_STAND = 29
    """Not left to that port, since the flow's IPv4 identifications do not change (counted as labelled or cut, too)."""
    OUTDATED = 30
    """At the edge switch's port: the controller has been away for too long, and the switch hashes the flow."""


class Counters:
    """The counters of one program, whose descriptors stay the caller's.

    Args:
        reasons, paths: Descriptors of its maps ``counters`` and ``path_packets``.
    """

    def __init__(self, reasons: int, paths: int) -> None:
        self._reasons, self._paths = reasons, paths

    def by_reason(self) -> dict[Handling, int]:
        """Return the packets since the program was loaded, by outcome."""
        return {reason: self.of(reason) for reason in Handling}

    def of(self, reason: Handling) -> int:
        """Return the packets of one outcome."""
        return _total(self._reasons, reason)

    def by_path(self, tree: Clos) -> dict[Label, int]:
        """Return the labelled packets since the program was loaded, by the label that they carry.

        Returns:
            Every label of the fabric, (k/2)² + k/2 + 1 of a fat-tree's; a hop not taken is 0xff. Labels that name an uplink
            above 63 have one counter together, that of `OTHERS`.
        """
        found = {label: _total(self._paths, _place(label)) for label in _labels(tree)}
        if max(tree.aggregations, tree.cores_of_group) >= _HOPS:
            found[OTHERS] = _total(self._paths, _HOPS * _HOPS)
        return found


def _labels(tree: Clos) -> Iterator[Label]:
    yield UNUSED, UNUSED
    for up1 in range(min(tree.aggregations, _HOPS - 1)):
        yield up1, UNUSED
        for up2 in range(min(tree.cores_of_group, _HOPS - 1)):
            yield up1, up2


def _place(label: Label) -> int:
    up1, up2 = ((hop + 1) % 256 for hop in label)
    return up1 * _HOPS + up2


def _total(counters: int, at: int) -> int:
    """Return the sum over all processors of one element of a per-CPU array."""
    values = libbpf.lookup(counters, struct.pack("=I", at), 8 * libbpf.possible_cpus()) or b""
    return sum(struct.unpack(f"={len(values) // 8}Q", values))
