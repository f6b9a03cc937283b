"""TCP connections between hosts of the lab, all driven by one loop: who sends how much, when, and what each reached.

Ports follow from the seed, so that whoever hashes them decides the same in every run.
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

from experiments.emulation.tcp_info import TcpInfo, tcp_info
from experiments.workloads import Plan, Transfer
from sopa_ryu.agent.netns import inside
from topologies import FatTree, Host

PORT = 5201
CLIENT_PORTS = range(20000, 60000)
SAMPLE_SECONDS = 0.1
"""From one look at each sender to the next."""
MOST_CWND_SERIES = 32
LEAST_READ = 16_384
"""Bytes that have to be there before the receiver is woken: else it would be for each packet."""
_CHUNK = bytes(1 << 18)
_BACKLOG = 512
_IN_PROGRESS = (errno.EINPROGRESS, errno.EAGAIN)


class TransferError(RuntimeError):
    """A connection that could not be opened; the text says which, and why."""


@dataclass
class Reached:
    """What one transfer has reached so far.

    Attributes
    ----------
    number : int
        Its place in the plan.
    transfer : Transfer
    started, ended : float or None
        Seconds after the start of the run: when it was opened, and when its last byte arrived.
    received : int
        Bytes that the receiver has got.
    sender, receiver : TcpInfo or None
        What the kernel said of both ends last.
    cwnd : list
        Pairs of seconds and congestion window in segments.
    series : list of float
        What arrived in each second of the run, in Mbit/s.
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
    def completed(self) -> bool:
        """Whether all that it was to send has arrived; of one without a size, whether it ever began."""
        if self.transfer.bytes is None:
            return self.started is not None and not self.problem
        return self.received >= self.transfer.bytes


@dataclass(eq=False)
class _Open:
    """A transfer's sockets."""

    its: Reached
    sender: socket.socket
    left: int | None
    receiver: socket.socket | None = None
    connected: bool = False
    finished_sending: bool = False
    at_second: int = 0


class Transfers:
    """All transfers of a plan.

    Parameters
    ----------
    tree : FatTree
    plan : Plan
    netns : callable
        Gives the path of a host's network namespace.
    seed : int
        Decides the senders' ports.
    multipath : bool
        Whether the connections are multipath TCP.
    congestion_control : str
    """

    def __init__(
        self,
        tree: FatTree,
        plan: Plan,
        netns: Callable[[Host], str],
        seed: int,
        *,
        multipath: bool = False,
        congestion_control: str = "cubic",
    ) -> None:
        self.tree, self.plan = tree, plan
        self._netns = netns
        self._protocol = socket.IPPROTO_MPTCP if multipath else socket.IPPROTO_TCP
        self._congestion_control = congestion_control.encode()
        ports = random.Random(f"{seed} ports").sample(CLIENT_PORTS, len(plan.transfers))
        self.reached = [
            Reached(number, transfer, port)
            for number, (transfer, port) in enumerate(zip(plan.transfers, ports, strict=True))
        ]
        self._followers: dict[int, list[int]] = {}
        for number, transfer in enumerate(plan.transfers):
            if transfer.after is not None:
                self._followers.setdefault(transfer.after, []).append(number)
        self._by_address: dict[tuple[str, int], _Open] = {}
        self._open: set[_Open] = set()
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._buffer = bytearray(1 << 20)
        self._begin = 0.0
        self._keep_cwnd = len(plan.transfers) <= MOST_CWND_SERIES

    def run(
        self, at: Sequence[tuple[float, Callable[[], None]]] = (), tick: Callable[[float], None] = lambda _now: None
    ) -> None:
        """Do it all.

        Transfers without a size end when the plan's time is over. Those with one that are then under way get as long again; no
        other is begun any more.

        Parameters
        ----------
        at : sequence
            What else is to be done, each with its time in seconds after the start. It holds up the transfers' accounting, not the
            kernel's TCP.
        tick : callable
            Told several times a second how many seconds have passed.

        Raises
        ------
        TransferError
            If a connection cannot be opened.
        """
        with ExitStack() as stack:
            stack.callback(self._close)
            self._listen(stack)
            self._begin = time.monotonic()
            for number, transfer in enumerate(self.plan.transfers):
                if transfer.after is None:
                    self._at(transfer.start, lambda number=number: self._start(number))  # type: ignore[misc]
            for seconds, action in at:
                self._at(seconds, action)
            self._at(self.plan.seconds, self._time_is_over)
            self._at(0.0, self._sample)
            ticks = 0.0
            while self._open or self._due_before(self.plan.seconds):
                now = self._now()
                if now > 2 * self.plan.seconds:
                    break
                if now >= ticks:
                    tick(now)
                    ticks = now + 0.2
                while self._due and self._due[0][0] <= self._now():
                    heapq.heappop(self._due)[2]()
                wait = self._due[0][0] - self._now() if self._due else SAMPLE_SECONDS
                for key, events in self._selector.select(max(0.0, wait)):
                    key.data(events)
            for one in list(self._open):
                self._end(one)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (seconds, self._order, action))

    def _due_before(self, seconds: float) -> bool:
        return bool(self._due) and self._due[0][0] <= seconds and self._now() <= seconds

    def _time_is_over(self) -> None:
        for one in list(self._open):
            if one.its.transfer.bytes is None:
                self._receive(one)
                self._end(one)

    def _sample(self) -> None:
        now = self._now()
        for one in list(self._open):
            if not one.connected:
                continue
            info = tcp_info(one.sender)
            if info is None:
                continue
            one.its.sender = info
            if self._keep_cwnd:
                one.its.cwnd.append((round(now, 3), info.cwnd))
        if now < 2 * self.plan.seconds:
            self._at(now + SAMPLE_SECONDS, self._sample)

    # -- one transfer -------------------------------------------------------------------------------------------------

    def _listen(self, stack: ExitStack) -> None:
        for host in sorted({transfer.dst for transfer in self.plan.transfers}):
            with inside(self._netns(host)):
                listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, self._protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((str(self.tree.ip(host)), PORT))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, lambda _events, its=listener: self._accept(its))

    def _start(self, number: int) -> None:
        its = self.reached[number]
        src, dst = (str(self.tree.ip(host)) for host in (its.transfer.src, its.transfer.dst))
        with inside(self._netns(its.transfer.src)):
            sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, self._protocol)
        one = _Open(its, sender, its.transfer.bytes)
        try:
            sender.setblocking(False)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control)
            sender.bind((src, its.source_port))
            self._by_address[src, its.source_port] = one
            its.started = self._now()
            code = sender.connect_ex((dst, PORT))
        except OSError as error:
            sender.close()
            raise TransferError(f"{self._name(its)} cannot be opened: {error.strerror}") from error
        if code not in (0, *_IN_PROGRESS):
            sender.close()
            raise TransferError(f"{self._name(its)} cannot be opened: {errno.errorcode.get(code, code)}")
        self._open.add(one)
        self._selector.register(sender, selectors.EVENT_WRITE, lambda _events: self._send(one))

    def _accept(self, listener: socket.socket) -> None:
        try:
            receiver, peer = listener.accept()
        except BlockingIOError:
            return
        one = self._by_address.get((peer[0], peer[1]))
        if one is None or one not in self._open:
            receiver.close()
            return
        receiver.setblocking(False)
        with contextlib.suppress(OSError):  # multipath TCP has none
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LEAST_READ)
        one.receiver = receiver
        self._selector.register(receiver, selectors.EVENT_READ, lambda _events: self._receive(one))
        self._receive(one)

    def _send(self, one: _Open) -> None:
        if not one.connected:
            code = one.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                one.its.problem = errno.errorcode.get(code, str(code))
                self._end(one)
                return
            one.connected = True
        try:
            while one.left is None or one.left > 0:
                sent = one.sender.send(_CHUNK if one.left is None else memoryview(_CHUNK)[: min(len(_CHUNK), one.left)])
                if one.left is not None:
                    one.left -= sent
            one.sender.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError as error:
            one.its.problem = error.strerror or str(error)
            self._end(one)
            return
        one.finished_sending = True
        self._selector.unregister(one.sender)

    def _receive(self, one: _Open) -> None:
        if one.receiver is None:
            return
        try:
            while True:
                count = one.receiver.recv_into(self._buffer)
                now = self._now()
                if not count:
                    self._end(one)
                    return
                one.its.received += count
                one.its.ended = now
                self._count(one, now, count)
        except BlockingIOError:
            return
        except OSError as error:
            one.its.problem = error.strerror or str(error)
            self._end(one)

    def _count(self, one: _Open, now: float, count: int) -> None:
        series, second = one.its.series, int(now)
        series.extend([0.0] * (second + 1 - len(series)))
        series[second] += 8 * count / 1e6

    def _end(self, one: _Open) -> None:
        """Take down what is known of it, and close it without waiting for its peer."""
        if one not in self._open:
            return
        self._open.discard(one)
        its = one.its
        if one.receiver is not None:
            its.receiver = tcp_info(one.receiver) or its.receiver
            self._selector.unregister(one.receiver)
        if one.connected:
            its.sender = tcp_info(one.sender) or its.sender
        if not one.finished_sending:
            self._selector.unregister(one.sender)
        if its.transfer.bytes is None:
            its.ended = min(self._now(), self.plan.seconds)
        for end in (one.sender, one.receiver):
            if end is not None:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.close()
        if self._now() < self.plan.seconds:
            for follower in self._followers.get(its.number, ()):
                start = self._now() + self.plan.transfers[follower].start
                self._at(start, lambda number=follower: self._start(number))  # type: ignore[misc]

    def _close(self) -> None:
        for one in list(self._open):
            self._end(one)
        self._selector.close()

    def _name(self, its: Reached) -> str:
        src, dst = (self.tree.name(host) for host in (its.transfer.src, its.transfer.dst))
        return f"the connection from {src} to {dst}"
