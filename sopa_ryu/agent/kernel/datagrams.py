"""A UDP socket whose datagrams have the time at which the kernel got them: a busy process reads them later."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module has no name for it
_TIMESPEC = struct.Struct("=qq")
_MAX_BYTES = 65535
_MAX_AGE_NS = 1_000_000_000
"""Of a datagram that seems older, or from the future, the wall clock was set meanwhile."""


class TimedSocket:
    """A UDP socket that is connected to one address, and does not block.

    Args:
        address: As `socket.getaddrinfo` returns them.

    Raises:
        OSError: If the kernel refuses.
    """

    def __init__(self, family: int, address: tuple[Any, ...]) -> None:
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it. May be repeated."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send a datagram; `OSError` if the kernel refuses, or reports an error of an earlier one."""
        self._socket.send(data)

    def receive(self) -> tuple[bytes, int]:
        """Return the next datagram, and when it arrived by CLOCK_MONOTONIC, in nanoseconds.

        Raises:
            BlockingIOError: If there is none.
            OSError: If the network reports an error of one that was sent.
        """
        data, ancillary, _, _ = self._socket.recvmsg(_MAX_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
        now, wall = time.monotonic_ns(), time.time_ns()
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(content) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(content)
                age = wall - seconds * 1_000_000_000 - nanoseconds
                return data, now - age if 0 <= age < _MAX_AGE_NS else now
        return data, now
