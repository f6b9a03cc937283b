"""The controller's traces: what agents are asked, and what they have answered so far. Pure.

A host has one trace at a time. A trace ends when its agent has answered for all probes, when nobody has read it for
`UNREAD_SECONDS`, when its agent is silent for `SILENT_SECONDS` or leaves; what has come until then stays readable for a while.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address
from typing import NamedTuple, Protocol

from flowrules.label import hop_bytes
from sopa_ryu.channel.messages import BACK, MAX_PROBLEM, FlowLabels, FlowOf, Stream, TraceAnswer, TraceRequest, encode
from sopa_ryu.runtime.foreign_text import printable
from topologies import Host
from topologies.identity import IPV4, Family

MAX_RUNNING = 32
MAX_KEPT = 32
UNREAD_SECONDS = 10.0
SILENT_SECONDS = 15.0
KEPT_SECONDS = 60.0


class State(StrEnum):
    """Whether a trace runs, and how it ended."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TraceError(Exception):
    """A trace that is not begun; the text says why."""


class UnableError(TraceError):
    """The host's agent is away, cannot send probes, or has another trace."""


class BusyError(TraceError):
    """There are as many traces as there may be."""


class CanTrace(Protocol):
    """Who is asked for traces."""

    @property
    def traces(self) -> bool:
        """Whether that is possible: an agent without probes, and a relay of an earlier release, cannot."""


class Asked(NamedTuple):
    """What a trace asks for: probes on paths, or how a flow is labelled.

    Attributes:
        ups: The paths, in the order of the candidate paths.
        probes: Of each path.
        interval_ms: From one probe to the next.
        flow: The flow, if that is what is asked for.
        family: Address family of the flow and of the ends in the answer. Probes always use IPv4.
    """

    ups: tuple[tuple[int, ...], ...] = ()
    probes: int = 0
    interval_ms: float = 0.0
    flow: FlowOf | None = None
    family: Family = IPV4


@dataclass(eq=False)
class Found:
    """What the probes on one path have found so far: fates by their number, and delays in nanoseconds of those that came back."""

    fates: Counter[int] = field(default_factory=Counter)
    delays: array[int] = field(default_factory=lambda: array("I"))

    @property
    def sent(self) -> int:
        """Probes whose fate is known."""
        return self.fates.total()


@dataclass(eq=False)
class Trace:
    """One trace.

    Attributes:
        version: The version of the fabric when it began.
        read_at, heard_at: When it was read last, and when its agent has answered last.
        problem: Why it has failed, or was cancelled.
        found: By path.
        labels: How the agent labels the flow, once it has said so.
        asked_agent: Whether the host's agent is asked; of a flow that switches hash it is not.
    """

    number: int
    src: Host
    dst: Host
    asked: Asked
    version: int
    read_at: float
    heard_at: float
    state: State = State.RUNNING
    problem: str = ""
    found: list[Found] = field(default_factory=list)
    labels: FlowLabels | None = None
    asked_agent: bool = True

    def end(self, state: State, problem: str = "") -> None:
        """End it."""
        self.state, self.problem = state, problem


class TraceDesk:
    """All traces of a controller."""

    def __init__(self) -> None:
        self._numbers = 0
        self._running: dict[Host, Trace] = {}
        self._by_number: dict[int, Trace] = {}
        self._ended: deque[tuple[float, int]] = deque()
        self._due: dict[Host, list[TraceRequest]] = {}

    def __len__(self) -> int:
        """Return how many traces are running."""
        return len(self._running)

    # -- requests -----------------------------------------------------------------------------------------------------

    def begin(
        self, tracer: CanTrace | None, ends: tuple[Host, Host], address: IPv4Address, asked: Asked, version: int, now: float
    ) -> Trace:
        """Begin a trace by a host's agent, for which something is `due` then.

        Args:
            tracer: The source's agent, or the relay that has it; None if it has none.
            ends: Source and destination.
            address: The destination's.
            version: Of the fabric.

        Raises:
            UnableError, BusyError: If it cannot be.
        """
        src, dst = ends
        if tracer is None:
            raise UnableError("no agent of the source is connected: sopa agents --missing lists such hosts")
        if not tracer.traces:
            raise UnableError("the source's agent sends no probes: it or its relay is of an older version, or it was told not to")
        if src in self._running:
            raise UnableError(f"trace {self._running[src].number} of that host is running: a host has one at a time")
        if len(self._running) >= MAX_RUNNING:
            raise BusyError(f"{MAX_RUNNING} traces are running, as many as there may be: try again later")
        self._numbers += 1
        trace = Trace(self._numbers, src, dst, asked, version, now, now)
        trace.found = [Found() for _ in asked.ups]
        self._running[src] = self._by_number[trace.number] = trace
        if asked.flow is not None:
            field = "destination" if asked.family.number == 4 else "destination6"
            request = TraceRequest(trace.number, flow=asked.flow, **{field: asked.family.address(dst)})
        else:
            streams = tuple(Stream(address, *hop_bytes(up)) for up in asked.ups)
            request = TraceRequest(trace.number, count=asked.probes, interval_ms=asked.interval_ms, streams=streams)
        self._due.setdefault(src, []).append(request)
        return trace

    def answered_here(self, ends: tuple[Host, Host], asked: Asked, version: int, now: float) -> Trace:
        """Return a trace of a flow about which no agent is asked, ended."""
        self._numbers += 1
        trace = Trace(self._numbers, *ends, asked, version, now, now)
        trace.asked_agent = False
        self._by_number[trace.number] = trace
        self._end(trace, State.DONE, "", now)
        return trace

    def find(self, number: int, now: float) -> Trace | None:
        """Return a trace for a reader; None if there is none of that number any more."""
        trace = self._by_number.get(number)
        if trace is not None:
            trace.read_at = now
        return trace

    def cancel(self, trace: Trace, now: float, problem: str = "") -> None:
        """End a trace, unless it has ended; its agent is told."""
        if trace.state is State.RUNNING:
            self._end(trace, State.CANCELLED, problem, now)
            self._due.setdefault(trace.src, []).append(TraceRequest(trace.number, cancel=True))

    # -- agents -------------------------------------------------------------------------------------------------------

    def due(self, host: Host) -> str | None:
        """Return the next message to a host's agent."""
        waiting = self._due.get(host)
        if not waiting:
            return None
        request = waiting.pop(0)
        if not waiting:
            del self._due[host]
        return encode(request)

    def answered(self, host: Host, answer: TraceAnswer, now: float) -> None:
        """Take what a host's agent answers.

        Raises:
            ValueError: If it has not been asked that: nothing has changed.
        """
        trace = self._by_number.get(answer.number)
        if trace is None or trace.src != host:
            raise ValueError(f"it answers trace {answer.number}, which it was not asked for")
        if trace.state is not State.RUNNING:
            return  # it was sent before the agent heard of the end
        outcomes, flow = answer.outcomes, answer.flow
        coming = Counter(outcome.place for outcome in outcomes)
        if any(place >= len(trace.found) or trace.found[place].sent + more > trace.asked.probes for place, more in coming.items()):
            raise ValueError(f"it has more fates than probes of trace {answer.number}")
        if (flow is not None) != (answer.done and trace.asked.flow is not None and not answer.problem):
            raise ValueError(f"it says nothing of the flow of trace {answer.number}, or something without one")
        for outcome in outcomes:
            found = trace.found[outcome.place]
            found.fates[outcome.fate] += 1
            if outcome.fate == BACK:
                found.delays.append(outcome.delay_ns)
        trace.heard_at, trace.labels = now, flow
        if answer.problem:
            self._end(trace, State.FAILED, f"its agent: {printable(answer.problem, MAX_PROBLEM)}", now)
        elif answer.done:
            self._end(trace, State.DONE, "", now)

    def left(self, host: Host, now: float) -> None:
        """Note that the session of a host's agent has ended."""
        self._due.pop(host, None)
        trace = self._running.get(host)
        if trace is not None:
            self._end(trace, State.FAILED, "its agent has left, or its channel is lost", now)

    def tick(self, now: float) -> list[Trace]:
        """End traces that nobody reads or answers, and forget old ones; return those that agents have to be told the end of."""
        cancelled = []
        for trace in list(self._running.values()):
            if now - trace.read_at > UNREAD_SECONDS:
                self.cancel(trace, now, f"nobody has read it for {UNREAD_SECONDS:g} s")
                cancelled.append(trace)
            elif now - trace.heard_at > SILENT_SECONDS + trace.asked.interval_ms / 1000:
                self.cancel(trace, now)
                trace.end(State.FAILED, f"its agent has not answered for {SILENT_SECONDS:g} s")
                cancelled.append(trace)
        while self._ended and (len(self._ended) > MAX_KEPT or now - self._ended[0][0] > KEPT_SECONDS):
            self._by_number.pop(self._ended.popleft()[1], None)
        return cancelled

    def _end(self, trace: Trace, state: State, problem: str, now: float) -> None:
        trace.end(state, problem)
        if self._running.get(trace.src) is trace:
            del self._running[trace.src]
        self._ended.append((now, trace.number))
        while len(self._ended) > MAX_KEPT:
            self._by_number.pop(self._ended.popleft()[1], None)
