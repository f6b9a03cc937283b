"""The generation id of this controller's claims, which never goes back, whatever the clock does. Pure.

A switch refuses the claim of a controller whose id is behind the latest that it knows (OpenFlow 1.3, section 6.3.4). The ids are
numbers of 64 bits that wrap around: one is ahead of another if the distance to it is less than half of all numbers.
"""

from __future__ import annotations

_NUMBERS = 1 << 64


class Generation:
    """The id that switches are claimed with.

    Args:
        first: Where to begin: the epoch, so that of two controllers the one that was started later is the master.

    >>> own = Generation(7)
    >>> own.is_behind(7), own.is_behind(8), own.is_behind((1 << 64) - 1)
    (False, True, False)
    >>> own.exceed(8)
    >>> own.number
    9
    >>> last = Generation((1 << 64) - 2)
    >>> last.exceed((1 << 64) - 1)
    >>> last.number
    0
    """

    def __init__(self, first: int) -> None:
        self.number = first % _NUMBERS

    def is_behind(self, theirs: int) -> bool:
        """Tell whether a switch that knows an id refuses this one."""
        return 0 < (theirs - self.number) % _NUMBERS < _NUMBERS // 2

    def exceed(self, theirs: int) -> None:
        """Continue after an id that a switch knows."""
        if self.is_behind(theirs):
            self.number = (theirs + 1) % _NUMBERS
