"""When each of thousands of switches has its turn: work spread evenly, deadlines, and how many are admitted at a time. Pure.

Thousands of switches connect at once after a power failure. If each was asked at once, their answers would wait for one another
until they are overdue, and every retry would add to that. A switch keeps its channel while it waits: Ryu answers its echoes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import count, islice
from typing import Generic, TypeVar

from sopa_ryu.fabric.switch_session import SwitchPhase, SwitchSession

Thing = TypeVar("Thing", bound=Hashable)
AT_ONCE = 64
"""Switches that are claimed, read or given their rules at the same time: some 200 messages each at k=48."""
_IN_TURN = frozenset({SwitchPhase.CLAIMING, SwitchPhase.READING, SwitchPhase.WAITING, SwitchPhase.INSTALLING})


class Pacer(Generic[Thing]):
    """Takes things in turn so that each one's turn comes once in ``interval`` seconds, or never if that is 0.

    A controller has other work: a burst of hundreds of answers would delay the word of a failure. Turns that were missed in a
    pause are not made up. The next turn comes ``at`` that time, in monotonic seconds.
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


class Deadlines:
    """The deadlines of all sessions, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SwitchSession]] = []
        self._numbers = count()

    def watch(self, session: SwitchSession) -> None:
        """Note the deadline of a session, if it has one."""
        if session.deadline is not None:
            heapq.heappush(self._heap, (session.deadline, next(self._numbers), session))

    def overdue(self, now: float) -> Iterator[SwitchSession]:
        """Yield each session whose deadline has passed and was not moved."""
        while self._heap and self._heap[0][0] <= now:
            _, _, session = heapq.heappop(self._heap)
            if session.deadline is not None and session.deadline <= now:
                yield session

    @property
    def next(self) -> float:
        """The earliest deadline, in monotonic seconds."""
        return self._heap[0][0] if self._heap else float("inf")


class Admission:
    """The turns of the switches that have connected, in the order in which they have asked for one.

    A session in `SwitchPhase.WAITING` that ``has_to_wait`` cannot get its rules yet: it gives its turn to others meanwhile.
    """

    def __init__(self, has_to_wait: Callable[[SwitchSession], bool]) -> None:
        self._has_to_wait = has_to_wait
        self._turns: dict[SwitchSession, None] = {}
        self._queue: dict[SwitchSession, None] = {}

    def is_turn(self, session: SwitchSession) -> bool:
        """Tell whether a session may go on now; if not, it is told later by `begin`."""
        if session in self._turns or not self._needs_turn(session):
            return True
        self._queue[session] = None
        return False

    def begin(self) -> list[SwitchSession]:
        """End the turns that are over; return the sessions whose turn begins."""
        for session in [session for session in self._turns if not self._needs_turn(session)]:
            del self._turns[session]
        begun: list[SwitchSession] = []
        while self._queue and len(self._turns) < AT_ONCE:
            [session] = islice(self._queue, 1)
            del self._queue[session]
            if self._needs_turn(session):
                self._turns[session] = None
                begun.append(session)
        return begun

    def _needs_turn(self, session: SwitchSession) -> bool:
        if session.phase is SwitchPhase.WAITING:
            return not self._has_to_wait(session)
        return session.phase in _IN_TURN
