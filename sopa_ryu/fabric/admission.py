"""Which of the switches that connect at the same time are admitted first: a bounded number at a time. Pure.

Thousands of switches connect at once after a power failure. If each was asked at once, their answers would wait for one another
until they are overdue, and every retry would add to that. A switch keeps its channel while it waits: Ryu answers its echoes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from sopa_ryu.fabric.phase import Phase
from sopa_ryu.fabric.switch_session import SwitchSession

AT_ONCE = 64
"""Switches that are claimed, read or given their rules at the same time: some 200 messages each at k=48."""
_IN_TURN = frozenset({Phase.CLAIMING, Phase.READING, Phase.WAITING, Phase.INSTALLING})


class Admission:
    """The turns of the switches that have connected, in the order in which they have asked for one.

    Args:
        has_to_wait: Whether a session in `Phase.WAITING` cannot get its rules yet: it gives its turn to others meanwhile.
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
        if session.phase is Phase.WAITING:
            return not self._has_to_wait(session)
        return session.phase in _IN_TURN
