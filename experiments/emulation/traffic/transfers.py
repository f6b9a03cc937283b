"""All TCP transfers of a plan between hosts of the lab, driven by one loop.

Ports are drawn from the seed, so that hashes of flows are the same in every run.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from experiments.emulation.traffic.loop import Loop
from experiments.emulation.traffic.tcp_connection import PORT, Connection, TransferError, TransferResult
from experiments.workloads import Plan
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Host

CLIENT_PORTS = range(20000, 60000)
SAMPLE_SECONDS = 0.1
"""Interval between samples of each sender."""
MAX_CWND_SERIES = 32
_TICK_SECONDS = 0.2
_BACKLOG = 512


class Transfers:
    """All transfers of a plan.

    Args:
        netns: Returns the path of the network namespace of a host.
        seed: Seed of the ports of the senders.
        multipath: Use multipath TCP.
    """

    def __init__(
        self,
        tree: Clos,
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
        self._open: dict[tuple[str, int], Connection] = {}
        self._loop = Loop()
        self._buffer = bytearray(1 << 20)
        self._keep_cwnd = len(plan.transfers) <= MAX_CWND_SERIES
        self._due = 0

    def run(
        self, at: Sequence[tuple[float, Callable[[], None]]] = (), tick: Callable[[float], None] = lambda _now: None
    ) -> None:
        """Run all transfers.

        Transfers without a size end with the time of the plan. Transfers with a size that are running then get the same
        time again; no other transfer starts after that, unless the plan is a collective operation.

        Args:
            at: Further actions, each with its time in seconds after the start. They delay the accounting of transfers, not TCP.
            tick: Called several times a second with the elapsed seconds.

        Raises:
            TransferError: If a connection cannot be opened.
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
                    tick(now)
                    ticks = now + _TICK_SECONDS
                loop.turn()

    def _runs(self) -> bool:
        # a collective operation is over with its last transfer
        return bool(self._open) or (self._due > 0 if self.plan.collective else self._loop.due_before(self.plan.seconds))

    def _time_is_over(self) -> None:
        for one in list(self._open.values()):
            if one.its.transfer.bytes is None:
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
                one.its.cwnd.append((round(now, 3), info.cwnd))
        if now < 2 * self.plan.seconds:
            self._loop.at(now + SAMPLE_SECONDS, self._sample)

    def _listen(self, stack: ExitStack) -> None:
        for host in sorted({transfer.dst for transfer in self.plan.transfers}):
            with inside(self._netns(host)):
                listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, self._protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((str(self.tree.ip(host)), PORT))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            self._loop.when_readable(listener, partial(self._accept, listener))

    def _accept(self, listener: socket.socket) -> None:
        try:
            receiver, peer = listener.accept()
        except BlockingIOError:
            return
        one = self._open.get((peer[0], peer[1]))
        if one is None:
            receiver.close()
        else:
            one.accepted(receiver)

    def _start_at(self, seconds: float, number: int) -> None:
        self._due += 1
        self._loop.at(seconds, partial(self._start, number))

    def _start(self, number: int) -> None:
        self._due -= 1
        its = self.results[number]
        src, dst = (str(self.tree.ip(host)) for host in (its.transfer.src, its.transfer.dst))
        with inside(self._netns(its.transfer.src)):
            sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, self._protocol)
        one = Connection(its, sender, self._loop, self._buffer, self._ended)
        try:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control)
            sender.bind((src, its.source_port))
            one.connect(dst)
        except OSError as error:
            sender.close()
            ends = (self.tree.name(host) for host in (its.transfer.src, its.transfer.dst))
            raise TransferError(f"cannot open the connection from {' to '.join(ends)}: {error.strerror}") from error
        self._open[src, its.source_port] = one

    def _ended(self, one: Connection) -> None:
        its = one.its
        del self._open[str(self.tree.ip(its.transfer.src)), its.source_port]
        now = self._loop.now()
        if not its.completed if self.plan.collective else now >= self.plan.seconds:
            return
        for follower in self._followers.get(its.number, ()):
            self._awaited[follower] -= 1
            if not self._awaited[follower]:
                self._start_at(now + self.plan.transfers[follower].start, follower)
