"""The parser of an edge switch's host ports, for the ``option`` carrier: copies the label where OpenFlow matches it.

It is an XDP program of the port's interface: it stays when the switch restarts, and when the process that attached it has ended,
until it is detached or the interface is removed.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from sopa_ryu.agent.kernel import libbpf, xdp
from sopa_ryu.agent.kernel.build import PARSER
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.kernel.libbpf import AttachError
from sopa_ryu.agent.kernel.netns import Interface, inside
from sopa_ryu.agent.kernel.xdp import Mode

__all__ = ["Finding", "Mode", "Parser", "Status", "attach", "detach", "status"]

PROGRAM = "sopa_parser"
SPREADER = "sopa_spread"
PROGRAMS = (PROGRAM, SPREADER)
"""What an edge switch's port has for the carriers `option` and `id`."""
_OFF = {Mode.NATIVE: "xdpdrv", Mode.GENERIC: "xdpgeneric", None: "xdp"}


class Finding(IntEnum):
    """The parser's finding for a packet, by the program's counter numbers (bpf/sopa_parser.c)."""

    BELIEVED = 0
    """Its first option is a label, which switches see."""
    UNLABELLED = 1
    """Its first option is not a label, or it has none, or it is not an IPv4 packet."""
    MALFORMED = 2
    """Its first option has a label's type, but not its length, or the packet's lengths contradict each other."""
    RESERVED = 3
    """Its label has no first hop but a second one."""
    FORGED = 4
    """Its Ethernet source address was written as a label, without one that is believed: the address was changed."""


SPREADERS = (Handling.LABELLED, Handling.NO_PATH, Handling.NO_TABLE, Handling.OUTDATED, Handling.OUTSIDE, Handling.MALFORMED)
"""What a spreader counts."""


class Status(NamedTuple):
    """An attached parser: its program's id, the mode, and packets since it was attached.

    They are by `Finding` in lower case; of a spreader, by the `Handling` of those that asked to be spread.
    """

    identifier: int
    mode: Mode | None
    counters: dict[str, int]

    @property
    def spreads(self) -> bool:
        """True of a spreader."""
        return Handling.LABELLED.name.lower() in self.counters


class Parser:
    """The parser's program, loaded for as long as the context lasts; where it is attached by then it goes on working.

    It may be attached to any number of interfaces: its counters then count all of them.

    Raises:
        BpfUnavailable, BpfLoadError: On entering, if it cannot be loaded.
    """

    def __init__(self) -> None:
        self._object = libbpf.Object(PARSER)

    def __enter__(self) -> Parser:
        self._object.load()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._object.close()

    @property
    def program_fd(self) -> int:
        """The descriptor of the program."""
        return self._object.program_fd(PROGRAM)

    def counters(self) -> dict[str, int]:
        """Return the packets seen so far, by `Finding` in lower case."""
        return _counters(self._object.map_fd("counters"))

    def run(self, frame: bytes, *, repeat: int = 1) -> libbpf.RunOutcome:
        """Run the program on a frame without receiving it (BPF_PROG_TEST_RUN); it counts."""
        return libbpf.run_program(self.program_fd, frame, repeat=repeat)


def attach(interface: Interface, mode: Mode | None = None) -> Mode:
    """Attach a parser to an interface; a parser that is there already is replaced without a gap.

    Args:
        interface: The switch's interface towards a host.
        mode: By default native where the driver can, generic elsewhere.

    Returns:
        The mode in which it runs now.

    Raises:
        AttachError: If there is no such interface, another program is there, or the kernel refuses.
        BpfUnavailable, BpfLoadError, NetnsError
    """
    with Parser() as parser:
        return attach_program(interface, parser.program_fd, mode)


def attach_program(interface: Interface, program: int, mode: Mode | None = None) -> Mode:
    """Attach a program of an edge switch's port by its descriptor, in place of any of `PROGRAMS`; as `attach` otherwise."""
    with inside(interface.netns):
        ifindex = _index(interface)
        there = _ours(interface, ifindex)
        if there is not None and mode not in (None, there.mode):
            _remove(ifindex, there)
            there = None
        if there is not None and there.mode is not None:
            _attach(ifindex, program, there.mode, there.identifier)
            return there.mode
        if mode is not None:
            _attach(ifindex, program, mode, None)
            return mode
        try:
            _attach(ifindex, program, Mode.NATIVE, None)
        except AttachError:
            _attach(ifindex, program, Mode.GENERIC, None)
            return Mode.GENERIC
        return Mode.NATIVE


def detach(interface: Interface) -> bool:
    """Remove the parser from an interface; return False if there was none.

    Raises:
        AttachError: If there is no such interface, or another program is there.
        NetnsError
    """
    with inside(interface.netns):
        ifindex = _index(interface)
        there = _ours(interface, ifindex)
        if there is None:
            return False
        _remove(ifindex, there)
        return True


def status(interface: Interface) -> Status | None:
    """Return the parser of an interface; None if it has none.

    Raises:
        AttachError, BpfMapError, NetnsError: If there is no such interface, or it cannot be read.
    """
    with inside(interface.netns):
        there = xdp.attached(_index(interface))
    name = None if there is None else libbpf.program_name(there.identifier)
    if there is None or name not in PROGRAMS:
        return None
    fd = libbpf.open_program_map(there.identifier, "counters")
    try:
        return Status(there.identifier, there.mode, _counters(fd, Finding if name == PROGRAM else SPREADERS))
    finally:
        os.close(fd)


def _counters(fd: int, kinds: Iterable[IntEnum] = Finding) -> dict[str, int]:
    size = 8 * libbpf.possible_cpus()
    values = {seen: libbpf.lookup(fd, struct.pack("=I", seen), size) or b"" for seen in kinds}
    return {seen.name.lower(): sum(struct.unpack(f"={len(each) // 8}Q", each)) for seen, each in values.items()}


def _index(interface: Interface) -> int:
    try:
        return socket.if_nametoindex(interface.name)
    except OSError as error:
        raise AttachError(f"no interface {interface.name} in {interface.netns or 'this network namespace'}") from error


def _ours(interface: Interface, ifindex: int) -> xdp.Attached | None:
    there = xdp.attached(ifindex)
    if there is not None and (name := libbpf.program_name(there.identifier)) not in PROGRAMS:
        raise AttachError(
            f"{interface.name} has another XDP program, {name or there.identifier}, and an interface has only one: "
            f"remove it with ip link set dev {interface.name} {_OFF[there.mode]} off"
        )
    return there


def _attach(ifindex: int, program: int, mode: Mode, old: int | None) -> None:
    if old is None:
        xdp.attach(ifindex, program, mode, None)
        return
    fd = libbpf.open_program(old)
    try:
        xdp.attach(ifindex, program, mode, fd)
    finally:
        os.close(fd)


def _remove(ifindex: int, there: xdp.Attached) -> None:
    fd = libbpf.open_program(there.identifier)
    try:
        xdp.detach(ifindex, fd, there.mode or Mode.NATIVE)
    finally:
        os.close(fd)
