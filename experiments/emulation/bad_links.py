"""Grey, corrupting and slow links in a lab: one direction of a link between switches loses packets, flips bits, or has less rate.

A program at the sending port's clsact egress drops packets, or flips one bit in them, and counts them exactly. The number of the
packet and a seed decide which: kernels without netem have no other way, and netem's choice could not be repeated. No counter of the
switch shows a loss, BFD and LLDP are lost as everything else, and the other direction is healthy unless it is made bad, too.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from experiments.core.draws import DrawKind, stream, threshold
from experiments.emulation.phantom_queues import PhantomQueues
from experiments.workloads import BadLink
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Host, Level, Switch
from topologies.lab.faults import sending_port
from topologies.lab.links import PREF_BAD

OBJECT = Path(__file__).parent / "bpf" / "bad_link.o"

_HANDLE = 1
_KEY = struct.Struct("=II")  # struct key
_FAULT = struct.Struct("=QQ")  # struct fault
_COUNT = struct.Struct("=QQ")  # struct count


class Count(NamedTuple):
    """Packets of a direction of a link since a fault began there, and those that it lost, or in which it flipped one bit.

    Packets are of every kind, BFD included; of a corrupting link those that it did not lose.
    """

    packets: int
    hit: int


class Forwarding(Protocol):
    """Hosts and the switches or routers between them. `topologies.lab.network.Lab` is one implementation."""

    tree: Clos

    def netns(self, host: Host, /) -> str:
        """Return the path of the network namespace of a host."""

    def interface(self, node: Host | Switch, port: int) -> str:
        """Return the name of an interface."""

    def set_link(self, name: str, up: bool) -> None:
        """Take a link down at both ends, or bring it up."""

    def set_share(self, interface: str, share: float) -> None:
        """Give an interface of a switch a share of its rate."""

    def port_packets(self, level: Level = Level.CORE) -> dict[str, int]:
        """Return the packets received so far by each switch of a level."""


class BadLinks:
    """What is bad in a lab, as a context manager: on leaving, all links are healthy again.

    The program is compiled and loaded when the first link becomes bad. ``netns`` maps a switch to the path of its network
    namespace; None is that of the caller.

    ::

        with BadLinks(lab) as bad:
            bad.set_loss("a0_0-c0_1", "c0_1", 0.01, seed=7)  # 1% of what a0_0 sends to c0_1
            ...
            bad.lost("a0_0-c0_1", "c0_1")  # Count(packets=12031, hit=118)
    """

    def __init__(self, lab: Forwarding, netns: Callable[[Switch], str | None] = lambda _switch: None) -> None:
        self._lab, self._netns = lab, netns
        self._programs: dict[str | None, libbpf.Object] = {}
        self._keys: dict[str, tuple[libbpf.Object, int]] = {}  # the namespace's program, and the index, by interface
        self._slow: set[str] = set()
        self._directions: dict[tuple[str, str], None] = {}
        self._stack = ExitStack()

    def __enter__(self) -> BadLinks:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.heal()

    def heal(self) -> None:
        """Make all links healthy; counts are gone then."""
        for interface in sorted(self._slow):
            self._lab.set_share(interface, 1.0)
        self._slow.clear()
        self._directions.clear()
        self._stack.close()
        self._programs.clear()
        self._keys.clear()

    def set_loss(self, name: str, towards: str, probability: float, seed: int) -> None:
        """Lose packets in one direction of a link such as ``a0_0-c0_1``, each with a probability; 0 for none any more.

        The end ``towards`` misses them. The seed decides which packets, by their numbers; they are counted from 0 again, unless
        the probability is 0.

        Raises:
            ValueError: If the probability is not from 0 to 1.
            TopologyError: If the fabric has no such link, it is a host's, or ``towards`` is not one of its ends.
            BpfError, BuildError: If the program cannot be compiled, loaded or attached.
        """
        self._set(DrawKind.LOSS, name, towards, probability, seed)

    def set_corruption(self, name: str, towards: str, probability: float, seed: int) -> None:
        """Flip one random bit in packets of one direction of a link, from the Ethernet header to the last byte; as `set_loss`."""
        self._set(DrawKind.CORRUPTION, name, towards, probability, seed)

    def set_rate(self, name: str, towards: str, share: float) -> None:
        """Let one direction of a link have a share of its rate; 1 for all of it.

        Raises ValueError if the share is not above 0 and at most 1, or the links have no rate; `TopologyError` as `set_loss`.
        """
        interface = self._interface(name, towards)[1]
        self._lab.set_share(interface, share)
        self._slow.add(interface)

    def lost(self, name: str, towards: str) -> Count:
        """Return the packets of a direction since its loss was set, and those lost; zeros if it never was."""
        return self._count(DrawKind.LOSS, name, towards)

    def corrupted(self, name: str, towards: str) -> Count:
        """Return the packets of a direction since its corruption was set, and those with a flipped bit."""
        return self._count(DrawKind.CORRUPTION, name, towards)

    def directions(self) -> list[tuple[str, str]]:
        """Return the links, each with the end that it leads to, where loss or corruption was set."""
        return list(self._directions)

    # -- the program --------------------------------------------------------------------------------------------------

    def _interface(self, name: str, towards: str) -> tuple[Switch, str]:
        switch, port = sending_port(self._lab.tree, name, towards)
        return switch, self._lab.interface(switch, port)

    def _set(self, kind: DrawKind, name: str, towards: str, probability: float, seed: int) -> None:
        value = threshold(probability)
        switch, interface = self._interface(name, towards)
        if interface not in self._keys:
            if not value:
                return
            self._attach(self._netns(switch), interface)
        self._directions[name, towards] = None
        program, index = self._keys[interface]
        key = _KEY.pack(index, kind)
        if value:  # the last fault ends before its count
            libbpf.delete(program.map_fd("faults"), key)
            libbpf.update(program.map_fd("counts"), key, _COUNT.pack(0, 0))
            libbpf.update(program.map_fd("faults"), key, _FAULT.pack(stream(seed, name, towards, kind), value))
        else:
            libbpf.delete(program.map_fd("faults"), key)

    def _count(self, kind: DrawKind, name: str, towards: str) -> Count:
        interface = self._interface(name, towards)[1]
        if interface not in self._keys:
            return Count(0, 0)
        program, index = self._keys[interface]
        found = libbpf.lookup(program.map_fd("counts"), _KEY.pack(index, kind), _COUNT.size)
        return Count(0, 0) if found is None else Count(*_COUNT.unpack(found))

    def _attach(self, netns: str | None, interface: str) -> None:
        if netns not in self._programs:
            build([OBJECT])
            # an index is unique in its namespace only, so each has maps of its own
            self._programs[netns] = self._stack.enter_context(libbpf.Object(OBJECT))
        program = self._programs[netns]
        with inside(netns):
            index = socket.if_nametoindex(interface)
            made = tc.create_clsact(index)
            self._stack.callback(_detach, netns, index, made)
            fd = program.program_fd("bad_link")
            tc.attach(index, fd, handle=_HANDLE, priority=PREF_BAD, replace=False)
        self._keys[interface] = program, index


def _detach(netns: str | None, index: int, made: bool) -> None:
    with inside(netns):
        tc.detach(index, handle=_HANDLE, priority=PREF_BAD)
        if made:
            tc.destroy_clsact(index)


class PlannedBadLinks:
    """The bad links of the runs over one fabric. ``rated`` has the rates of the lab; phantom queues follow a slow link."""

    def __init__(self, bad: BadLinks, rated: Clos, interface: Callable[[Switch, int], str], phantom: PhantomQueues | None) -> None:
        self._bad, self._rated, self._interface, self._phantom = bad, rated, interface, phantom

    def begin(self, bad_link: BadLink, seed: int) -> None:
        """Let one direction of a link become bad. The seed and the number of a packet decide whether it is lost or corrupted."""
        self._bad.set_loss(bad_link.link, bad_link.towards, bad_link.loss, seed)
        self._bad.set_corruption(bad_link.link, bad_link.towards, bad_link.corruption, seed)
        if bad_link.rate != 1:
            self._bad.set_rate(bad_link.link, bad_link.towards, bad_link.rate)
            self._mark_at(bad_link, bad_link.rate)

    def truth(self, bad_link: BadLink) -> dict[str, int | None]:
        """Return what a bad link has done so far; ``packets`` is None where nothing counts them: without loss and corruption."""
        lost, corrupted = (
            count(bad_link.link, bad_link.towards) if probability else None
            for count, probability in ((self._bad.lost, bad_link.loss), (self._bad.corrupted, bad_link.corruption))
        )
        counted = lost or corrupted
        return {
            "packets": counted.packets if counted else None,
            "lost": lost.hit if lost else 0,
            "corrupted": corrupted.hit if corrupted else 0,
        }

    def heal(self, planned: Sequence[BadLink]) -> None:
        """Make all links healthy."""
        self._bad.heal()
        for bad_link in planned:
            self._mark_at(bad_link, 1.0)

    def _mark_at(self, bad_link: BadLink, share: float) -> None:
        if self._phantom is not None:
            switch, port = sending_port(self._rated, bad_link.link, bad_link.towards)
            rate = share * self._rated.capacity(self._rated.link_by_name(bad_link.link))
            self._phantom.set_rate(self._interface(switch, port), rate)
