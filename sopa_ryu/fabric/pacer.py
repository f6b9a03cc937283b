"""Work on many things once per interval, one at a time, evenly spread. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

Thing = TypeVar("Thing", bound=Hashable)


class Pacer(Generic[Thing]):
    """Takes things in turn so that each one's turn comes once per interval.

    A controller has other work: a burst of hundreds of answers would delay the word of a failure. Turns that were missed in a
    pause are not made up.

    Args:
        interval: Seconds from one turn of a thing to its next; 0 if nothing ever has a turn.

    Attributes:
        at: When the next turn comes, in monotonic seconds.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.at = float("-inf") if interval else float("inf")
        self._round: deque[Thing] = deque()

    def due(self, things: Collection[Thing], now: float) -> Thing | None:
        """Return the thing whose turn has come, or None; ``things`` are all that there are now."""
        if now < self.at:
            return None
        step = self.interval / max(1, len(things))
        self.at = self.at + step if now - self.at < step else now + step
        if not self._round:
            self._round.extend(things)
        while self._round:
            thing = self._round.popleft()
            if thing in things:
                return thing
        return None
