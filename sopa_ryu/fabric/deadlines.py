"""Sessions whose answers or retries are due at some time. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from sopa_ryu.fabric.switch_session import SwitchSession


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
