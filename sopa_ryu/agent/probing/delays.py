"""What a stream's delays tell: how long to wait for an answer, and whether a queue on the way is full. Pure."""

from __future__ import annotations

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


class Smallest:
    """The smallest delay of a stream, or of all streams of a host."""

    def __init__(self) -> None:
        self._delays, self._since = [0, 0], 0

    @property
    def delay_ns(self) -> int:
        """Of one to two windows; 0 before the first."""
        return min(self._delays)

    def note(self, delay_ns: int, now_ns: int) -> None:
        """Take in a delay."""
        if now_ns - self._since >= SMALLEST_WINDOW_NS or not self._delays[0]:
            stale = now_ns - self._since >= 2 * SMALLEST_WINDOW_NS or not self._delays[0]
            self._delays = [delay_ns, delay_ns if stale else self._delays[0]]
            self._since = now_ns
        self._delays[0] = min(self._delays[0], delay_ns)


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

    def __init__(self, of_host: Smallest | None = None) -> None:
        self._mean = self._deviation = 0.0
        self._last = 0
        self._largest = [0, 0]
        self._smallest, self._of_host = Smallest(), of_host or Smallest()
        self._since = 0

    def note(self, delay_ns: int, now_ns: int) -> None:
        """Take in the delay of an answer, also of one that came after its deadline."""
        if not self._last:
            self._mean, self._deviation, self._since = delay_ns, delay_ns / 2, now_ns
            self._largest = [delay_ns] * 2
        else:  # RFC 6298, section 2.3
            self._deviation += (abs(self._mean - delay_ns) - self._deviation) / 4
            self._mean += (delay_ns - self._mean) / 8
        if now_ns - self._since >= WINDOW_NS:
            self._largest = [delay_ns, delay_ns if now_ns - self._since >= 2 * WINDOW_NS else self._largest[0]]
            self._since = now_ns
        self._smallest.note(delay_ns, now_ns)
        self._of_host.note(delay_ns, now_ns)
        self._last = max(1, delay_ns)
        self._largest[0] = max(self._largest[0], delay_ns)

    @property
    def deadline_ns(self) -> int:
        """How long to wait for an answer."""
        if not self._last:
            return FIRST_DEADLINE_NS
        usual = self._mean + max(GRANULARITY_NS, 4 * self._deviation)
        wanted = max(usual, OF_LARGEST * max(self._largest))
        return int(min(max(wanted, MIN_DEADLINE_NS), MAX_DEADLINE_NS))

    @property
    def crowded(self) -> bool:
        """Whether the delay is far above the smallest one, and near the largest: a queue on the way is full, or nearly."""
        now, largest = max(self._last, self._mean), max(self._largest)
        bounds = (FAR_ABOVE, self._smallest.delay_ns), (FAR_ABOVE_OTHERS, self._of_host.delay_ns)
        return any(now > times * smallest + FAR_ABOVE_NS and now > (smallest + largest) / 2 for times, smallest in bounds)
