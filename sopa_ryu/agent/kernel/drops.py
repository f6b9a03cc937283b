"""The packets that a host itself drops at one interface, by netlink: a queue was full, or the processors did not keep up.

Plain messages over one socket instead of pyroute2's: this is asked for every second.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from sopa_ryu.agent.kernel.netns import inside

_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_REQUEST, _DUMP = 1, 0x300
_DONE, _ERROR, _GETQDISC, _GETSTATS = 3, 2, 38, 94
_STATS, _STATS_LINK_64 = struct.Struct("=BBHiI"), 1
_QDISC, _ROOT = struct.Struct("=BBHiIII"), 0xFFFFFFFF
_STATS2, _QUEUE, _DROPS_AT = 7, 3, 8
_RX_DROPPED, _TX_DROPPED, _RX_FIFO, _RX_MISSED = 6, 7, 14, 15  # struct rtnl_link_stats64
_MAX_BYTES = 1 << 16


class Drops:
    """The drops at one interface.

    Args:
        netns: Path of its network namespace; the caller's own by default.

    Raises:
        OSError, NetnsError: If there is no netlink, or the namespace cannot be entered.
    """

    def __init__(self, ifindex: int, netns: str | None = None) -> None:
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.settimeout(0.5)  # the kernel answers at once
        self._ifindex, self._last = ifindex, 0

    def close(self) -> None:
        """Close it. May be repeated."""
        self._socket.close()

    def count(self) -> int:
        """Return how many packets were dropped so far: before the driver, in it, and in the interface's root queue.

        While the kernel does not answer it is the number of last time.
        """
        with contextlib.suppress(OSError, struct.error):
            self._last = self._device() + self._queue()
        return self._last

    def _device(self) -> int:
        for body in self._ask(_GETSTATS, _STATS.pack(0, 0, 0, self._ifindex, 1 << (_STATS_LINK_64 - 1)), 0):
            for kind, data in _attributes(body[_STATS.size :]):
                if kind == _STATS_LINK_64:
                    counters = struct.unpack_from("=16Q", data)
                    return sum(counters[at] for at in (_RX_DROPPED, _TX_DROPPED, _RX_FIFO, _RX_MISSED))
        return 0

    def _queue(self) -> int:
        total = 0
        for body in self._ask(_GETQDISC, _QDISC.pack(0, 0, 0, self._ifindex, 0, 0, 0), _DUMP):
            _, _, _, ifindex, _, parent, _ = _QDISC.unpack_from(body)
            if ifindex != self._ifindex or parent != _ROOT:
                continue
            for kind, data in _attributes(body[_QDISC.size :]):
                if kind == _STATS2:
                    total += sum(struct.unpack_from("=I", its, _DROPS_AT)[0] for inner, its in _attributes(data) if inner == _QUEUE)
        return total

    def _ask(self, kind: int, body: bytes, flags: int) -> Iterator[bytes]:
        """Send a question; yield the bodies of the answers."""
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 0, 0) + body)
        bodies = []
        more = True
        while more:
            data = self._socket.recv(_MAX_BYTES)
            more = bool(flags & _DUMP)
            at = 0
            while at + _HEADER.size <= len(data):
                length, answer, *_ = _HEADER.unpack_from(data, at)
                if answer in (_DONE, _ERROR) or length < _HEADER.size:
                    more = False
                    break
                bodies.append(data[at + _HEADER.size : at + length])
                at += -(-length // 4) * 4
        yield from bodies


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[at + _ATTRIBUTE.size : at + length]
        at += -(-length // 4) * 4
