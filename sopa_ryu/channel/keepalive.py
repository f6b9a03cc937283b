"""Which agents are pinged because they have been silent, and which are cut off because they stay silent. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from sopa_ryu.channel.agent_session import AgentSession, Phase

ROUND_SECONDS = 1.0
PING_SECONDS = 10.0
PINGS_AT_ONCE, PINGS_A_SECOND = 8, 2000
CUT_SECONDS = 30.0


class Silent(NamedTuple):
    """Sessions that have been silent.

    Attributes:
        pinged: For so long that they have to answer a ping.
        dead: Although they were pinged: they are cut off.
    """

    pinged: list[AgentSession]
    dead: list[AgentSession]


class Keepalive:
    """Rounds over all sessions.

    Pings are spread: thousands of agents that received a version at the same moment also fall silent at the same moment.

    Attributes:
        next_look: When `look` has something to do.
    """

    def __init__(self) -> None:
        self.next_look = 0.0
        self._unchecked: deque[AgentSession] = deque()

    def look(self, sessions: Iterable[AgentSession], now: float) -> Silent:
        """Go on with the round over all sessions until enough pings are due."""
        silent = Silent([], [])
        if now < self.next_look:
            return silent
        if not self._unchecked:
            self._unchecked.extend(sessions)
        while self._unchecked and len(silent.pinged) < PINGS_AT_ONCE:
            session = self._unchecked.popleft()
            if session.phase is Phase.CLOSED:
                continue
            if now - session.heard > CUT_SECONDS:
                silent.dead.append(session)
            elif now - max(session.heard, session.pinged) > PING_SECONDS:
                silent.pinged.append(session)
        self.next_look = now + (PINGS_AT_ONCE / PINGS_A_SECOND if self._unchecked else ROUND_SECONDS)
        return silent
