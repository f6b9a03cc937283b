"""Turns of the green threads that serve switches: together they keep the process from its other work for a bounded time only.

Eventlet lets every green thread that can go on do so before it looks at the sockets again. When thousands of switches connect, each
has something to do for some tenths of a millisecond: a request of a reader or the word of an agent would wait for all of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import eventlet.hubs
import greenlet

TURN_SECONDS = 0.01
"""So long switches are served between two looks at all sockets."""


class Turns:
    """A line in which green threads wait once the time is used up, until the sockets have been looked at.

    Args:
        seconds: The time of all of them together.
        clock: Monotonic seconds.
    """

    def __init__(self, seconds: float = TURN_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self._line: deque[Any] = deque()

    def take(self, first: bool = False) -> None:
        """Go on if there is time left, or wait for a turn; ``first``: before all others that wait."""
        if self._until is None:
            self._begin()
            return
        if self._clock() < self._until and (first or not self._line):
            return
        me = greenlet.getcurrent()
        if first:
            self._line.appendleft(me)
        else:
            self._line.append(me)
        try:
            eventlet.hubs.get_hub().switch()
        except BaseException:  # it was killed, or ran out of time
            if me in self._line:
                self._line.remove(me)
            raise

    def _begin(self) -> None:
        self._until = self._clock() + self._seconds
        eventlet.hubs.get_hub().schedule_call_global(0, self._looked)

    def _looked(self) -> None:
        """The sockets have been looked at since the turn began."""
        self._until = None
        if not self._line:
            return
        self._begin()
        while self._line and self._clock() < (self._until or 0.0):
            self._line.popleft().switch()


SWITCHES = Turns()
"""Of all green threads that read from switches, write to them, or handle what they have said."""
