"""The last hour of each link, in memory that the estimator's process writes and the controller reads.

A row for each ten seconds, the oldest one overwritten; in a row eight bytes for each link. Nobody waits for the other: each row has
a number, and counts as empty without the right one. The memory outlives the estimator's process.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

SECONDS = 10
"""Of a row; slots of the estimator's long window are as long."""
ROWS = 360
MARK = struct.Struct("<q")
CELL = struct.Struct("<Heee")
"""Probes that crossed the link, shares lost upwards and downwards, delay in units of `DELAY_UNIT`."""
DELAY_UNIT = 16.0
"""Microseconds: with it two bytes tell delays from a nanosecond to a second to a two-thousandth."""
DIGITS = 6


class Point(NamedTuple):
    """What was measured of a link in ten seconds.

    Attributes
    ----------
    slot : int
        Its begin, divided by `SECONDS`.
    sent : int
        Probes that crossed the link, each once in either direction.
    up, down : float or None
        The shares lost; None if no probe crossed the link.
    delay_us : float or None
        There and back; None if it is not known.
    """

    slot: int
    sent: int
    up: float | None
    down: float | None
    delay_us: float | None


def size(links: int) -> int:
    """Return the bytes of the hour of so many links."""
    return ROWS * (MARK.size + CELL.size * links)


class History:
    """The memory, which the kernel provides page by page as it is written.

    Parameters
    ----------
    links : int
    descriptor : int, optional
        Of memory made by another process; new memory without.

    Attributes
    ----------
    descriptor : int
        For the other process.
    memory : mmap

    Examples
    --------
    >>> its = History(links=32)
    >>> its.begin(7)[2 * CELL.size :][: CELL.size] = CELL.pack(1000, 0.25, 0.0, 6.25)
    >>> its.end(7)
    >>> list(its.read(2, 9))
    [Point(slot=7, sent=1000, up=0.25, down=0.0, delay_us=100.0), Point(slot=8, sent=0, up=None, down=None, delay_us=None)]
    >>> its.close()
    """

    def __init__(self, links: int, descriptor: int | None = None) -> None:
        self.links = links
        if descriptor is None:
            descriptor = os.memfd_create("sopa-health")
            os.ftruncate(descriptor, size(links))
        self.descriptor = descriptor
        self.memory = mmap.mmap(descriptor, size(links))

    def close(self) -> None:
        """Give the descriptor back; the memory goes with its last user."""
        os.close(self.descriptor)

    def row(self, slot: int) -> bytes | None:
        """Return the row of a slot; None if it is not kept."""
        row = slot % ROWS
        if self._mark(row) != slot + 1:
            return None
        at = self._row(row)
        return self.memory[at : at + CELL.size * self.links]

    def begin(self, slot: int) -> memoryview:
        """Return the row of a slot, to be written; what was in it before counts no more."""
        row = slot % ROWS
        if self._mark(row) != slot + 1:
            MARK.pack_into(self.memory, row * MARK.size, 0)
        at = self._row(row)
        return memoryview(self.memory)[at : at + CELL.size * self.links]

    def end(self, slot: int) -> None:
        """Let a slot that is written count."""
        MARK.pack_into(self.memory, slot % ROWS * MARK.size, slot + 1)

    def read(self, link: int, now: int) -> Iterator[Point]:
        """Yield what was measured of a link, slot by slot, from the first one that is known to the last before ``now``."""
        known = False
        for slot in range(max(0, now - ROWS + 1), now):
            row = slot % ROWS
            right = self._mark(row) == slot + 1
            known |= right
            if not known:
                continue
            sent, up, down, delay = (
                CELL.unpack_from(self.memory, self._row(row) + CELL.size * link) if right else _NOTHING
            )
            has_delay = sent and delay == delay
            yield Point(
                slot,
                sent,
                round(min(1.0, up), DIGITS) if sent else None,
                round(min(1.0, down), DIGITS) if sent else None,
                round(DELAY_UNIT * delay, 3) if has_delay else None,
            )

    def _mark(self, row: int) -> int:
        found: int = MARK.unpack_from(self.memory, row * MARK.size)[0]
        return found

    def _row(self, row: int) -> int:
        return ROWS * MARK.size + row * CELL.size * self.links


_NOTHING = (0, 0.0, 0.0, float("nan"))
