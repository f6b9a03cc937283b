"""The two ends of the TCP connection of one transfer, and its result."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from experiments.emulation.measurement.tcp_info import TcpInfo, tcp_info
from experiments.emulation.traffic.loop import Loop
from experiments.workloads import Transfer

PORT = 5201
MIN_READ = 16_384
"""Bytes that wake the receiver. Otherwise it would be woken for each packet."""
SERIES_SECONDS = 0.1
_CHUNK = bytes(1 << 18)
_IN_PROGRESS = (errno.EINPROGRESS, errno.EAGAIN)
_RESET = struct.pack("ii", 1, 0)


class TransferError(RuntimeError):
    """A connection could not be opened. The message names it and the reason."""


@dataclass
class TransferResult:
    """The result of one transfer so far.

    Attributes:
        number: Index in the plan.
        started, ended: Times of opening and of the last received byte, in seconds after the start of the run.
        received: Received bytes.
        sender, receiver: Latest statistics of both ends.
        cwnd: Pairs of seconds and congestion window in segments.
        series: Received payload in each interval of `SERIES_SECONDS`, in Mbit/s.
    """

    number: int
    transfer: Transfer
    source_port: int
    started: float | None = None
    ended: float | None = None
    received: int = 0
    sender: TcpInfo | None = None
    receiver: TcpInfo | None = None
    cwnd: list[tuple[float, int]] = field(default_factory=list, repr=False)
    series: list[float] = field(default_factory=list, repr=False)
    problem: str = ""

    @property
    def seconds(self) -> float:
        """Time from opening the connection to its end."""
        return max(0.0, (self.ended or 0.0) - (self.started or 0.0))

    @property
    def mbit(self) -> float:
        """Received payload over that time, in Mbit/s."""
        return 8 * self.received / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def completed(self) -> bool:
        """True if all data has arrived; for a transfer without a size, if the connection was opened without an error."""
        if self.transfer.bytes is None:
            return self.started is not None and not self.problem
        return self.received >= self.transfer.bytes


class Connection:
    """The two sockets of a transfer, driven by a loop.

    Args:
        its: Updated with all results.
        sender: Bound, not connected.
        buffer: Scratch space for received data, which are discarded.
        ended: Called once at the end.
    """

    def __init__(
        self,
        its: TransferResult,
        sender: socket.socket,
        loop: Loop,
        buffer: bytearray,
        ended: Callable[[Connection], None],
    ) -> None:
        self.its = its
        self._loop, self._buffer, self._ended = loop, buffer, ended
        self._sender = sender
        self._receiver: socket.socket | None = None
        self._left = its.transfer.bytes
        self._connected = self._sent_all = self._over = False

    def connect(self, address: str) -> None:
        """Start to connect. Raises `OSError` if that is refused immediately."""
        self._sender.setblocking(False)
        self.its.started = self._loop.now()
        code = self._sender.connect_ex((address, PORT))
        if code not in (0, *_IN_PROGRESS):
            raise OSError(code, errno.errorcode.get(code, str(code)))
        self._loop.when_writable(self._sender, self._send)

    def accepted(self, receiver: socket.socket) -> None:
        """Set the receiving socket."""
        receiver.setblocking(False)
        with contextlib.suppress(OSError):  # not supported by multipath TCP
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MIN_READ)
        self._receiver = receiver
        self._loop.when_readable(receiver, self.receive)
        self.receive()

    def sample(self) -> TcpInfo | None:
        """Record and return the current statistics of the sender, or None before it is connected."""
        info = tcp_info(self._sender) if self._connected else None
        self.its.sender = info or self.its.sender
        return info

    def receive(self) -> None:
        """Read the data that have arrived."""
        if self._receiver is None or self._over:
            return
        try:
            while count := self._receiver.recv_into(self._buffer):
                self._count(self._loop.now(), count)
            self.end()
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)

    def end(self, latest: float | None = None) -> None:
        """Record the final statistics, and close both ends with a reset.

        Args:
            latest: Latest possible end time of a transfer without a size.
        """
        if self._over:
            return
        self._over = True
        its = self.its
        if self._receiver is not None:
            its.receiver = tcp_info(self._receiver) or its.receiver
            self._loop.forget(self._receiver)
        self.sample()
        if not self._sent_all:
            self._loop.forget(self._sender)
        if its.transfer.bytes is None:
            its.ended = self._loop.now() if latest is None else min(self._loop.now(), latest)
        for end in (self._sender, self._receiver):
            if end is not None:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()
        self._ended(self)

    def _send(self) -> None:
        if not self._connected:
            code = self._sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(OSError(code, errno.errorcode.get(code, str(code))))
                return
            self._connected = True
        try:
            while self._left is None or self._left > 0:
                chunk = _CHUNK if self._left is None else memoryview(_CHUNK)[: min(len(_CHUNK), self._left)]
                sent = self._sender.send(chunk)
                if self._left is not None:
                    self._left -= sent
            self._sender.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        self._sent_all = True
        self._loop.forget(self._sender)

    def _count(self, now: float, count: int) -> None:
        its, place = self.its, int(now / SERIES_SECONDS)
        its.received += count
        its.ended = now
        its.series.extend([0.0] * (place + 1 - len(its.series)))
        its.series[place] += 8 * count / SERIES_SECONDS / 1e6

    def _fail(self, error: OSError) -> None:
        self.its.problem = error.strerror or str(error)
        self.end()
