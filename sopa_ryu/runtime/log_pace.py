"""How often a log says the same of one thing: what a peer repeats fills no disk, and hides nothing else. Pure."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from sopa_ryu.runtime.clients import is_address

BURST = 30
"""So many lines of one kind about one thing, then one in each `EVERY_SECONDS`: some 10 KB in a minute."""
EVERY_SECONDS = 10.0
ALL_BURST, ALL_EVERY_SECONDS = 500, 0.5
"""The same for lines of one kind about all addresses: a peer may have many, of IPv6 without end."""
KINDS = 8192
"""Kinds and things that are remembered: each of 2,880 switches has a few."""


class _Bucket(NamedTuple):
    left: float
    at: float
    missed: int


class Pace:
    """Counts what is said of each thing, to let pass what `LogPace` does."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, burst: int = BURST, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._clock, self._burst, self._every_seconds = clock, burst, every_seconds
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def missed(self, kind: str, thing: str) -> int | None:
        """Return how many did not pass since the last one that did, as this one may; None if it may not, either."""
        now = self._clock()
        left, at, missed = self._buckets.pop((kind, thing), _Bucket(self._burst, now, 0))
        left = min(self._burst, left + (now - at) / self._every_seconds)
        passes = left >= 1
        self._buckets[kind, thing] = _Bucket(left - 1, now, 0) if passes else _Bucket(left, now, missed + 1)
        if len(self._buckets) > KINDS:
            self._buckets.popitem(last=False)
        return missed if passes else None


class LogPace(logging.Filter):
    """Lets `BURST` lines pass at once that have one text and one first value, an address or a name, `ALL_BURST` about addresses.

    The next line that passes has the number of those that did not. A handler has it, not a logger: so it holds for all of them.

    >>> now, pace = [0.0], LogPace(lambda: now[0])
    >>> line = lambda name: logging.makeLogRecord({"msg": "switch %s refused a message: %s", "args": (name, "why")})
    >>> [pace.filter(line("e0_0")) for _ in range(BURST + 2)].count(True), pace.filter(line("e0_1"))
    (30, True)
    >>> now[0], record = EVERY_SECONDS, line("e0_0")
    >>> pace.filter(record), record.getMessage()
    (True, 'switch e0_0 refused a message: why (2 more such lines were left out)')
    >>> [pace.filter(line(f"2001:db8::{n}")) for n in range(2 * ALL_BURST)].count(True) == ALL_BURST
    True
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._pace, self._all = Pace(clock), Pace(clock, ALL_BURST, ALL_EVERY_SECONDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is to be written; add to it how many before it were not."""
        values = record.args if isinstance(record.args, tuple) else ()
        text, thing = str(record.msg), str(values[0]) if values else ""
        missed = self._pace.missed(text, thing)
        if missed is not None and is_address(thing):
            of_all = self._all.missed(text, "")
            missed = None if of_all is None else missed + of_all
        if missed:
            record.msg = f"{record.msg} ({missed} more such lines were left out)"
        return missed is not None
