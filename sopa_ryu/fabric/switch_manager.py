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
from sopa_ryu.fabric.contest import Contests
from sopa_ryu.fabric.generation import Generation
from sopa_ryu.fabric.installation import Sent
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    Answer,
    Connection,
    DeleteFlow,
    DeleteGroup,
    EchoRequest,
    GenerationRequest,
    InstalledState,
    Message,
    ModifyGroup,
    Refusal,
    Request,
)
from sopa_ryu.fabric.pacer import Pacer
from sopa_ryu.fabric.phase import ADMITTING, Phase
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.switch_errors import ANOTHER_MASTER, AnotherMasterError, SwitchError
from sopa_ryu.fabric.switch_session import SwitchSession
from sopa_ryu.fabric.version_tracker import VersionTracker
from topologies import Host, Reason, Switch, TopologyError

LOG = logging.getLogger("sopa")

ROLE_CHECK_SECONDS = 5.0
MASTERED = frozenset({Phase.READING, Phase.WAITING, Phase.INSTALLING, Phase.IN_FORCE, Phase.UPDATING})
"""Phases of a switch whose master this controller is, as far as it knows."""


@dataclass
class Effects:
    """What follows from an observation.

    Attributes
    ----------
    due : dict with SwitchSession as keys
        Sessions that have messages due.
    begun : list of SwitchSession
        Sessions that have begun just now.
    close : list of Connection
        Connections to be closed.
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
    begun: list[SwitchSession] = field(default_factory=list)
    close: list[Connection] = field(default_factory=list)
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
    bind_certificates : bool
        Whether a switch has to show a certificate with its name or datapath id.

    Attributes
    ----------
    sessions : dict from Switch to SwitchSession
    sent : dict from Switch to Sent
        What each switch was sent since the controller started.
    contests : Contests
        Second connections of a datapath id.
    generation : Generation
    taken : dict from Switch to Connection
        The connected switches whose master is another controller.
    misnamed : int
        Connections that were rejected for their certificates.
    """

    def __init__(self, state: FabricState, no_label: Collection[Host] = (), bind_certificates: bool = False) -> None:
        self.state = state
        self.tree = state.tree
        self.sessions: dict[Switch, SwitchSession] = {}
        self.sent: dict[Switch, Sent] = {}
        self.contests = Contests()
        self.generation = Generation(state.epoch)
        self.taken: dict[Switch, Connection] = {}
        self.misnamed = 0
        self._no_label = no_label
        self._bind_certificates = bind_certificates
        self._others_asked: set[Switch] = set()
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

    @property
    def is_deposed(self) -> bool:
        """Whether another controller is the master of more switches than this one."""
        mastered = sum(session.phase in MASTERED for session in self.sessions.values()) if self.taken else 0
        return len(self.taken) > mastered

    # -- observations -------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection, now: float, effects: Effects) -> None:
        """Admit a switch that has finished its handshake, unless it is rejected or its datapath id has a connection already."""
        ports = connection.ports()
        try:
            switch = self.tree.switch_by_dpid(connection.dpid)
        except TopologyError as error:
            self._reject(connection, str(error))
            return
        if self._bind_certificates and (mismatch := self._mismatch(connection, switch)):
            self.misnamed += 1
            self._reject(connection, mismatch)
            return
        if ports.keys() != self.tree.ports(switch).keys():
            self._reject(
                connection,
                f"{self.tree.name(switch)} has ports {_ranges(set(ports))}, "
                f"but a k={self.tree.k} fat-tree's switch has 1-{self.tree.k}",
            )
            return
        former = self.sessions.get(switch)
        if former is not None and former.connection is not connection:
            self.contests.begin(former, connection, now)
            effects.due[former] = None
            return
        self._begin(connection, switch, now, effects)

    def _mismatch(self, connection: Connection, switch: Switch) -> str:
        """Tell what is wrong with the certificate of a connection; nothing if it is the switch's."""
        name, dpid = self.tree.name(switch), f"{connection.dpid:016x}"
        names = connection.certified_names()
        if names is None:
            return f"{name} has shown no certificate: it has to connect by TLS with one for {name}"
        if {name, dpid, f"0x{dpid}"}.isdisjoint(names):
            shown = ", ".join(sorted(names)) or "no name"
            return f"{name} has shown a certificate for {shown:.80}: it needs one for {name} or {dpid}"
        return ""

    def _begin(self, connection: Connection, switch: Switch, now: float, effects: Effects) -> None:
        """Begin the session of a connection; one that the switch still has ends."""
        self.state.rejected.pop(connection.dpid, None)
        self._rejected.pop(connection.dpid, None)
        self.taken.pop(switch, None)
        sent = self.sent.setdefault(switch, Sent())
        session = SwitchSession(connection, switch, self.tree.name(switch), sent, now)
        former, self.sessions[switch] = self.sessions.get(switch), session
        if former is not None:
            former.closed()
        ports = connection.ports()
        troubles = {port: ports.get(port, Reason.DOWN) for port in self.tree.ports(switch)}
        self.state.switch_heard(switch, {port: why for port, why in troubles.items() if why is not None}, now)
        effects.due[session] = None
        effects.begun.append(session)
        effects.visible = True

    def disconnected(self, connection: Connection, now: float, effects: Effects) -> None:
        """Drop the session of a connection that is gone, unless a newer one takes its place."""
        self._clear(connection)
        self.contests.leave(connection)
        taken = [switch for switch, taken in self.taken.items() if taken is connection]
        session = self.session(connection)
        for switch in taken:
            del self.taken[switch]
            if session is None:
                self.state.switch_lost(switch, now)
        if session is None:
            return  # it has reconnected already, was rejected, or is another controller's
        if self._succeed(session, now, effects):
            return
        del self.sessions[session.switch]
        session.closed()
        self._tracker.left(session.switch)
        fault = self.state.management.in_grace
        if self.state.management.lost(session.switch, now):
            self.ask_all(effects)
        elif not fault:
            LOG.warning(
                "switch %s has lost its OpenFlow channel: it forwards by the rules it has, its paths stay while its neighbours "
                "report the links up; check switch and management network",
                session.name,
            )
        self.state.switch_lost(session.switch, now)

    def _succeed(self, session: SwitchSession, now: float, effects: Effects) -> bool:
        """Have the newer connection take the place of a session that is gone or does not answer, if there is one."""
        newer = self.contests.succeed(session)
        if not newer:
            return False
        self._begin(newer[0], session.switch, now, effects)
        for other in newer[1:]:
            self.contests.begin(self.sessions[session.switch], other, now)
        return True

    def ask_all(self, effects: Effects) -> None:
        """Ask every switch whether it is there: what it has sent before has then arrived."""
        self.state.management.ask(self.sessions.keys())
        for session in self.sessions.values():
            session.ask_alive()
            effects.due[session] = None

    def answered(self, session: SwitchSession, request: Request, answer: Answer, now: float, effects: Effects) -> None:
        """Take a switch's answer to a request."""
        before = session.phase
        if isinstance(request, EchoRequest):
            if session.is_alive(request):
                effects.close += self.contests.lives(session, now)
                self.state.switch_answered(session.switch, now)
            return
        try:
            if not session.answered(request, answer):
                return
            if isinstance(request, GenerationRequest):
                self._weigh(session, now, effects)
            elif before is Phase.READING:
                self._look_at_rules(session, now)
            elif before in (Phase.INSTALLING, Phase.UPDATING) and session.rules is not None:
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
        for session in self.contests.overdue(now):
            effects.close.append(session.connection)
            self._succeed(session, now, effects)
        switch = self._role_checks.due(self.sessions.keys(), now)
        if switch is not None and self.sessions[switch].phase is Phase.IN_FORCE:
            self.sessions[switch].check_role()
            effects.due[self.sessions[switch]] = None

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do, in monotonic seconds."""
        deadline = self._deadlines[0][0] if self._deadlines else float("inf")
        return min(deadline, self._role_checks.at, self.contests.next_tick)

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
        messages = [*session.take_echo(), *session.take_probes()]
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
            case Phase.CLAIMING if not session.knows_generation:
                return session.ask_generation()
            case Phase.CLAIMING:
                return session.claim(self.generation.number)
            case Phase.READING:
                return session.read()
            case Phase.WAITING if state.settled or not session.may_have_foreign_state:
                session.phase = Phase.INSTALLING
                state.known_rules.sent(session.switch, state.failures)
                return session.install(self.wanted(session.switch), state.version)
            case Phase.IN_FORCE if session.is_to_mend:
                state.known_rules.sent(session.switch, state.failures)
                return session.mend(self.wanted(session.switch), state.version)
            case Phase.IN_FORCE if session.version != state.version:
                messages = session.update(self.wanted(session.switch), state.version)
                state.known_rules.sent(session.switch, state.failures)
                if not messages:
                    state.known_rules.confirmed(session.switch)
                    self._tracker.reached(session.switch, state.version)
                return messages
            case Phase.IN_FORCE:
                return session.role_check()
        return []

    # -- what follows -------------------------------------------------------------------------------------------------

    def _weigh(self, session: SwitchSession, now: float, effects: Effects) -> None:
        """Compare the generation id that a switch knows with the own one, before the switch is claimed.

        One that is ahead is of a controller that was started later, or of an earlier one whose clock was ahead. In the first case
        other switches are that controller's, too: they are asked first. In the second the own id continues after it.
        """
        theirs = session.generation
        if theirs is None or not self.generation.is_behind(theirs):
            return
        if self.taken:
            raise AnotherMasterError(ANOTHER_MASTER)
        if self.state.settled and session.switch not in self._others_asked and self._check_roles(session, effects):
            self._others_asked.add(session.switch)
            session.back_off(now)
            self._watch(session)
            return
        self._others_asked.discard(session.switch)
        self.generation.exceed(theirs)
        LOG.warning(
            "switch %s knows generation id %d, which is ahead of this controller's: it goes on with %d; check this machine's clock",
            session.name,
            theirs,
            self.generation.number,
        )

    def _check_roles(self, but: SwitchSession, effects: Effects) -> bool:
        """Ask the other switches for this controller's role there; return False if there is none to ask."""
        others = [other for other in self.sessions.values() if other is not but and other.phase is Phase.IN_FORCE]
        for other in others:
            other.check_role()
        effects.due |= dict.fromkeys(others)
        return bool(others)

    def _look_at_rules(self, session: SwitchSession, now: float) -> None:
        """Note what the entries that were read say of the switch, and of an earlier controller."""
        if session.phase is Phase.WAITING:
            if session.has_no_rules and self.state.evidence.relies_on(session.switch):
                self.state.switch_refuses(session.switch, now)
            elif not session.has_no_rules:
                self.state.evidence.operating = True

    def _confirmed_by(self, session: SwitchSession, before: Phase, now: float, effects: Effects) -> None:
        session.phase = Phase.IN_FORCE
        self.state.known_rules.confirmed(session.switch)
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
            self.taken[session.switch] = session.connection
            if was is Phase.IN_FORCE:
                del self.sessions[session.switch]
                self._check_roles(session, effects)
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
