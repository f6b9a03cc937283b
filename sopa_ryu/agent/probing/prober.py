"""The prober of one interface: sends probes, takes what comes back, tells those who judge paths, and reports.

A task that wakes as rarely as it can: each time it takes the answers that have come in meanwhile, decides about probes whose
deadline is over, and sends what is due, at most one probe of each stream.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import NoReturn, Protocol

from msgspec.structs import replace

from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.probing.fate import Fate, FateJudge
from sopa_ryu.agent.probing.frames import Ends, ProbeFrame
from sopa_ryu.agent.probing.reports import report
from sopa_ryu.agent.probing.schedule import NOTHING, ProbeSchedule
from sopa_ryu.agent.probing.streams import Record, Streams, StreamState
from sopa_ryu.agent.probing.traces import Trace, Traced, TraceError
from sopa_ryu.channel.messages import Assignment, Report, Stream
from sopa_ryu.runtime.service import set_or_after

LOG = logging.getLogger("sopa.agent")

UNUSED_SECONDS = 60.0
"""A stream is forgotten after so long without a probe."""
ANSWERED_SECONDS = 600.0
"""A host that has not answered for so long is not named any more."""
IDLE_SECONDS = 0.2
"""How often the busy racks are asked for while nothing is probed."""


class Socket(Protocol):
    """What sends frames: `ProbeSocket`."""

    def send(self, frame: bytes | bytearray) -> None:
        """Send one; `OSError` if the device does not take it."""


class Program(Protocol):
    """What takes answers: `ProbeProgram`."""

    def records(self) -> list[Record]:
        """Return those that have come in since the last call."""


def nothing_busy(now: float) -> Mapping[Stream, float]:
    """Return the streams to probe besides the assignment: none."""
    return {}


class Prober:
    """The prober of one interface, whose program is loaded.

    Args:
        ends: The host's.
        first_ssid: The number of the first stream, new at each start of the agent.
        clock: The monotonic clock in nanoseconds, the kernel's bpf_ktime_get_ns.

    Attributes:
        judges: Receivers of each fate, called when it is decided, in the event loop; may be added to at any time. An answer after
            the deadline of its probe makes a second fate of it, which came back.
        busy: Called with the monotonic time in seconds at each wake, which it must not delay: the streams to probe besides the
            assignment, in turn, at what is left of the rate, each with the part of its turns that it takes. May be set at any time.
        streams: All streams, with what has become of their probes.
        unsent: Probes that the device did not take.
    """

    def __init__(
        self, ends: Ends, program: Program, socket: Socket, *, first_ssid: int = 0, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.ends, self.address = ends, ends.address
        self.judges: list[FateJudge] = []
        self.busy: Callable[[float], Mapping[Stream, float]] = nothing_busy
        self.streams = Streams(first_ssid, ends.address)
        self.unsent = self._told = 0
        self._program, self._socket, self._clock = program, socket, clock
        self._schedule = ProbeSchedule(first_ssid / (1 << 16))
        self._frames: dict[int, ProbeFrame] = {}
        self._answered_at: dict[IPv4Address, float] = {}
        self._assigned: frozenset[IPv4Address] = frozenset()
        self._ports: dict[Stream, tuple[int, int]] = {}
        self._trace: Trace | None = None
        self._changed = asyncio.Event()
        self._problem = ""

    # -- for others -----------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> Assignment:
        """What the controller has given this host to probe."""
        return self._schedule.assignment

    def follow(self, assignment: Assignment) -> None:
        """Probe these streams from now on."""
        self._assigned = frozenset(stream.destination for stream in assignment.streams)
        turns = tuple(Stream(self.address, turn.up1, turn.up2) for turn in assignment.turns)
        self._ports = {stream: (turn.port1, turn.port2) for stream, turn in zip(turns, assignment.turns, strict=True)}
        self._frames.clear()
        self._schedule.follow(replace(assignment, streams=assignment.streams + turns, turns=()), self._clock() / 1e9)
        LOG.info(
            "%s: assignment %d in force: %d streams to %d hosts, a probe each %g ms, at most %.3g probes a second in all",
            self.address,
            assignment.number,
            len(self.assignment.streams),
            len(self._assigned),
            assignment.interval_ms,
            self._schedule.rate,
        )
        self._changed.set()

    def answering(self, pod: int, edge: int) -> tuple[IPv4Address, ...]:
        """Return the hosts of a rack that answer probes: those of the assignment, and any that has answered lately."""
        known = self._assigned | self._answered_at.keys()
        return tuple(sorted(host for host in known if host.packed[1:3] == bytes((pod, edge))))

    @property
    def has_assignment(self) -> bool:
        """Whether the controller has said how many probes the host may send."""
        return self.assignment is not NOTHING

    @property
    def probes_itself(self) -> bool:
        """Whether the assignment has self-probes."""
        return bool(self._ports)

    @property
    def has_news(self) -> bool:
        """Whether probes were lost since the last report, and the host sends self-probes: then the next does not wait."""
        if not self.probes_itself or self._told == self.streams.lost:
            return False
        unsaid, now = [state for state in self.streams.reported() if state.has_losses], self._clock()
        if not unsaid:
            self._told = self.streams.lost
        return any(state.has_lost(now) for state in unsaid)

    def report(self, dropped: int = 0, left: tuple[str, ...] = ()) -> Report:
        """Return what has been decided since the last report.

        Args:
            dropped: Packets that the host has dropped meanwhile.
            left: The links that it has left now.
        """
        now = self._clock()
        self._forget(now)
        return report(self.streams, self.assignment.number, dropped, now, left)

    def trace_interval(self, asked: float) -> float:
        """Return the seconds between two probes of a trace: more than are asked for where links bear fewer probes."""
        return max(asked, self._schedule.trace_interval)

    async def trace(self, streams: Sequence[Stream], count: int, interval: float) -> list[Traced]:
        """Send probes on paths, in turn; return what became of each, in the order of sending.

        They are streams of their own: no judge is told of them, and no report has them.

        Args:
            count: Probes of each stream.
            interval: Seconds from one probe to the next, of all streams together; one of a wake at most is sent of each stream.

        Raises:
            TraceError: If another trace is running, or it asks for too much.
        """
        if self._trace is not None:
            raise TraceError(f"{self.address} is tracing already: try again when that is done")
        trace = Trace(self.streams, streams, count, interval, self._clock() / 1e9)
        self._trace, self._schedule.is_tracing = trace, True
        try:
            self._changed.set()
            await trace.ended.wait()
            return trace.results()
        finally:
            self._trace, self._schedule.is_tracing = None, False
            for state in trace.states:
                self._frames.pop(state.ssid, None)
                self.streams.remove(state)

    async def run(self) -> NoReturn:
        """Probe until cancelled."""
        while True:
            seconds = self.wake()
            self._changed.clear()
            await set_or_after(self._changed, seconds)

    # -- one wake -------------------------------------------------------------------------------------------------------------

    def wake(self) -> float:
        """Take, decide and send what there is now; return the seconds until the next time."""
        now_ns = self._clock()  # before the answers are read: what comes in afterwards is not late
        self._take()
        self._tell(self.streams.expire(now_ns), now_ns)
        now = now_ns / 1e9
        busy = self.busy(now)
        for stream in self._schedule.due(now, busy):
            self._send(self.streams.of(stream))
        if self._trace is not None:
            for state in self._trace.due(now):
                self._trace.sent(state, self._send(state))
            self._trace.look()
        return self._until_next(now, busy)

    def _until_next(self, now: float, busy: Mapping[Stream, float]) -> float:
        times = [self._schedule.next_due(now, busy), self._trace.next_due() if self._trace is not None else None]
        if self.busy is not nothing_busy:
            times.append(now + IDLE_SECONDS)
        first = min((at for at in times if at is not None), default=now + UNUSED_SECONDS)
        return max(self._schedule.pause(bool(busy)), first - now)

    def _take(self) -> None:
        try:
            records = self._program.records()
            self._problem = ""
        except BpfError as error:
            if self._problem != str(error):
                self._problem = str(error)
                LOG.error("%s: answers to probes cannot be read: %s. Paths are not judged. Check dmesg", self.address, error)
            return
        for record in records:
            fates = self.streams.take(record)
            if fates and record.source != self.address:
                self._answered_at[record.source] = record.arrived_ns / 1e9
                self._schedule.answered(record.source, record.answers, record.arrived_ns / 1e9)
            self._tell(fates, record.arrived_ns)

    def _send(self, state: StreamState) -> int | None:
        """Send the next probe of a stream; return its number, or None if the device did not take it."""
        frame = self._frames.get(state.ssid)
        if frame is None:
            ports = self._ports.get(state.stream)
            frame = self._frames[state.ssid] = ProbeFrame(self.ends, state.stream, state.ssid, ports)
        now = self._clock()
        number = self.streams.send(state, now)
        try:
            self._socket.send(frame.numbered(number, now))
        except OSError:  # its queue is full, or it is down: that is not the path's fault
            self.streams.withdraw(state, number)
            self.unsent += 1
            return None
        return number

    def _tell(self, fates: Iterable[Fate], now_ns: int) -> None:
        for fate in fates:
            for judge in self.judges:
                judge.decided(fate, now_ns / 1e9)

    def _forget(self, now_ns: int) -> None:
        """Forget streams and hosts of which there was nothing for long."""
        for state in self.streams.remove_unused(now_ns - int(UNUSED_SECONDS * 1e9)):
            self._frames.pop(state.ssid, None)
            self._schedule.forget(state.stream)
        since = now_ns / 1e9 - ANSWERED_SECONDS
        for host in [host for host, at in self._answered_at.items() if at < since]:
            del self._answered_at[host]
            self._schedule.forget_host(host)
