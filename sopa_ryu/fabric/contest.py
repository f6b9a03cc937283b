"""Two connections of one datapath id: which of them is the switch's. Pure.

The older one is asked whether it lives. If it answers within `ALIVE_SECONDS`, the newer one is closed; if it does not, or leaves,
the newer one takes its place. Until then nothing that the newer one reports is believed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sopa_ryu.fabric.messages import Connection
from sopa_ryu.fabric.switch_session import SwitchSession
from topologies import Switch

LOG = logging.getLogger("sopa")

ALIVE_SECONDS = 2.0
SAY_AGAIN_SECONDS = 60.0
"""A switch with two controller addresses tries every few seconds: the log has it once in this time."""


class Contest(NamedTuple):
    """A newer connection that waits until the older one, a session's, has answered or has not."""

    session: SwitchSession
    newer: Connection
    deadline: float


class Contests:
    """The connections that wait.

    Attributes:
        decided: Second connections that were closed because the ``older`` one lives, and those that took its place (``newer``).
    """

    def __init__(self) -> None:
        self.decided: Counter[str] = Counter(older=0, newer=0)
        self._waiting: list[Contest] = []
        self._said: dict[Switch, float] = {}

    @property
    def next_tick(self) -> float:
        """When the next one is decided at the latest, in monotonic seconds."""
        return min((contest.deadline for contest in self._waiting), default=float("inf"))

    def begin(self, session: SwitchSession, newer: Connection, now: float) -> None:
        """Have a session asked whether it lives."""
        if all(contest.newer is not newer for contest in self._waiting):
            self._waiting.append(Contest(session, newer, now + ALIVE_SECONDS))
            session.ask_alive()

    def leave(self, newer: Connection) -> None:
        """Forget a connection that is gone."""
        self._waiting = [contest for contest in self._waiting if contest.newer is not newer]

    def lives(self, session: SwitchSession, now: float) -> list[Connection]:
        """Take the answer of a session; return the newer connections, which have to be closed."""
        taken = self._take(lambda contest: contest.session is session)
        for newer in taken:
            self.decided["older"] += 1
            if now - self._said.get(session.switch, float("-inf")) >= SAY_AGAIN_SECONDS:
                self._said[session.switch] = now
                LOG.error(
                    "second connection of switch %s from %s closed: the one from %s lives; check for a second controller address "
                    "of the switch, and for a device with its datapath id %016x",
                    session.name,
                    newer.address,
                    session.connection.address,
                    newer.dpid,
                )
        return taken

    def succeed(self, session: SwitchSession) -> list[Connection]:
        """Return the newer connections, the first of which takes the place of a session that is gone."""
        taken = self._take(lambda contest: contest.session is session)
        if taken:
            self.decided["newer"] += 1
            LOG.warning(
                "switch %s: its connection from %s does not answer or is gone: the one from %s takes its place",
                session.name,
                session.connection.address,
                taken[0].address,
            )
        return taken

    def overdue(self, now: float) -> list[SwitchSession]:
        """Return the sessions that have not answered in time."""
        return list(dict.fromkeys(contest.session for contest in self._waiting if contest.deadline <= now))

    def _take(self, wanted: Callable[[Contest], bool]) -> list[Connection]:
        taken = [contest.newer for contest in self._waiting if wanted(contest)]
        self._waiting = [contest for contest in self._waiting if not wanted(contest)]
        return taken
