"""A trace: probes on named paths, and what became of each. Pure but for the event that ends it."""

from __future__ import annotations

from asyncio import Event
from collections.abc import Sequence
from typing import NamedTuple

from sopa_ryu.agent.probing.streams import Streams, StreamState
from sopa_ryu.channel.messages import MAX_STREAMS, Stream

MAX_PROBES = 100_000
MIN_INTERVAL = 1.0 / 500
"""Seconds between two probes of a trace: together with all others a host sends less than any host answers one."""
MAX_REFUSALS = 50
"""The device has not taken so many probes."""


class TraceError(RuntimeError):
    """A trace that cannot be made; the message says why."""


class Traced(NamedTuple):
    """What became of one probe of a trace.

    Attributes:
        number: The probe's in its stream, from 0.
        lost_out: Of a lost one: True on the way out, False on the way back, None if it is not known.
        delay_ns: There and back in nanoseconds, without the time in the other host; 0 of a lost one.
    """

    stream: Stream
    number: int
    came_back: bool
    lost_out: bool | None
    delay_ns: int


class Trace:
    """One trace.

    Args:
        count: Probes of each.
        interval: Seconds from one probe to the next.
        now: Monotonic seconds.

    Raises:
        TraceError: If it asks for too much.

    Attributes:
        ended: Set when all probes are decided about, or the device has refused too many.
        states: Its own; the caller removes them.
    """

    def __init__(self, streams: Streams, paths: Sequence[Stream], count: int, interval: float, now: float) -> None:
        if not paths or len(paths) > MAX_STREAMS or count < 1 or count * len(paths) > MAX_PROBES:
            raise TraceError(
                f"{len(paths)} paths with {count} probes each are no trace: 1 to {MAX_STREAMS} paths, {MAX_PROBES} probes in all"
            )
        if not MIN_INTERVAL <= interval <= 60.0:
            raise TraceError(f"{interval:g} s from one probe to the next: {MIN_INTERVAL:g} to 60 s")
        self.states = [streams.apart(path) for path in paths]
        for state in self.states:
            state.decisions = {}
        self.ended = Event()
        self._order: list[tuple[StreamState, int]] = []
        self._left, self._interval, self._due_at = count * len(paths), interval, now
        self._refusals = 0

    def due(self, now: float) -> list[StreamState]:
        """Return the streams of which a probe is to be sent now, each at most once."""
        found: list[StreamState] = []
        while self._left > len(found) < len(self.states) and self._due_at <= now:
            found.append(self.states[(len(self._order) + len(found)) % len(self.states)])
            self._due_at += self._interval
        if len(found) == len(self.states):
            self._due_at = max(self._due_at, now)
        return found

    def sent(self, state: StreamState, number: int | None) -> None:
        """Note that a probe was sent, or, without a number, that the device did not take it."""
        if number is None:
            self._refusals += 1
        else:
            self._order.append((state, number))
            self._left -= 1

    def next_due(self) -> float | None:
        """Return when the next probe is to be sent; None if all are."""
        return self._due_at if self._left else None

    def look(self) -> None:
        """End it if there is nothing to wait for."""
        if self._refusals > MAX_REFUSALS or (not self._left and all(state.deadline_ns() is None for state in self.states)):
            self.ended.set()

    def results(self) -> list[Traced]:
        """Return what became of each probe, in the order of sending.

        Raises:
            TraceError: If the device has refused too many.
        """
        if self._refusals > MAX_REFUSALS:
            raise TraceError("the interface does not take probes: is it up?")
        found = []
        for state, number in self._order:
            fate = (state.decisions or {}).get(number)
            if fate is None:  # this host was paused meanwhile
                found.append(Traced(state.stream, number, False, None, 0))
            else:
                found.append(Traced(state.stream, number, fate.came_back, fate.lost_out, fate.delay_ns))
        return found
