"""The program that labels one interface's packets: loads it, attaches it, and swaps its path table."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from pyroute2 import IPRoute

from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import EGRESS, OPTION
from sopa_ryu.agent.kernel.counters import Counters, Reason
from sopa_ryu.agent.kernel.libbpf import AttachError
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.path_maps import PathTables, read_in_force
from sopa_ryu.agent.kernel.tc import Point
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy

__all__ = ["DEFAULT_FLOWS", "Label", "Labeller", "PathTable", "Policy", "Reason", "clsact_present", "table_in_force"]

DEFAULT_FLOWS = 65536
ETHERNET_MTU = 1500
_OBJECTS = {Carrier.MAC: EGRESS, Carrier.OPTION: OPTION}
_LABELS = {Carrier.MAC: "sopa_egress", Carrier.OPTION: "sopa_option"}
_STRIPS = "sopa_strip"
_OURS = {Point.EGRESS: tuple(_LABELS.values()), Point.INGRESS: (_STRIPS,)}
# Fixed, so that a successor finds what a killed agent left. Below the usual 49152: a filter before ours may end the list.
HANDLE, PRIORITY = 0x9E04, 10
_CLSACT_PARENTS = (0xFFFFFFF2, 0xFFFFFFF3)  # ingress, egress
_KEY = struct.Struct("=IIII")
_FLOW_STATE = struct.Struct("=QQ")
_SLOTS_MAP, _TURN_MAP = "path_tables", "turn"


def clsact_present(ifindex: int) -> bool:
    """Whether the interface of the calling thread's namespace has a clsact qdisc."""
    with IPRoute() as route:
        return any(qdisc.get_attr("TCA_KIND") == "clsact" for qdisc in route.get_qdiscs(index=ifindex))


def _filters_left(ifindex: int) -> bool:
    with IPRoute() as route:
        return any(True for parent in _CLSACT_PARENTS for _ in route.get_filters(index=ifindex, parent=parent))


def _there(ifindex: int, point: Point) -> tuple[int | None, str]:
    """The id and the name of the program in our place, in the calling thread's network namespace."""
    identifier = tc.attached(ifindex, handle=HANDLE, priority=PRIORITY, point=point)
    return identifier, "" if identifier is None else libbpf.program_name(identifier)


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
        program, name = _there(socket.if_nametoindex(ifname), Point.EGRESS)
    if program is None or name not in _OURS[Point.EGRESS]:
        return None
    with ExitStack() as opened:
        slots, turn = (libbpf.open_program_map(program, name) for name in (_SLOTS_MAP, _TURN_MAP))
        for fd in (slots, turn):
            opened.callback(os.close, fd)
        return read_in_force(slots, turn)


class Labeller:
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
    carrier : Carrier
        Where the word is written. With `Carrier.OPTION` options that come in are taken out, too.
    fabric_mtu : int
        For `Carrier.OPTION`: the largest IPv4 packet, in bytes, that fits through the fabric; larger ones go unlabelled.

    Raises
    ------
    AttachError
        If there is no such interface.
    BpfUnavailable, BpfLoadError
        If the program cannot be loaded.
    ValueError
        For fewer flows than 1.

    Attributes
    ----------
    counted : Counters
        What the program has counted.
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
        carrier: Carrier = Carrier.MAC,
        fabric_mtu: int = ETHERNET_MTU,
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
        self._object = libbpf.Object(object_file or _OBJECTS[carrier], {"flows": flows})
        self.program_fd = self._object.program_fd(_LABELS[carrier])
        self.strip_fd: int | None = None
        if carrier is Carrier.OPTION:
            self.strip_fd = self._object.program_fd(_STRIPS)
            libbpf.update(self._object.map_fd("fabric_mtu"), struct.pack("=I", 0), struct.pack("=I", fabric_mtu))
        self._tables = PathTables(self._object.map_fd(_SLOTS_MAP), self._object.map_fd(_TURN_MAP))
        self._flows_fd = self._object.map_fd("flows")
        self.counted = Counters(self._object.map_fd("counters"), self._object.map_fd("path_packets"))

    def __enter__(self) -> Labeller:
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
            return _there(self.ifindex, Point.EGRESS)[1] in _OURS[Point.EGRESS]

    def attach(self) -> None:
        """Begin to label. A killed predecessor's program works until ours replaces it; `swap` in a table first, and no packet
        goes unlabelled in between.

        Raises
        ------
        AttachError
            If another program has our place, or the kernel refuses.
        """
        wanted = {Point.INGRESS: self.strip_fd, Point.EGRESS: self.program_fd}
        with inside(self.netns):
            there = {point: self._own(point) for point in wanted}
            if not clsact_present(self.ifindex):
                self._on_clsact(True)
                self._owns_clsact = tc.create_clsact(self.ifindex)
                if not self._owns_clsact:  # somebody was quicker
                    self._on_clsact(False)
            for point, program in wanted.items():
                if program is not None:
                    tc.attach(
                        self.ifindex, program, handle=HANDLE, priority=PRIORITY, replace=there[point], point=point
                    )
                elif there[point]:  # of a predecessor with the other carrier
                    tc.detach(self.ifindex, handle=HANDLE, priority=PRIORITY, point=point)

    def _own(self, point: Point) -> bool:
        """Whether a predecessor's program is there; `AttachError` if somebody else's is."""
        identifier, name = _there(self.ifindex, point)
        if identifier is not None and name not in _OURS[point]:
            side = point.name.lower()
            raise AttachError(
                f"{self.ifname} has another program, {name or identifier}, at {side} priority {PRIORITY}, handle "
                f"{HANDLE:#x}: remove it with tc filter del dev {self.ifname} {side} prio {PRIORITY}"
            )
        return identifier is not None

    def detach(self) -> None:
        """Stop labelling: take our filters off, and clsact if we added it and nobody else uses it. May be repeated."""
        with inside(self.netns):
            for point, names in _OURS.items():
                if _there(self.ifindex, point)[1] in names:
                    tc.detach(self.ifindex, handle=HANDLE, priority=PRIORITY, point=point)
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
        return {reason.name.lower(): packets for reason, packets in self.counted.by_reason().items()}

    def flow_positions(self) -> dict[FlowKey, int]:
        """How many packets of each flow have been labelled in turn, for the flows that are kept; with `Policy.FLOWLET` how many
        flowlets have ended, with `Policy.FLOWCELL` none."""
        positions = {}
        for key in libbpf.keys(self._flows_fd, _KEY.size):
            value = libbpf.lookup(self._flows_fd, key, _FLOW_STATE.size)
            if value is not None:  # it may have been evicted meanwhile
                positions[FlowKey(*_KEY.unpack(key))] = int(_FLOW_STATE.unpack(value)[0])
        return positions

    def strip(self, frame: bytes, *, repeat: int = 1) -> libbpf.Outcome:
        """Run the program for what comes in on a frame (BPF_PROG_TEST_RUN), with `Carrier.OPTION` only."""
        if self.strip_fd is None:
            raise ValueError("only the option carrier has a program for what comes in")
        return libbpf.run_program(self.strip_fd, frame, repeat=repeat)

    def run(self, frame: bytes, *, repeat: int = 1, gso_segments: int = 0) -> libbpf.Outcome:
        """Run the program on a frame without sending it (BPF_PROG_TEST_RUN); it counts, and flows advance."""
        return libbpf.run_program(self.program_fd, frame, repeat=repeat, gso_segments=gso_segments)
