"""Echo requests to all switches from one green thread: a channel that carries nothing any more is noticed within a bounded time.

Ryu asks each switch every interval, whatever else it answers, from a green thread of its own. Here a switch of a small fabric is
asked as often. In a large fabric a switch that answers anything is left alone for longer, and one that does not is asked at shorter
intervals, so that a dead channel is closed after the same time at the latest.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol

import eventlet

ECHOES_PER_SECOND = 480
"""To all switches together, as far as the time until a dead channel is noticed allows."""
SHORTEST_STEP = 0.6
"""Of an interval: a switch that is busy for a while is not dead."""
ASKED_AT_ONCE = 32
"""After so many, other green threads have their turn."""
GRAIN_SECONDS = 0.05
"""Switches that are due within it are asked together."""


class EchoPace(NamedTuple):
    """How long a switch that has answered is left alone, and how long one that has not is waited for until it is asked again."""

    rest: float
    step: float


def pace(interval: float, most: int, switches: int) -> EchoPace:
    """Return when switches are asked: the rest and ``most + 1`` steps are always ``most + 2`` intervals.

    Args:
        interval: Seconds from an echo request to the next in a small fabric (``--echo-request-interval``).
        most: How many requests may stay unanswered (``--maximum-unreplied-echo-requests``); the channel is closed after one
            more.

    >>> pace(2.0, 3, 720)
    EchoPace(rest=2.0, step=2.0)
    >>> pace(2.0, 3, 2400)
    EchoPace(rest=5.0, step=1.25)
    """
    rest = min(max(interval, switches / ECHOES_PER_SECOND), interval * (most + 2 - (most + 1) * SHORTEST_STEP))
    return EchoPace(rest, (interval * (most + 2) - rest) / (most + 1))


class EchoAsked(Protocol):
    """A channel to a switch."""

    answered_at: float
    """When the switch has answered anything last, in monotonic seconds."""
    unanswered: int
    """Echo requests since then."""

    @property
    def is_open(self) -> bool:
        """Whether it is served still."""

    def ask(self) -> None:
        """Send an echo request without waiting, and count it as unanswered."""

    def close(self) -> None:
        """Give it up."""


class EchoKeepalive:
    """The channels in the order in which they are due; with ``most`` 0, as of `pace`, nothing is asked."""

    def __init__(
        self,
        interval: float,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = eventlet.sleep,
    ) -> None:
        self._interval = interval
        self._most = most
        self._clock = clock
        self._sleep = sleep
        self._due: list[tuple[float, int, EchoAsked]] = []
        self._numbers = count()
        self._switches = 0
        self._pace = pace(interval, most, 0)
        self._worker: object = None

    def add(self, channel: EchoAsked) -> None:
        """Ask a switch from now on, until its channel is closed."""
        if not self._most:
            return
        self._ask(channel, self._clock())
        if self._worker is None:
            self._worker = eventlet.spawn(self.rounds)

    def rounds(self) -> None:
        """Run until no channel is left."""
        while self._due:
            self._sleep(max(GRAIN_SECONDS, self._due[0][0] - self._clock()))
            asked = 0
            while self._due and self._due[0][0] <= self._clock() + GRAIN_SECONDS / 2:
                self._look(heapq.heappop(self._due)[2])
                asked += 1
                if not asked % ASKED_AT_ONCE:
                    self._sleep(0)
        self._worker = None

    def _look(self, channel: EchoAsked) -> None:
        if not channel.is_open:
            return
        now = self._clock()
        rest, _ = self._pace
        if rest > self._interval and channel.answered_at + rest > now + GRAIN_SECONDS and not channel.unanswered:
            self._push(channel, channel.answered_at + rest)
        elif channel.unanswered > self._most:
            channel.close()
        else:
            self._ask(channel, now)

    def _ask(self, channel: EchoAsked, now: float) -> None:
        channel.ask()
        self._push(channel, now + self._pace.step)

    def _push(self, channel: EchoAsked, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), channel))
        if len(self._due) > self._switches:  # it never falls: channels that are closed do not prolong the time of others
            self._switches = len(self._due)
            self._pace = pace(self._interval, self._most, self._switches)
