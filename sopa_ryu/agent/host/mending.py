"""What another program may change behind an agent's back, and how often the agent puts it right. Pure.

The rule: what the agent owns, it puts right immediately the first time, and says so. If another program changes it again, the agent
waits longer each time, so that two programs that want different things do not spin.
"""

from __future__ import annotations

from enum import StrEnum

MIN_WAIT_SECONDS = 1.0
MAX_WAIT_SECONDS = 60.0
CALM_SECONDS = 120.0
"""After so long without a change, the next one is put right immediately again."""
TICK_SECONDS = 0.001
"""A timer may end so much before its time: what is due then is due now."""
CONTEST = 4
"""So many changes without that calm in between are another program's doing, which is logged as such."""


class Part(StrEnum):
    """A part of the host that labelling needs and that an agent owns; the value is a metric's label."""

    PROGRAM = "program"
    SEGMENTS = "gso_max_segs"
    REORDERING = "tcp_reordering"
    MIN_RTT = "tcp_min_rtt_wlen"
    MTU = "mtu"
    PROBES = "probes"
    """The program that answers probes."""


class InterfaceAway(Exception):
    """The interface is not there, or is no longer the one that was taken; the text says why."""


class MendingPace:
    """The times at which one part may be put right.

    >>> pace = MendingPace()
    >>> for now in (0.0, 1.0, 3.0, 7.0):
    ...     assert pace.due(now)
    ...     pace.note(now)
    >>> pace.contested, pace.due(14.9), pace.due(15.0)
    (True, False, True)
    """

    def __init__(self) -> None:
        self.times = 0
        self._wait = 0.0
        self._last = -CALM_SECONDS

    @property
    def contested(self) -> bool:
        """True if it was put right so often in a row that another program must be at work."""
        return self.times >= CONTEST

    @property
    def due_at(self) -> float:
        """The time from which on it may be put right."""
        return self._last + self._wait

    def due(self, now: float) -> bool:
        """Return True if it may be put right now."""
        return now + TICK_SECONDS >= self.due_at

    def note(self, now: float) -> None:
        """Note that it was put right, or that this was tried."""
        if now - self._last >= CALM_SECONDS:
            self.times, self._wait = 0, 0.0
        self.times += 1
        self._wait = min(max(MIN_WAIT_SECONDS, 2 * self._wait), MAX_WAIT_SECONDS)
        self._last = now
