"""Which stream is probed when: the assignment's at its interval, and those of busy racks with what is left of the rate. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from sopa_ryu.channel.messages import MAX_PROBE_RATE, Assignment, Stream

TIMES_ASSIGNED = 2.0
"""As many times the rate of the list, where the controller names no rate."""
LEAST_RATE = 1.0
"""Probes a second to busy racks, at least: what was left has to be found good again."""
LEAST_PART = 0.01
"""The least part of the probes of a host that is probed by many."""
BATCH_SECONDS, MAX_BATCH_SECONDS, BATCH = 0.02, 0.2, 4
"""The shortest time between two wakes; longer where so few probes are sent that a batch takes more."""
GOLDEN = 0.618034
"""Multiples of it are spread over a turn."""
PART_SECONDS = 1.0
"""How often the part of a busy host's probes is decided anew."""
LATE_SECONDS = 0.1
"""What is late by more is left out rather than made up for."""
NOTHING = Assignment(0, 1000.0, ())


class ProbeSchedule:
    """The streams of one host, in turn.

    Args:
        phase: From 0 to 1, another one for each host: hosts neither begin with the same uplinks nor skip the same turns.

    Attributes:
        assignment: The one in force.
        is_tracing: Whether a trace takes every other turn of the busy racks.

    >>> from ipaddress import IPv4Address
    >>> first, second = (Stream(IPv4Address("10.2.1.3"), up1, 0) for up1 in (0, 1))
    >>> its = ProbeSchedule()
    >>> its.follow(Assignment(1, 20.0, (first, second)), 0.0)
    >>> [its.due(now, {}) for now in (0.0, 0.01, 0.02, 0.04)] == [[first], [], [second], [first]]
    True
    >>> its.pause(busy=True), its.pause(busy=False)
    (0.04, 0.08)
    """

    def __init__(self, phase: float = 0.0) -> None:
        self.assignment = NOTHING
        self.is_tracing = False
        self._phase = phase
        self._assigned = _Turn()
        self._busy = _Turn(phase)
        self._parts: dict[IPv4Address, _Part] = {}
        self._credits: dict[Stream, float] = {}

    def follow(self, assignment: Assignment, now: float) -> None:
        """Put another assignment in force."""
        self.assignment = assignment
        self._assigned.begin(now)

    @property
    def rate(self) -> float:
        """Probes a second in all, and as many answers to others' probes."""
        if self.assignment.rate is not None:
            return self.assignment.rate
        return MAX_PROBE_RATE if self.assignment is NOTHING else min(MAX_PROBE_RATE, TIMES_ASSIGNED * self._assigned_rate)

    @property
    def interval(self) -> float:
        """Seconds between two probes to busy racks."""
        return self.trace_interval if self.is_tracing else self.trace_interval / 2

    @property
    def trace_interval(self) -> float:
        """Seconds between two probes of a trace at least, as it takes turns with busy racks."""
        return 2.0 / max(self.rate - self._assigned_rate, LEAST_RATE)

    def pause(self, busy: bool) -> float:
        """Return the seconds between two wakes, at least: longer while no rack is busy, so that a host that sends nothing rests."""
        rate = self.rate if busy or self.is_tracing else self._assigned_rate
        return min(MAX_BATCH_SECONDS, max(BATCH_SECONDS, BATCH / max(rate, LEAST_RATE)))

    @property
    def _assigned_rate(self) -> float:
        return min(1000.0 / self.assignment.interval_ms, MAX_PROBE_RATE) if self.assignment.streams else 0.0

    def answered(self, host: IPv4Address, answers: int, now: float) -> None:
        """Note how many probes of all hosts one has answered in the last second; 0 if it does not say.

        Where that is more than each host may send, all who probe it send it fewer, until it is not. The root makes that settle,
        although what a host says is a second old.
        """
        part = self._parts.get(host)
        if part is None:
            self._parts[host] = _Part(now)
        elif answers and now - part.at >= PART_SECONDS:
            part.size = min(1.0, max(LEAST_PART, part.size * math.sqrt(max(self.rate, LEAST_RATE) / answers)))
            part.at = now

    def forget(self, stream: Stream) -> None:
        """Forget a stream that is not probed any more."""
        self._credits.pop(stream, None)

    def forget_host(self, host: IPv4Address) -> None:
        """Forget what a host has said of its answers."""
        self._parts.pop(host, None)

    def due(self, now: float, busy: Mapping[Stream, float]) -> list[Stream]:
        """Return the streams of which a probe is to be sent now, each at most once.

        Args:
            now: Monotonic seconds.
            busy: The streams of busy racks, with the part of their turns that each takes: 1 is each turn.
        """
        interval = max(self.assignment.interval_ms / 1000.0, 1.0 / MAX_PROBE_RATE)
        assigned = self._assigned.take(self.assignment.streams, interval, now, ())
        turns = self._busy.take(tuple(busy), self.interval, now, assigned)
        return assigned + [stream for stream in turns if self._has_turn(stream, busy[stream])]

    def _has_turn(self, stream: Stream, part: float) -> bool:
        """Tell whether a probe of a stream is sent in this turn."""
        host = self._parts.get(stream.destination)
        part *= 1.0 if host is None else host.size
        if part == 1.0:
            return True
        credit = self._credits.get(stream)
        credit = part + ((self._phase + GOLDEN * len(self._credits)) % 1.0 if credit is None else credit)
        self._credits[stream] = credit % 1.0
        return credit >= 1.0

    def next_due(self, now: float, busy: Collection[Stream]) -> float | None:
        """Return when the next probe is to be sent; None if there is nothing to probe."""
        times = []
        if self.assignment.streams:
            times.append(self._assigned.due_at)
        if busy:
            times.append(max(self._busy.due_at, now))
        return min(times, default=None)


@dataclass(slots=True)
class _Part:
    """The part of its turns in which a busy host is probed, and when that was decided."""

    at: float
    size: float = 1.0


class _Turn:
    """A turn through streams that may change meanwhile; it begins after ``phase`` of those that are there first."""

    def __init__(self, phase: float = 0.0) -> None:
        self.due_at = 0.0
        self._phase = phase
        self._last: int | None = None  # until there are streams

    def begin(self, now: float) -> None:
        self.due_at = now

    def take(self, streams: Sequence[Stream], interval: float, now: float, without: Sequence[Stream]) -> list[Stream]:
        if not streams:
            return []
        if now - self.due_at > max(LATE_SECONDS, (BATCH + 1) * interval):
            self.due_at = now
        if self._last is None:
            self._last = int(self._phase * len(streams)) - 1
        found: list[Stream] = []
        for _ in range(len(streams)):
            if self.due_at > now:
                break
            self._last = (self._last + 1) % len(streams)
            self.due_at += interval
            if streams[self._last] not in without:
                found.append(streams[self._last])
        else:
            self.due_at = max(self.due_at, now)  # each once: what is left of the rate is not made up for
        return found
