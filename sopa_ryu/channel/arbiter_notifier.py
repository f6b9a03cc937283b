"""The controller's side of the arbiter's channel: an agents' channel with a single place, and a term for each holder. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sopa_ryu.channel import arbiter, texts
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.effects import Effect
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.view import View
from topologies import Clos, Host

ARBITER = Host(-1, -1, -1)
"""The arbiter's place among the sessions; no fabric has such a host."""


class ArbiterNotifier(Notifier):
    """The session of the arbiter: one at a time, each with a higher term.

    Args:
        view: Return what it has to know now; None while it is not known what has failed.
        epoch: The controller's, from which terms begin; in a cluster it is the leader's term.
        wall: Return the time of day in seconds.

    Attributes:
        term: Of the last arbiter that was accepted; 0 before the first.
    """

    texts = texts.ARBITER

    def __init__(
        self, tree: Clos, view: Callable[[], View | None], epoch: int, wall: Callable[[], float] = time.time
    ) -> None:
        super().__init__(tree, view)
        self.term = 0
        self._epoch = epoch
        self._wall = wall
        self._known = 0
        self._since = 0.0
        self._peer: str | None = None
        self._report: dict[str, Any] = {}

    def begin(self, epoch: int) -> None:
        """Begin terms at a later epoch."""
        self._epoch = max(self._epoch, epoch)

    def knows(self, term: int) -> None:
        """Note a term that an arbiter has had, so that the next is higher."""
        self._known = max(self._known, term)

    def enter(self, peer: str, connection: Any, now: float) -> tuple[AgentSession, list[Effect]]:
        """Begin the session of an arbiter whose claim was accepted, under the next term."""
        view = self._view()
        epoch = (
            self._epoch if view is None else max(self._epoch, view.epoch)
        )  # in a cluster each leadership has its own
        self.term = self._known = arbiter.next_term(epoch, max(self._known, self.term))
        self._since, self._peer, self._report = self._wall(), peer, {}
        return self.connected(ARBITER, peer, None, connection, now)

    def received(self, session: AgentSession, text: str | bytes, now: float) -> list[Effect]:
        """Follow what an arbiter sent, with its report."""
        effects = super().received(session, text, now)
        if self.sessions.get(ARBITER) is session:
            self._report = arbiter.report_of(text) or self._report
        return effects

    def report(self) -> dict[str, Any] | None:
        """Return what is known of the arbiter, as in ``GET /fabric``; None if there has been none."""
        if not self.term:
            return None
        connected = ARBITER in self.sessions
        return {
            "connected": connected,
            "peer": self._peer,
            "term": self.term,
            "since": self._since,
            "version": self.sessions[ARBITER].acknowledged if connected else 0,
            "reports": self._report,
        }

    def _snapshot(self, session: AgentSession, view: View, now: float) -> str:
        return arbiter.snapshot(view, self.term)

    def _foreign(self, host: Host, peer: str) -> str:
        return ""  # it may run on any machine

    def _name(self, host: Host) -> str:
        return f"the {self.tree.title}"

    def _taken(self, holder: AgentSession) -> str:
        return f"another arbiter is connected, from {holder.peer}: end that one first"
