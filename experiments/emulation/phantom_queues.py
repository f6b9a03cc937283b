"""ECN marks at the ports of a lab's switches and routers: Open vSwitch, and a kernel without RED, have none of their own.

A program at each port's clsact egress, in front of the token bucket filter, computes how long that one's queue is, and marks
ECN-capable packets that find more than a threshold there, as DCTCP's switches do (Alizadeh et al., SIGCOMM 2010, section 3.1).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Switch
from topologies.lab.links import FRAME_BYTES, tbf_burst

OBJECT = Path(__file__).parent / "bpf" / "phantom_queue.o"
DCTCP_PACKETS = 20
"""DCTCP's threshold at 1 Gbit/s (section 4). A lab's round-trip times allow less (section 3.4), bursts of 10 packets do not."""

_PRIORITY, _HANDLE = 10, 1  # behind the filters that drop, or take past the queue: topologies.lab.links
_KEY = struct.Struct("=I")
_PORT = struct.Struct("=QQQQ")  # struct port
_QUEUE = struct.Struct("=8xqQQQQQ")  # struct queue; the lock first
_NSEC = 10**9


class PortCounts(NamedTuple):
    """Packets of a port so far.

    Args:
        packets, full: All of them, also those that the real queue had no room for, and those that the phantom queue had none for.
        marked, marked_before: Those that it marked, and those above the threshold that an earlier switch had marked.
        incapable: Those above the threshold that are not ECN-capable, or no IPv4.
    """

    packets: int
    full: int
    marked: int
    marked_before: int
    incapable: int


def default_threshold(queue_packets: int) -> int:
    """Return the threshold in packets for queues of a capacity: DCTCP's, or half of a queue that is shorter than twice that."""
    return max(1, min(DCTCP_PACKETS, queue_packets // 2))


def port_rates(
    rated: Clos, interface: Callable[[Switch, int], str], netns: Callable[[Switch], str | None]
) -> dict[str | None, dict[str, float]]:
    """Return the interfaces of all switches with their rates, by network namespace. ``rated`` is as of `links.at_rate`."""
    found: dict[str | None, dict[str, float]] = {}
    for switch in rated.switches():
        its = found.setdefault(netns(switch), {})
        for port, neighbour in rated.ports(switch).items():
            its[interface(switch, port)] = rated.capacity(rated.link(switch, neighbour))
    return found


def port_value(rate_mbit: float, queue_packets: int, threshold: int) -> bytes:
    """Return the element of map ``ports`` for a link as `topologies.lab.links.shaper` sets it."""
    rate = max(1, round(rate_mbit * 1e6) // 8)
    sizes = tbf_burst(rate_mbit), queue_packets * FRAME_BYTES, threshold * FRAME_BYTES
    return _PORT.pack(rate, *(size * _NSEC // rate for size in sizes))


class PhantomQueues:
    """Phantom queues at ports of switches, as a context manager.

    Args:
        ports: Interfaces with their rates in Mbit/s, by the path of their network namespace; None is that of the caller.
        queue_packets: Capacity of the queue of a port in full frames.
        threshold: Full frames in the queue above which packets are marked.

    Entering raises `BpfError`, `BuildError` or `NetnsError` if the program cannot be compiled, loaded or attached; nothing stays
    attached then.
    """

    def __init__(self, ports: Mapping[str | None, Mapping[str, float]], queue_packets: int, threshold: int) -> None:
        self._ports, self._queue_packets, self._threshold = ports, queue_packets, threshold
        self._maps: dict[str, tuple[int, int, bytes]] = {}  # descriptors of both maps, and the key in them, by interface
        self._stack = ExitStack()

    def __enter__(self) -> PhantomQueues:
        build([OBJECT])
        with ExitStack() as stack:
            for netns, rates in self._ports.items():
                sizes = {"ports": len(rates), "queues": len(rates)}
                # an index is unique in its namespace only, so each has maps of its own
                program = stack.enter_context(libbpf.Object(OBJECT, sizes))
                for interface, rate in rates.items():
                    self._attach(stack, program, netns, interface, rate)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()
        self._maps.clear()

    def set_rate(self, interface: str, rate_mbit: float) -> None:
        """Follow a change of a link's rate; what is in the queue takes as long as before."""
        ports, _, key = self._maps[interface]
        libbpf.update(ports, key, port_value(rate_mbit, self._queue_packets, self._threshold))

    def counts(self) -> dict[str, PortCounts]:
        """Return the packets so far of each interface."""
        return {interface: PortCounts(*self._queue(interface)[1:]) for interface in self._maps}

    def length(self, interface: str) -> float:
        """Return the length of a queue in bytes; negative while its bucket has tokens."""
        ports, _, key = self._maps[interface]
        empty_ns = self._queue(interface)[0]
        found = libbpf.lookup(ports, key, _PORT.size)
        assert found is not None
        rate, bucket_ns, _, _ = _PORT.unpack(found)
        return float(max(empty_ns - time.monotonic_ns(), -bucket_ns) * rate / _NSEC)

    def _queue(self, interface: str) -> tuple[int, ...]:
        _, queues, key = self._maps[interface]
        found = libbpf.lookup(queues, key, _QUEUE.size)
        assert found is not None
        return _QUEUE.unpack(found)

    def _attach(self, stack: ExitStack, program: libbpf.Object, netns: str | None, interface: str, rate: float) -> None:
        ports, queues = program.map_fd("ports"), program.map_fd("queues")
        with inside(netns):
            index = socket.if_nametoindex(interface)
            key = _KEY.pack(index)
            libbpf.update(ports, key, port_value(rate, self._queue_packets, self._threshold))
            libbpf.update(queues, key, bytes(_QUEUE.size))
            tc.create_clsact(index)
            fd = program.program_fd("phantom_queue")
            tc.attach(index, fd, handle=_HANDLE, priority=_PRIORITY, replace=False)
        self._maps[interface] = ports, queues, key
        stack.callback(_detach, netns, index)


def _detach(netns: str | None, index: int) -> None:
    with inside(netns):
        tc.detach(index, handle=_HANDLE, priority=_PRIORITY)
