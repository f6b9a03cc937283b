"""The switches: admitted when they connect, kept at the fabric's version, watched for another master. Pure.

Observations of switches come in and go on to `FabricState`; sessions that have messages due go into `Effects`. What is due is
asked for by `SwitchManager.due` when the connection can take it, so several versions that came meanwhile are one change.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count

from flowrules.model import SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    Answer,
    Connection,
    DeleteFlow,
    DeleteGroup,
    InstalledState,
    Message,
    ModifyGroup,
    Refusal,
    Request,
)
from sopa_ryu.fabric.pacer import Pacer
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.switch_session import (
    ADMITTING,
    AnotherMasterError,
    Phase,
    Sent,
    SwitchError,
    SwitchSession,
)
from sopa_ryu.fabric.version_tracker import VersionTracker
from topologies import Host, Switch, TopologyError

LOG = logging.getLogger("sopa")

ROLE_CHECK_SECONDS = 5.0


@dataclass
class Effects:
    """What follows from an observation.

    Attributes
    ----------
    due : dict with SwitchSession as keys
        Sessions that have messages due.
    admitted : list of SwitchSession
        Switches that have confirmed their rules just now, for the first time over their connection.
    tell_agents : bool
        Whether agents have to be sent the fabric's version: it is new, or the first that is known.
    visible : bool
        Whether the state that the page shows may have changed.
    in_force : list of Change
        Versions whose rules every connected switch has confirmed.
    """

    due: dict[SwitchSession, None] = field(default_factory=dict)
    admitted: list[SwitchSession] = field(default_factory=list)
    tell_agents: bool = False
    visible: bool = False
    in_force: list[Change] = field(default_factory=list)


class SwitchManager:
    """Every connected switch, its session and its rules.

    Parameters
    ----------
    state : FabricState
    no_label : collection of Host
        Hosts that may not choose paths.

    Attributes
    ----------
    sessions : dict from Switch to SwitchSession
    sent : dict from Switch to Sent
        What each switch was sent since the controller started.
    """

    def __init__(self, state: FabricState, no_label: Collection[Host] = ()) -> None:
        self.state = state
        self.tree = state.tree
        self.sessions: dict[Switch, SwitchSession] = {}
        self.sent: dict[Switch, Sent] = {}
        self._no_label = no_label
        self._rejected: dict[int, Connection] = {}
        self._confirmed: list[int] = []
        self._tracker = VersionTracker(self._confirmed.append)
        self._deadlines: list[tuple[float, int, SwitchSession]] = []
        self._numbers = count()
        self._role_checks = Pacer[Switch](ROLE_CHECK_SECONDS)

    def wanted(self, switch: Switch) -> SwitchRules:
        """Return the rules of a switch at the fabric's version."""
        return switch_rules(self.tree, switch, self.state.failures, self._no_label)

    def session(self, connection: Connection) -> SwitchSession | None:
        """Return the session of a connection, or None if it is no admitted switch's."""
        try:
            session = self.sessions.get(self.tree.switch_by_dpid(connection.dpid))
        except TopologyError:
            return None
        return session if session is not None and session.connection is connection else None

    def is_rejected(self, connection: Connection) -> bool:
        """Tell whether it is this connection of its datapath id that is not used."""
        return self._rejected.get(connection.dpid) is connection

    def since(self) -> Mapping[Switch, float]:
        """Return the switches that have confirmed their rules, each with when it connected, in monotonic seconds."""
        return {
            switch: self.sessions[switch].connected_at for switch in self.state.connected if switch in self.sessions
        }

    # -- observations -------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection, now: float, effects: Effects) -> SwitchSession | None:
        """Admit a switch that has finished its handshake; return None if it is rejected."""
        ports = connection.ports()
        try:
            switch = self.tree.switch_by_dpid(connection.dpid)
        except TopologyError as error:
            self._reject(connection, str(error))
            return None
        if ports.keys() != self.tree.ports(switch).keys():
            self._reject(
                connection,
                f"{self.tree.name(switch)} has ports {_ranges(set(ports))}, "
                f"but a k={self.tree.k} fat-tree's switch has 1-{self.tree.k}",
            )
            return None
        self.state.rejected.pop(connection.dpid, None)
        self._rejected.pop(connection.dpid, None)
        sent = self.sent.setdefault(switch, Sent())
        session = SwitchSession(connection, switch, self.tree.name(switch), sent, now)
        former, self.sessions[switch] = self.sessions.get(switch), session
        if former is not None:
            former.closed()
        self.state.switch_heard(switch, {port: why for port, why in ports.items() if why is not None}, now)
        effects.due[session] = None
        effects.visible = True
        return session

    def disconnected(self, connection: Connection, now: float) -> SwitchSession | None:
        """Drop the session of a connection that is gone; return it, or None if there was none."""
        self._clear(connection)
        session = self.session(connection)
        if session is None:
            return None  # it has reconnected already, or was rejected
        del self.sessions[session.switch]
        session.closed()
        self._tracker.left(session.switch)
        LOG.warning(
            "switch %s disconnected: its paths are excluded, it forwards by the rules it has; check switch and "
            "management network",
            session.name,
        )
        self.state.switch_lost(session.switch, now)
        return session

    def answered(self, session: SwitchSession, request: Request, answer: Answer, now: float, effects: Effects) -> None:
        """Take a switch's answer to a request."""
        before = session.phase
        try:
            if not session.answered(request, answer):
                return
            if before in (Phase.INSTALLING, Phase.UPDATING) and session.rules is not None:
                self._confirmed_by(session, before, now, effects)
        except SwitchError as error:
            self._failed(session, error, now, effects)
        effects.due[session] = None

    def refused(
        self, session: SwitchSession, request: Request | None, refusal: Refusal, now: float, effects: Effects
    ) -> None:
        """Take a switch's error message; ``request`` is None if it answers a flow-mod or group-mod."""
        LOG.error("switch %s refused a message: %s", session.name, refusal.text)
        try:
            session.refused(request, refusal)
        except SwitchError as error:
            if session.phase is not Phase.IN_FORCE:  # there it refused a role check only
                self._failed(session, error, now, effects)
        effects.due[session] = None

    def installed(self, session: SwitchSession, found: InstalledState, effects: Effects) -> None:
        """Take what is installed in a switch whose rules are in force, and mend what differs."""
        wrong = session.compare(found)
        if wrong:
            LOG.error(
                "switch %s: %d of its entries or groups were changed by another program and are put right; find out who "
                "writes to it (ovs-ofctl, another controller)",
                session.name,
                wrong,
            )
            effects.due[session] = None

    def settled(self, effects: Effects) -> None:
        """Go on with the switches that wait until it is known what has failed."""
        effects.due |= dict.fromkeys(session for session in self.sessions.values() if session.phase is Phase.WAITING)

    def follow(self, since: int, effects: Effects) -> None:
        """Bring every switch from a version to the fabric's present one, independently of each other."""
        following = {
            session: session.switch
            for session in self.sessions.values()
            if session.switch in self.state.connected or session.phase in ADMITTING
        }
        for version in range(min(since + 1, self.state.version), self.state.version + 1):
            self._tracker.begin(version, following.values())
        effects.due |= dict.fromkeys(following)

    def tick(self, now: float, effects: Effects) -> None:
        """Give up answers that are overdue, retry what is due, and check roles in turn."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, session = heapq.heappop(self._deadlines)
            if session.deadline is None or session.deadline > now:
                continue
            try:
                session.expire()
            except SwitchError as error:
                self._failed(session, error, now, effects)
            effects.due[session] = None
        switch = self._role_checks.due(self.sessions.keys(), now)
        if switch is not None and self.sessions[switch].phase is Phase.IN_FORCE:
            self.sessions[switch].check_role()
            effects.due[self.sessions[switch]] = None

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do, in monotonic seconds."""
        deadline = self._deadlines[0][0] if self._deadlines else float("inf")
        return min(deadline, self._role_checks.at)

    def collect(self, effects: Effects, now: float) -> None:
        """Hand on the versions that every connected switch has confirmed."""
        while self._confirmed:
            change = self.state.change(self._confirmed.pop(0))
            if change is not None:
                change.installed_ms = change.milliseconds(now)
                LOG.info("version %d: all switches have its rules after %.1f ms", change.version, change.installed_ms)
                effects.in_force.append(change)

    # -- messages -----------------------------------------------------------------------------------------------------

    def due(self, session: SwitchSession) -> list[Message]:
        """Return what to send to a switch now; nothing while its answer is awaited, except probes."""
        messages = session.take_probes()
        if not session.is_busy:
            messages += self._next(session)
        return messages

    def was_sent(self, session: SwitchSession, now: float) -> None:
        """Note that everything due has been written to a switch's connection."""
        session.was_sent(now)
        self._watch(session)

    def _next(self, session: SwitchSession) -> list[Message]:
        state = self.state
        match session.phase:
            case Phase.CLAIMING:
                return session.claim(state.epoch)
            case Phase.READING:
                return session.read()
            case Phase.WAITING if state.settled or not session.may_have_foreign_state:
                session.phase = Phase.INSTALLING
                return session.install(self.wanted(session.switch), state.version)
            case Phase.IN_FORCE if session.is_to_mend:
                return session.mend(self.wanted(session.switch), state.version)
            case Phase.IN_FORCE if session.version != state.version:
                messages = session.update(self.wanted(session.switch), state.version)
                if not messages:
                    self._tracker.reached(session.switch, state.version)
                return messages
            case Phase.IN_FORCE:
                return session.role_check()
        return []

    # -- what follows -------------------------------------------------------------------------------------------------

    def _confirmed_by(self, session: SwitchSession, before: Phase, now: float, effects: Effects) -> None:
        session.phase = Phase.IN_FORCE
        self._tracker.reached(session.switch, session.version)
        if before is Phase.UPDATING:
            LOG.debug("switch %s has confirmed the rules of version %d", session.name, session.version)
            return
        self._clear(session.connection)
        sent = session.changed
        LOG.info(
            "switch %s admitted: %d entries and %d groups added, %d removed, after %.0f ms",
            session.name,
            sent[AddFlow],
            sent[AddGroup] + sent[ModifyGroup],
            sent[DeleteFlow] + sent[DeleteGroup],
            1000 * (now - session.connected_at),
        )
        self.state.switch_ready(session.switch, now)
        effects.admitted.append(session)
        effects.visible = True
        if len(self.state.connected) == self.tree.switch_count:
            self._tell_complete(now)

    def _failed(self, session: SwitchSession, error: SwitchError, now: float, effects: Effects) -> None:
        was, effects.visible = session.phase, True
        self._reject(session.connection, f"{session.name}: {error}")
        self._tracker.left(session.switch)
        if isinstance(error, AnotherMasterError):
            session.taken()
            if was is Phase.IN_FORCE:
                del self.sessions[session.switch]
            self.state.switch_taken(session.switch)
            return
        if was is Phase.UPDATING:
            LOG.error(
                "switch %s has not confirmed the rules of version %d: its paths are excluded until it has; %s",
                session.name,
                self.state.version,
                error,
            )
        session.back_off(now)
        self._watch(session)
        self.state.switch_refuses(session.switch, now)

    def _watch(self, session: SwitchSession) -> None:
        if session.deadline is not None:
            heapq.heappush(self._deadlines, (session.deadline, next(self._numbers), session))

    def _reject(self, connection: Connection, reason: str) -> None:
        if self.state.rejected.get(connection.dpid) != reason:
            LOG.error("switch at %s ignored: %s", connection.address, reason)
        self.state.reject(connection.dpid, reason)
        self._rejected[connection.dpid] = connection

    def _clear(self, connection: Connection) -> None:
        if self.is_rejected(connection):
            del self._rejected[connection.dpid], self.state.rejected[connection.dpid]

    def _tell_complete(self, now: float) -> None:
        sessions = self.sessions.values()
        connected = [session.connected_at for session in sessions]
        LOG.info(
            "all %d switches have their rules: %d flow-mods and group-mods; to the last barrier %.3f s from the first "
            "connect, %.3f s from the last",
            self.tree.switch_count,
            sum(session.messages_sent for session in sessions),
            now - min(connected),
            now - max(connected),
        )


def _ranges(numbers: set[int]) -> str:
    """Format port numbers for people: ``1-3, 7``; ``none`` if there are none."""
    parts: list[str] = []
    ordered = sorted(numbers)
    while ordered:
        first = last = ordered.pop(0)
        while ordered and ordered[0] == last + 1:
            last = ordered.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(parts) or "none"
