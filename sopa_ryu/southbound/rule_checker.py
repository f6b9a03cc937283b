"""Reads each switch's rules again every few minutes, one switch at a time, and has what somebody else changed mended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ryu.lib import hub

from sopa_ryu.fabric.messages import InstalledState
from sopa_ryu.fabric.rule_changes import cookie_mark
from sopa_ryu.fabric.switch_session import Phase, SwitchError, SwitchSession
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.connection import connection_of
from topologies import Switch


class RuleChecker:
    """Compares what is installed with what was confirmed.

    A switch says nothing when another program changes its entries. An update never waits for this: what was read while the rules
    changed is thrown away, and read again in the next round.

    Args:
        interval: Seconds from one check of a switch to the next; 0 for none.
        found: Called with a session and what is installed in its switch.

    Attributes:
        others: First bytes of the cookies of other applications in this controller; their entries are ignored.
        unanswered: How many checks a switch refused, or did not answer.
    """

    def __init__(
        self,
        sessions: Mapping[Switch, SwitchSession],
        interval: float,
        found: Callable[[SwitchSession, InstalledState], None],
    ) -> None:
        self.interval = interval
        self.others: set[int] = set()
        self.unanswered = 0
        self._sessions = sessions
        self._found = found

    def rounds(self) -> None:
        """Run until killed: check one switch after the other, each once an interval."""
        while True:
            turns: Collection[Switch | None] = sorted(self._sessions) or [None]
            for switch in turns:
                hub.sleep(self.interval / len(turns))
                session = None if switch is None else self._sessions.get(switch)
                if session is not None and session.phase is Phase.IN_FORCE:
                    self.check(session)

    def check(self, session: SwitchSession) -> None:
        """Read a switch's rules, and hand on what was found if its rules were not changed meanwhile."""
        confirmed, connection = session.rules, connection_of(session)
        try:
            bodies, groups = connection.flow_statistics(), connection.groups()
        except SwitchError:
            self.unanswered += 1  # a lost channel and a refused message have log lines of their own
            return
        if session.phase is Phase.IN_FORCE and session.rules is confirmed:
            flows = [entry for entry in openflow.installed_flows(bodies) if cookie_mark(entry) not in self.others]
            self._found(session, InstalledState(flows, groups))
