"""What the controller's side of the push channel wants done: its notifier decides, what has the sockets carries it out. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.claims import ClaimError


class Wake(NamedTuple):
    """Start the writer of a session."""

    session: AgentSession


class Cut(NamedTuple):
    """Break the connection of a session, which is closed."""

    session: AgentSession


class Accept(NamedTuple):
    """Open the connection of a claimant."""

    claimant: Any


class Reject(NamedTuple):
    """Answer a claimant with an error."""

    claimant: Any
    error: ClaimError


class Completed(NamedTuple):
    """Every agent that was connected when a version was made has acknowledged it, or has left."""

    version: int


Effect = Wake | Cut | Accept | Reject | Completed


class Effects:
    """The effects of what is being observed, in order."""

    def __init__(self) -> None:
        self._waiting: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        """Add effects."""
        self._waiting += effects

    def wake(self, session: AgentSession) -> None:
        """Have a session's writer started, if it does not write already."""
        if session.phase is Phase.IDLE:
            session.phase = Phase.WRITING
            self.add(Wake(session))

    def take(self) -> list[Effect]:
        """Return them all, once."""
        effects, self._waiting = self._waiting, []
        return effects
