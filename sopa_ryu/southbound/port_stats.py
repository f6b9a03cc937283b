"""Asks the switches for their port counters, over and over, without ever being in anybody's way."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ryu.lib import hub

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.traffic import Traffic, ends
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.switch_session import SwitchError, SwitchSession
from topologies import Link, Switch

FRESH_INTERVALS = 3
"""What a switch told is believed until it has missed that many."""
MIN_FRESH_SECONDS = 3.0
MEGA = 1_000_000.0


class PortStatsPoller:
    """Measures what the links carry.

    Each switch is asked once an interval. The questions are spread evenly over it: one answer at a time is to be read, some
    tenths of a millisecond, so that word of a failure never waits behind 720 of them. A switch that has not answered yet is not
    asked again, and delays no other.

    Parameters
    ----------
    state : FabricState
        Tells which switches hold their rules: one that waits for them has better things to do than to count.
    sessions : mapping
        The connected switches.
    interval : float
        Seconds from one question to the next.
    link_mbit : float or None
        What every link can carry in each direction, in Mbit/s; None to believe the ports.

    Attributes
    ----------
    traffic : Traffic
        What they have told.
    asked, unanswered : int
        Questions so far, and those that a switch refused, or did not answer.
    """

    def __init__(
        self,
        state: FabricState,
        sessions: Mapping[Switch, SwitchSession],
        interval: float,
        link_mbit: float | None = None,
    ) -> None:
        self.traffic = Traffic(state.tree, max(MIN_FRESH_SECONDS, FRESH_INTERVALS * interval))
        self.interval = interval
        self.asked = self.unanswered = 0
        self._sessions = sessions
        self._state = state
        self._capacity = None if link_mbit is None else MEGA * link_mbit
        self._waiting: set[SwitchSession] = set()

    def rounds(self) -> None:
        """For ever: ask every switch once an interval."""
        due = time.monotonic()
        while True:
            # in the order of names, not of connecting: whoever comes back is asked at its old place in the round
            sessions = [self._sessions[switch] for switch in sorted(self._sessions) if switch in self._state.connected]
            turns: list[SwitchSession | None] = [*sessions] or [None]
            for session in turns:
                due = max(due + self.interval / max(1, len(sessions)), time.monotonic())
                hub.sleep(due - time.monotonic())
                if session is not None and self._may_ask(session):
                    self._waiting.add(session)
                    hub.spawn(self._ask, session)

    def capacity(self, link: Link) -> float | None:
        """What fits through a link in each direction, in bits per second; None if nobody knows."""
        if self._capacity is not None:
            return self._capacity
        switch, port = next(ends(self.traffic.tree, link))
        return self.port_capacity(switch, port)

    def port_capacity(self, switch: Switch, port: int) -> float | None:
        """What fits through a port in each direction, in bits per second; None if nobody knows."""
        if self._capacity is not None:
            return self._capacity
        session = self._sessions.get(switch)
        described = session.datapath.ports.get(port) if session is not None else None
        return openflow.port_speed(described) if described is not None else None

    def _may_ask(self, session: SwitchSession) -> bool:
        connected = session.switch in self._state.connected  # it may have lost its rules since the round began
        return connected and self._is_current(session) and session not in self._waiting

    def _is_current(self, session: SwitchSession) -> bool:
        return self._sessions.get(session.switch) is session

    def _ask(self, session: SwitchSession) -> None:
        self.asked += 1
        try:
            counters = session.port_counters()
            if self._is_current(session):
                self.traffic.take(session.switch, counters, time.monotonic())
        except SwitchError:
            self.unanswered += 1  # why is told where it matters: a lost channel, a refused message
        finally:
            self._waiting.discard(session)
