"""All TCP transfers of a plan between hosts of the lab, driven by one loop.

Ports are drawn from the seed, so that hashes of flows are the same in every run.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from experiments.emulation.measurement.tcp_statistics import TcpInfo, tcp_info
from experiments.schemes.scheme import LINUX_CONGESTION
from experiments.workloads import Plan, Transfer
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Host
from topologies.identity import IPV4, Family

_IDLE_SECONDS = 0.1


class Loop:
    """Runs timed actions and callbacks of sockets from `begin` on. Times are seconds after it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._begin = 0.0

    def begin(self) -> None:
        """Set the current time to 0."""
        self._begin = time.monotonic()

    def now(self) -> float:
        """Return the seconds since `begin`."""
        return time.monotonic() - self._begin

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action. Actions of the same time run in the order of scheduling."""
        self._order += 1
        heapq.heappush(self._due, (seconds, self._order, action))

    def due_before(self, seconds: float) -> bool:
        """Return True if an action is scheduled up to a time that has not passed."""
        return bool(self._due) and self._due[0][0] <= seconds and self.now() <= seconds

    def when_readable(self, of: socket.socket, action: Callable[[], None]) -> None:
        """Register a callback for a readable socket."""
        self._selector.register(of, selectors.EVENT_READ, action)

    def when_writable(self, of: socket.socket, action: Callable[[], None]) -> None:
        """Register a callback for a writable socket."""
        self._selector.register(of, selectors.EVENT_WRITE, action)

    def forget(self, of: socket.socket) -> None:
        """Unregister a socket."""
        self._selector.unregister(of)

    def turn(self) -> None:
        """Run due actions; then wait for a socket or the next action."""
        while self._due and self._due[0][0] <= self.now():
            heapq.heappop(self._due)[2]()
        wait = self._due[0][0] - self.now() if self._due else _IDLE_SECONDS
        for key, _ in self._selector.select(max(0.0, wait)):
            key.data()

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()


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


class TransferConnection:
    """The two sockets of a transfer, driven by a loop; the sender's is bound, not connected. Received data are discarded."""

    def __init__(
        self,
        result: TransferResult,
        sender: socket.socket,
        loop: Loop,
        buffer: bytearray,
        ended: Callable[[TransferConnection], None],
    ) -> None:
        self.result = result
        self._loop, self._buffer, self._ended = loop, buffer, ended
        self._sender = sender
        self._receiver: socket.socket | None = None
        self._left = result.transfer.bytes
        self._connected = self._sent_all = self._over = False

    def connect(self, address: str) -> None:
        """Start to connect. Raises `OSError` if that is refused immediately."""
        self._sender.setblocking(False)
        self.result.started = self._loop.now()
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
        self.result.sender = info or self.result.sender
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
        """Record the final statistics, and close both ends with a reset; a transfer without a size has ended by ``latest``."""
        if self._over:
            return
        self._over = True
        result = self.result
        if self._receiver is not None:
            result.receiver = tcp_info(self._receiver) or result.receiver
            self._loop.forget(self._receiver)
        self.sample()
        if not self._sent_all:
            self._loop.forget(self._sender)
        if result.transfer.bytes is None:
            result.ended = self._loop.now() if latest is None else min(self._loop.now(), latest)
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
        result, place = self.result, int(now / SERIES_SECONDS)
        result.received += count
        result.ended = now
        result.series.extend([0.0] * (place + 1 - len(result.series)))
        result.series[place] += 8 * count / SERIES_SECONDS / 1e6

    def _fail(self, error: OSError) -> None:
        self.result.problem = error.strerror or str(error)
        self.end()


CLIENT_PORTS = range(20000, 60000)
SAMPLE_SECONDS = 0.1
"""Interval between samples of each sender."""
MAX_CWND_SERIES = 32
_TICK_SECONDS = 0.2
_BACKLOG = 512


class Transfers:
    """All transfers of a plan, by TCP or multipath TCP of a family. The seed is that of the ports of the senders."""

    def __init__(
        self,
        tree: Clos,
        plan: Plan,
        netns: Callable[[Host], str],
        seed: int,
        *,
        multipath: bool = False,
        family: Family = IPV4,
        congestion: str = LINUX_CONGESTION,
    ) -> None:
        self.tree, self.plan, self._family = tree, plan, family
        self._sockets = socket.AF_INET if family.number == IPV4.number else socket.AF_INET6
        self._netns, self._congestion = netns, congestion
        self._protocol = socket.IPPROTO_MPTCP if multipath else socket.IPPROTO_TCP
        ports = random.Random(f"{seed} ports").sample(CLIENT_PORTS, len(plan.transfers))
        self.results = [
            TransferResult(number, transfer, port)
            for number, (transfer, port) in enumerate(zip(plan.transfers, ports, strict=True))
        ]
        self._followers: dict[int, list[int]] = {}
        self._awaited: dict[int, int] = {}
        for number, transfer in enumerate(plan.transfers):
            self._awaited[number] = len(transfer.after)
            for before in transfer.after:
                self._followers.setdefault(before, []).append(number)
        self._open: dict[tuple[str, int], TransferConnection] = {}
        self._loop = Loop()
        self._buffer = bytearray(1 << 20)
        self._keep_cwnd = len(plan.transfers) <= MAX_CWND_SERIES
        self._due = 0

    def run(self, at: Sequence[tuple[float, Callable[[], None]]] = (), tick: Callable[[float], object] = lambda _now: None) -> None:
        """Run all transfers, and further actions, each at its time: they delay the accounting of transfers, not TCP.

        Transfers without a size end with the time of the plan. Transfers with a size that are running then get the same
        time again; no other transfer starts after that, unless the plan is a collective operation. ``tick`` is called
        several times a second with the elapsed seconds, and ends the run by returning something true. Raises
        `TransferError` if a connection cannot be opened.
        """
        loop, seconds = self._loop, self.plan.seconds
        with ExitStack() as stack:
            stack.callback(loop.close)
            stack.callback(self._end_all)
            self._listen(stack)
            loop.begin()
            for number, transfer in enumerate(self.plan.transfers):
                if not transfer.after:
                    self._start_at(transfer.start, number)
            for when, action in at:
                loop.at(when, action)
            loop.at(seconds, self._time_is_over)
            loop.at(0.0, self._sample)
            ticks = 0.0
            while self._runs() and (now := loop.now()) <= 2 * seconds:
                if now >= ticks:
                    if tick(now):
                        break
                    ticks = now + _TICK_SECONDS
                loop.turn()

    def _runs(self) -> bool:
        # a collective operation is over with its last transfer
        return bool(self._open) or (self._due > 0 if self.plan.collective else self._loop.due_before(self.plan.seconds))

    def _time_is_over(self) -> None:
        for one in list(self._open.values()):
            if one.result.transfer.bytes is None:
                one.receive()
                one.end(self.plan.seconds)

    def _end_all(self) -> None:
        for one in list(self._open.values()):
            one.end(self.plan.seconds)

    def _sample(self) -> None:
        now = self._loop.now()
        for one in list(self._open.values()):
            info = one.sample()
            if info is not None and self._keep_cwnd:
                one.result.cwnd.append((round(now, 3), info.cwnd))
        if now < 2 * self.plan.seconds:
            self._loop.at(now + SAMPLE_SECONDS, self._sample)

    def _listen(self, stack: ExitStack) -> None:
        for host in sorted({transfer.dst for transfer in self.plan.transfers}):
            with inside(self._netns(host)):
                listener = stack.enter_context(socket.socket(self._sockets, socket.SOCK_STREAM, self._protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._choose_congestion_control(listener)  # with DCTCP a SYN is ECN-capable, which others take for no wish of ECN
            listener.bind((self._address(host), PORT))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            self._loop.when_readable(listener, partial(self._accept, listener))

    def _address(self, host: Host) -> str:
        return str(self._family.address(host))

    def _accept(self, listener: socket.socket) -> None:
        try:
            receiver, peer = listener.accept()
        except BlockingIOError:
            return
        one = self._open.get((peer[0], peer[1]))
        if one is None:
            receiver.close()
        else:
            self._choose_congestion_control(receiver)  # again, as below; DCTCP's receivers have a part in it
            one.accepted(receiver)

    def _start_at(self, seconds: float, number: int) -> None:
        self._due += 1
        self._loop.at(seconds, partial(self._start, number))

    def _start(self, number: int) -> None:
        self._due -= 1
        result = self.results[number]
        src, dst = self._address(result.transfer.src), self._address(result.transfer.dst)
        with inside(self._netns(result.transfer.src)):
            sender = socket.socket(self._sockets, socket.SOCK_STREAM, self._protocol)
        one = TransferConnection(result, sender, self._loop, self._buffer, self._ended)
        try:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._choose_congestion_control(sender)
            sender.bind((src, result.source_port))
            one.connect(dst)
            self._choose_congestion_control(sender)  # again: the lab's routes name another one (topologies/lab/batch_net.py)
        except OSError as error:
            sender.close()
            ends = (self.tree.name(host) for host in (result.transfer.src, result.transfer.dst))
            raise TransferError(f"cannot open the connection from {' to '.join(ends)}: {error.strerror}") from error
        self._open[src, result.source_port] = one

    def _choose_congestion_control(self, end: socket.socket) -> None:
        try:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion.encode())
        except FileNotFoundError:
            raise TransferError(
                f"this kernel has no congestion control {self._congestion}: modprobe tcp_{self._congestion}"
            ) from None

    def _ended(self, one: TransferConnection) -> None:
        result = one.result
        del self._open[self._address(result.transfer.src), result.source_port]
        now = self._loop.now()
        if not result.completed if self.plan.collective else now >= self.plan.seconds:
            return
        for follower in self._followers.get(result.number, ()):
            self._awaited[follower] -= 1
            if not self._awaited[follower]:
                self._start_at(now + self.plan.transfers[follower].start, follower)
