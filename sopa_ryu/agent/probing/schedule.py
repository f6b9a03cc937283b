"""Which stream is probed when: the assignment's at its interval, and those of busy racks with what is left of the rate. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sopa_ryu.channel.messages import PROBE_BYTES, Assignment, Stream

MAX_RATE = 200.0
"""Probes a second of a host, in all."""
TIMES_ASSIGNED = 4.0
"""As many times the rate of the assignment: the controller knows what the links bear."""
SLOTS_SHARE = 0.01
"""Of a link all of whose data has slots, for the probes of all hosts: a slot's guard is for ACKs and for what is late, too."""
HOSTS_ON_LINK = 2
"""The hosts whose probes a link bears: a probe crosses eight directions of links, and a fat-tree has four for each host."""
LEAST_BUSY = 8.0
"""Probes a second to busy racks that every link bears: what was left has to be found good again in some seconds."""
BATCH_SECONDS = 0.02
"""The shortest time between two wakes."""
LATE_SECONDS = 0.1
"""What is late by more is left out rather than made up for."""
NOTHING = Assignment(0, 1000.0, ())


class ProbeSchedule:
    """The streams of one host, in turn.

    Attributes:
        assignment: The one in force.
        most: Probes a second in all; those of the assignment are sent in any case.

    >>> from ipaddress import IPv4Address
    >>> first, second = (Stream(IPv4Address("10.2.1.3"), up1, 0) for up1 in (0, 1))
    >>> its = ProbeSchedule()
    >>> its.follow(Assignment(1, 20.0, (first, second)), 0.0)
    >>> [its.due(now, ()) for now in (0.0, 0.01, 0.02, 0.04)] == [[first], [], [second], [first]]
    True
    """

    def __init__(self) -> None:
        self.assignment = NOTHING
        self.most = MAX_RATE
        self._assigned = _Turn()
        self._busy = _Turn()

    def follow(self, assignment: Assignment, now: float) -> None:
        """Put another assignment in force."""
        self.assignment = assignment
        self._assigned.begin(now)

    def pace(self, link_rate: float | None) -> None:
        """Probe busy racks no more often than links can spare whose slots bear so many bytes a second; None without slots."""
        spare = MAX_RATE if link_rate is None else SLOTS_SHARE * link_rate / PROBE_BYTES / HOSTS_ON_LINK
        self.most = min(MAX_RATE, spare)

    @property
    def busy_interval(self) -> float:
        """Seconds between two probes of busy racks."""
        if not self.assignment.streams:
            return 1.0 / max(self.most, 1.0)
        assigned = min(1000.0 / self.assignment.interval_ms, MAX_RATE)
        least = 1.0 if self.most == MAX_RATE else min(LEAST_BUSY, self.most)
        return 1.0 / max(min(self.most, TIMES_ASSIGNED * assigned) - assigned, least)

    def due(self, now: float, busy: Sequence[Stream]) -> list[Stream]:
        """Return the streams of which a probe is to be sent now, each at most once.

        Args:
            now: Monotonic seconds.
            busy: The streams of busy racks.
        """
        interval = max(self.assignment.interval_ms / 1000.0, 1.0 / MAX_RATE)
        found = self._assigned.take(self.assignment.streams, interval, now, ())
        return found + self._busy.take(busy, self.busy_interval, now, found)

    def next_due(self, now: float, busy: Sequence[Stream]) -> float | None:
        """Return when the next probe is to be sent; None if there is nothing to probe."""
        times = []
        if self.assignment.streams:
            times.append(self._assigned.due_at)
        if busy:
            times.append(max(self._busy.due_at, now))
        return min(times, default=None)


class _Turn:
    """A turn through streams that may change meanwhile."""

    def __init__(self) -> None:
        self.due_at = 0.0
        self._last = -1

    def begin(self, now: float) -> None:
        self.due_at = now

    def take(self, streams: Sequence[Stream], interval: float, now: float, without: Sequence[Stream]) -> list[Stream]:
        if not streams:
            return []
        if now - self.due_at > max(LATE_SECONDS, interval):
            self.due_at = now
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
