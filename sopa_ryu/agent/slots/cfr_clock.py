"""The arbiter's clock as seen from a host: how far it is ahead of the host's own. Pure.

Each answer of the arbiter gives four times: when the host asked and when it got the answer, by its own clock, and when the arbiter
got the question and answered, by the arbiter's. The offset between the clocks is known from them to half of the round trip; of the
last answers the one with the shortest round trip says it best (RFC 5905, sections 8 and 10).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SAMPLES = 64
"""Answers that are kept: 0.8 s of those for four slots of 3.2 ms. A shorter time has too few that nothing has delayed."""
CONTRARY = 8
DRIFT_PPM = 100
"""Two clocks that NTP keeps run apart by no more; RFC 5905 tolerates 15 of one that has just been set."""


class Sample(NamedTuple):
    """What one answer says; all in nanoseconds, the time that of the host."""

    round_trip: int
    offset: int
    at: int

    def error(self, now: int) -> int:
        """Return how far the offset may be wrong: half of the round trip, and what the clocks may have run apart since."""
        return self.round_trip // 2 + max(0, now - self.at) * DRIFT_PPM // 1_000_000


class Clock:
    """The offset of the arbiter's clock.

    An answer that contradicts what is known by more than both round trips allow is ignored. If several in a row contradict it, a
    clock has jumped, and they are believed.

    Attributes:
        jumps: How often that was so.

    >>> clock = Clock()
    >>> clock.note(asked_at=1_000, received_at=500_400, answered_at=500_500, now=1_900), clock.offset, clock.round_trip
    (True, 499000, 800)
    >>> clock.note(asked_at=2_000, received_at=900_000, answered_at=900_100, now=2_900), clock.offset
    (False, 499000)
    """

    def __init__(self) -> None:
        self.jumps = 0
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._best: Sample | None = None
        self._contrary: list[Sample] = []

    def reset(self) -> None:
        """Forget everything: it is another arbiter's clock from now on."""
        self._samples.clear()
        self._contrary.clear()
        self._best = None

    @property
    def offset(self) -> int | None:
        """The nanoseconds to add to the host's clock for the arbiter's; None while nothing is known."""
        return self._best.offset if self._best else None

    @property
    def round_trip(self) -> int | None:
        """The round trip, in nanoseconds, of the answer that says it."""
        return self._best.round_trip if self._best else None

    def note(self, *, asked_at: int, received_at: int, answered_at: int, now: int) -> bool:
        """Note an answer of the arbiter; return False if it is ignored.

        Args:
            asked_at, now: The host's monotonic clock in nanoseconds.
            received_at, answered_at: The arbiter's.
        """
        round_trip = (now - asked_at) - (answered_at - received_at)
        if asked_at > now or answered_at < received_at or round_trip < 0:
            return False
        sample = Sample(round_trip, ((received_at - asked_at) + (answered_at - now)) // 2, now)
        best = self._best
        if best and abs(sample.offset - best.offset) > sample.error(now) + best.error(now) + 2 and not self._jumped(sample):
            return False
        self._contrary.clear()
        self._samples.append(sample)
        self._best = min(self._samples, key=lambda latest: latest.error(now))
        return True

    def _jumped(self, sample: Sample) -> bool:
        """Note an answer that contradicts what is known; return True if it is the last of enough, and forget what was known."""
        self._contrary.append(sample)
        if len(self._contrary) < CONTRARY:
            return False
        self.jumps += 1
        self._samples.clear()
        self._samples.extend(self._contrary[:-1])
        return True
