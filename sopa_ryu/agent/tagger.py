"""The program that labels one interface's packets: loads it, attaches it, and swaps its path table."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from types import TracebackType

from pyroute2 import IPRoute

from . import libbpf, tc
from .build import EGRESS
from .flowhash import FlowKey
from .libbpf import AttachError
from .netns import inside
from .pathtable import PathTable, Policy, Word
from .tables import PathTables, read_in_force

__all__ = ["DEFAULT_FLOWS", "PathTable", "Policy", "Reason", "Tagger", "Word", "clsact_present", "table_in_force"]

DEFAULT_FLOWS = 65536
PROGRAM = "sopa_egress"
# Fixed, so that a successor finds what a killed agent left. Below the usual 49152: a filter before ours may end the list.
HANDLE, PRIORITY = 0x9E04, 10
_CLSACT_PARENTS = (0xFFFFFFF2, 0xFFFFFFF3)  # ingress, egress
_KEY = struct.Struct("=IIII")
_SLOTS_MAP, _TURN_MAP = "path_tables", "turn"


class Reason(IntEnum):
    """What became of a packet, by the program's counter numbers (bpf/maps.h)."""

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
    """The kernel had no memory to unshare the packet's header."""


def clsact_present(ifindex: int) -> bool:
    """Whether the interface of the calling thread's namespace has a clsact qdisc."""
    with IPRoute() as route:
        return any(qdisc.get_attr("TCA_KIND") == "clsact" for qdisc in route.get_qdiscs(index=ifindex))


def _filters_left(ifindex: int) -> bool:
    with IPRoute() as route:
        return any(True for parent in _CLSACT_PARENTS for _ in route.get_filters(index=ifindex, parent=parent))


def table_in_force(ifname: str, netns: str | None = None) -> PathTable | None:
    """The path table by which an interface's packets are labelled at present, by whichever agent, also one that was killed.

    Returns
    -------
    PathTable or None
        None if they are not labelled.

    Raises
    ------
    BpfError, NetnsError, OSError
        If it cannot be read, or there is no such interface.
    """
    with inside(netns):
        program = tc.attached(socket.if_nametoindex(ifname), handle=HANDLE, priority=PRIORITY)
    if program is None or libbpf.program_name(program) != PROGRAM:
        return None
    with ExitStack() as opened:
        slots, turn = (libbpf.open_program_map(program, name) for name in (_SLOTS_MAP, _TURN_MAP))
        for fd in (slots, turn):
            opened.callback(os.close, fd)
        return read_in_force(slots, turn)


class Tagger:
    """Owns the labelling program of one interface. Loads it at once; nothing changes on the interface before `attach`.

    Parameters
    ----------
    ifname : str
        The interface.
    flows : int
        Flows whose position is kept; beyond that the least recently used start anew. Some 100 bytes each.
    object_file : Path, optional
        The compiled program.
    netns : str, optional
        Path of the interface's network namespace, such as ``/proc/PID/ns/net``; the caller's own by default.
    owns_clsact : bool
        Whether a predecessor that could not clean up is known to have added the interface's clsact qdisc.
    on_clsact : callable, optional
        Called with True before clsact is added and with False after it is removed, for keeping that knowledge.

    Raises
    ------
    AttachError
        If there is no such interface.
    BpfUnavailable, BpfLoadError
        If the program cannot be loaded.
    ValueError
        For fewer flows than 1.
    """

    def __init__(
        self,
        ifname: str,
        *,
        flows: int = DEFAULT_FLOWS,
        object_file: Path | None = None,
        netns: str | None = None,
        owns_clsact: bool = False,
        on_clsact: Callable[[bool], None] | None = None,
    ) -> None:
        if flows < 1:
            raise ValueError(f"room for at least one flow is needed, not {flows}")
        self.ifname, self.netns = ifname, netns
        self._owns_clsact = owns_clsact
        self._on_clsact = on_clsact or (lambda added: None)
        with inside(netns):
            try:
                self.ifindex = socket.if_nametoindex(ifname)
            except OSError as error:
                raise AttachError(f"no interface {ifname} in {netns or 'this network namespace'}") from error
        self._object = libbpf.Object(object_file or EGRESS, {"flows": flows})
        self.program_fd = self._object.program_fd(PROGRAM)
        self._tables = PathTables(self._object.map_fd(_SLOTS_MAP), self._object.map_fd(_TURN_MAP))
        self._flows_fd = self._object.map_fd("flows")
        self._counters_fd = self._object.map_fd("counters")

    def __enter__(self) -> Tagger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.detach()
        finally:
            self.close()

    def inherits(self) -> bool:
        """Whether the interface still has the program that a killed predecessor left."""
        with inside(self.netns):
            there = tc.attached(self.ifindex, handle=HANDLE, priority=PRIORITY)
            return there is not None and libbpf.program_name(there) == PROGRAM

    def attach(self) -> None:
        """Begin to label. A killed predecessor's program works until ours replaces it; `swap` in a table first, and no packet
        goes unlabelled in between.

        Raises
        ------
        AttachError
            If another program has our place, or the kernel refuses.
        """
        with inside(self.netns):
            there = tc.attached(self.ifindex, handle=HANDLE, priority=PRIORITY)
            if there is not None and (name := libbpf.program_name(there)) != PROGRAM:
                raise AttachError(
                    f"{self.ifname} has another program, {name or there}, at egress priority {PRIORITY}, handle "
                    f"{HANDLE:#x}: remove it with tc filter del dev {self.ifname} egress prio {PRIORITY}"
                )
            if not clsact_present(self.ifindex):
                self._on_clsact(True)
                self._owns_clsact = tc.create_clsact(self.ifindex)
                if not self._owns_clsact:  # somebody was quicker
                    self._on_clsact(False)
            tc.attach(self.ifindex, self.program_fd, handle=HANDLE, priority=PRIORITY, replace=there is not None)

    def detach(self) -> None:
        """Stop labelling: take our filter off, and clsact if we added it and nobody else uses it. May be repeated."""
        with inside(self.netns):
            there = tc.attached(self.ifindex, handle=HANDLE, priority=PRIORITY)
            if there is not None and libbpf.program_name(there) == PROGRAM:
                tc.detach(self.ifindex, handle=HANDLE, priority=PRIORITY)
            if self._owns_clsact and not _filters_left(self.ifindex):
                tc.destroy_clsact(self.ifindex)
                self._owns_clsact = False
                self._on_clsact(False)

    def close(self) -> None:
        """Close the program's descriptors; if it is attached it goes on working."""
        self._tables.close()
        self._object.close()

    @property
    def tables(self) -> PathTables:
        """The two path tables, of which one is in force."""
        return self._tables

    def swap(self, table: PathTable) -> None:
        """Put a path table in force: `PathTables.swap`."""
        self._tables.swap(table)

    def read_table(self) -> PathTable | None:
        """The table that is in force in the kernel now; None before the first `swap`."""
        return self._tables.read()

    def counters(self) -> dict[str, int]:
        """Packets since loading by `Reason`, in lower case: ``{"labelled": 12, "not_ipv4": 1, ...}``."""
        size = 8 * libbpf.possible_cpus()
        totals = {}
        for reason in Reason:
            values = libbpf.lookup(self._counters_fd, struct.pack("=I", reason), size) or b""
            totals[reason.name.lower()] = sum(struct.unpack(f"={len(values) // 8}Q", values))
        return totals

    def flow_positions(self) -> dict[FlowKey, int]:
        """How many packets of each flow have been labelled in turn, for the flows that are kept."""
        positions = {}
        for key in libbpf.keys(self._flows_fd, _KEY.size):
            value = libbpf.lookup(self._flows_fd, key, 8)
            if value is not None:  # it may have been evicted meanwhile
                positions[FlowKey(*_KEY.unpack(key))] = int(struct.unpack("=Q", value)[0])
        return positions

    def run(self, frame: bytes, *, repeat: int = 1, gso_segments: int = 0) -> libbpf.Outcome:
        """Run the program on a frame without sending it (BPF_PROG_TEST_RUN); it counts, and flows advance."""
        return libbpf.run_program(self.program_fd, frame, repeat=repeat, gso_segments=gso_segments)
