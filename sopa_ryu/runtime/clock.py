"""A monotonic clock that stands still while the process does.

Everything in a controller that was stopped (SIGSTOP, a suspended machine, a machine without memory) would find its deadlines
overdue when it goes on, before it reads what has arrived meanwhile. By this clock no time has passed for them.

Times that are kept by one part and compared by another (when a switch or an agent was heard, a version was sent, a hold-down
ends) are of this clock, since the two clocks differ by every pause that there was. `time.monotonic` is for what begins and ends
within one module: how long something took, rates of counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_SECONDS = 2.0
"""The process looks at the clock several times a second: a longer gap is a pause."""


class SteadyClock:
    """A clock without the time of pauses."""

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._last: float | None = None
        self._stood = self._pause = 0.0

    def now(self) -> float:
        """Return monotonic seconds without those of pauses."""
        real = self._source()
        if self._last is not None and real - self._last > PAUSE_SECONDS:
            self._stood += real - self._last
            self._pause += real - self._last
        self._last = real
        return real - self._stood

    def take_pause(self) -> float:
        """Return for how many seconds the process has paused since the last call."""
        pause, self._pause = self._pause, 0.0
        return pause


CLOCK = SteadyClock()
"""The process' own."""
now = CLOCK.now
