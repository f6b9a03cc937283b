"""What a stream's delays tell: how long to wait for an answer, and whether a queue on the way is full. Pure."""

from __future__ import annotations

from collections.abc import Callable

MS = 1_000_000
FIRST_DEADLINE_NS = 100 * MS
"""Before a stream's first answer."""
MIN_DEADLINE_NS, MAX_DEADLINE_NS = 5 * MS, 250 * MS
GRANULARITY_NS = MS
"""The clock's, in the sense of RFC 6298, section 2: processors are late by so much without being overloaded."""
WINDOW_NS, SMALLEST_WINDOW_NS = 10_000 * MS, 60_000 * MS
"""The largest and the smallest delay are those of one to two such windows: a queue that stays long is no path that is long."""
OF_LARGEST = 1.5
"""A delay that was seen lately is no reason to give up at less than so many times it."""
FAR_ABOVE, FAR_ABOVE_OTHERS, FAR_ABOVE_NS = 4, 20, MS // 2
"""Far above the smallest delay is so many times it, or that of all streams, and so much more: less is noise of hosts."""


class Extreme:
    """The smallest or the largest delay of one to two windows, of a stream or of all streams of a host; 0 before the first."""

    def __init__(self, choose: Callable[[int, int], int], window_ns: int) -> None:
        self._choose, self._window_ns = choose, window_ns
        self._delays, self._since = (0, 0), 0

    @property
    def delay_ns(self) -> int:
        """That of this window and the one before."""
        return self._choose(*self._delays)

    def note(self, delay_ns: int, now_ns: int) -> None:
        """Take in a delay."""
        latest, before = self._delays
        age = now_ns - self._since
        if not latest or age >= 2 * self._window_ns:
            self._delays, self._since = (delay_ns, delay_ns), now_ns
        elif age >= self._window_ns:
            self._delays, self._since = (delay_ns, latest), now_ns
        else:
            self._delays = self._choose(latest, delay_ns), before


def smallest() -> Extreme:
    """Return the smallest delay, of nothing yet."""
    return Extreme(min, SMALLEST_WINDOW_NS)


class Delays:
    """The delays of one stream.

    Args:
        of_host: The smallest delay of all streams of the host: this one may have been measured over a full queue only.

    >>> its = Delays()
    >>> its.deadline_ns // MS
    100
    >>> for n in range(20):
    ...     its.note(2 * MS, n)
    >>> its.deadline_ns // MS, its.crowded
    (5, False)
    >>> its.note(40 * MS, 21)
    >>> its.deadline_ns // MS, its.crowded
    (60, True)
    """

    def __init__(self, of_host: Extreme | None = None) -> None:
        self._mean = self._deviation = 0.0
        self._last = 0
        self._largest = Extreme(max, WINDOW_NS)
        self._smallest, self._of_host = smallest(), of_host or smallest()

    def note(self, delay_ns: int, now_ns: int) -> None:
        """Take in the delay of an answer, also of one that came after its deadline."""
        if not self._last:
            self._mean, self._deviation = delay_ns, delay_ns / 2
        else:  # RFC 6298, section 2.3
            self._deviation += (abs(self._mean - delay_ns) - self._deviation) / 4
            self._mean += (delay_ns - self._mean) / 8
        for extreme in (self._largest, self._smallest, self._of_host):
            extreme.note(delay_ns, now_ns)
        self._last = max(1, delay_ns)

    @property
    def deadline_ns(self) -> int:
        """How long to wait for an answer."""
        if not self._last:
            return FIRST_DEADLINE_NS
        usual = self._mean + max(GRANULARITY_NS, 4 * self._deviation)
        wanted = max(usual, OF_LARGEST * self._largest.delay_ns)
        return int(min(max(wanted, MIN_DEADLINE_NS), MAX_DEADLINE_NS))

    @property
    def crowded(self) -> bool:
        """Whether the delay is far above the smallest one, and near the largest: a queue on the way is full, or nearly."""
        now = max(self._last, self._mean)
        own, of_host = self._smallest.delay_ns, self._of_host.delay_ns
        above_own, above_others = now > FAR_ABOVE * own + FAR_ABOVE_NS, now > FAR_ABOVE_OTHERS * of_host + FAR_ABOVE_NS
        return (above_own and now > (own + self._largest.delay_ns) / 2) or (
            above_others and now > (of_host + self._largest.delay_ns) / 2
        )
