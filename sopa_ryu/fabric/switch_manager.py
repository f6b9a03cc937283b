"""The switches and their sessions, from the handshake to the loss of the connection. Pure.

Observations of switches come in and go on to `FabricState`; sessions that have messages due go into `Effects`. What is due is
asked for by `SwitchManager.due` when the connection can take it, so several versions that came meanwhile are one change.
`Rejections` decides which connections are used, `Mastership` whose the switches are, `Rollout` what they are sent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.mastership import MASTERED, Generation, Mastership
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    Answer,
    DeleteFlow,
    DeleteGroup,
    EchoRequest,
    GenerationRequest,
    InstalledState,
    Message,
    ModifyGroup,
    Refusal,
    Request,
    SwitchConnection,
)
from sopa_ryu.fabric.pacing import Admission, Deadlines
from sopa_ryu.fabric.rejections import Contests, Rejections
from sopa_ryu.fabric.rollout import Rollout
from sopa_ryu.fabric.rule_changes import Sent
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import ANOTHER_MASTER, AnotherMasterError, SwitchError, SwitchPhase, SwitchSession
from topologies import Host, Reason, Switch, TopologyError

LOG = logging.getLogger("sopa")

OF_ANOTHER = (
    "it says that another controller is its master. It is not used until it takes this one, which most switches do. Look for "
    "another cluster or controller that is set at this switch"
)
AHEAD_OF_TERM = (
    "it knows generation id {}, which is ahead of this cluster's term: the next leader can take it. Have another member lead "
    "(sopa cluster step-down), and look for another cluster or controller on this fabric"
)


class SwitchManager:
    """Every connected switch, its session and its rules.

    Attributes:
        sent: What each switch was sent since the controller started.
        leads: Whether this controller commands the switches. A standby of a cluster does not: it is their slave.
        highest_generation: In a cluster: the highest generation id that a switch knew, that was ahead of this controller's, and
            that counts (`Mastership.counted`); 0 for none.
    """

    def __init__(self, state: FabricState, no_label: Collection[Host] = (), bind_certificates: bool = False) -> None:
        self.state = state
        self.tree = state.tree
        self.sessions: dict[Switch, SwitchSession] = {}
        self.sent: dict[Switch, Sent] = {}
        self.rejections = Rejections(state, bind_certificates)
        self.contests = Contests()
        self.generation = Generation(state.epoch)
        self.leads = state.commitment is None
        self.highest_generation = 0
        self.mastership = Mastership(state, self.sessions, self.generation)
        self.rollout = Rollout(state, self.sessions, no_label)
        self._admission = Admission(self.rollout.has_to_wait)
        self._deadlines = Deadlines()

    def session(self, connection: SwitchConnection) -> SwitchSession | None:
        """Return the session of a connection, or None if it is no admitted switch's."""
        try:
            session = self.sessions.get(self.tree.switch_by_dpid(connection.dpid))
        except TopologyError:
            return None
        return session if session is not None and session.connection is connection else None

    def since(self) -> Mapping[Switch, float]:
        """Return the switches that have confirmed their rules, each with when it connected, in monotonic seconds."""
        return {switch: self.sessions[switch].connected_at for switch in self.state.connected if switch in self.sessions}

    # -- observations -------------------------------------------------------------------------------------------------

    def connected(self, connection: SwitchConnection, now: float, effects: Effects) -> None:
        """Admit a switch that has finished its handshake, unless it is rejected or its datapath id has a connection already."""
        switch = self.rejections.identify(connection)
        if switch is None:
            return
        former = self.sessions.get(switch)
        if former is not None and former.connection is not connection:
            self.contests.begin(former, connection, now)
            effects.due[former] = None
            return
        self._begin(connection, switch, now, effects)

    def _begin(self, connection: SwitchConnection, switch: Switch, now: float, effects: Effects) -> None:
        """Begin the session of a connection; one that the switch still has ends."""
        self.rejections.forget(connection.dpid)
        self.mastership.mastered_elsewhere.pop(switch, None)
        self.mastership.known.pop(switch, None)
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

    def disconnected(self, connection: SwitchConnection, now: float, effects: Effects) -> None:
        """Drop the session of a connection that is gone, unless a newer one takes its place."""
        self.rejections.clear(connection)
        self.contests.leave(connection)
        taken = self.mastership.leave(connection)
        session = self.session(connection)
        if session is None:
            for switch in taken:
                self.state.switch_lost(switch, now)
            return  # it has reconnected already, was rejected, or is another controller's
        if self._succeed(session, now, effects):
            return
        del self.sessions[session.switch]
        self.mastership.known.pop(session.switch, None)
        session.closed()
        self.rollout.left(session.switch)
        fault = self.state.management.in_grace
        if self.state.management.lost(session.switch, now):
            self.ask_all(effects)
        elif not fault:
            LOG.warning(
                "switch %s has lost its OpenFlow channel. It forwards by the rules it has. Its paths stay while its neighbours "
                "report the links up. Check switch and management network",
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
            elif before is SwitchPhase.CLAIMING:
                self.mastership.mastered_elsewhere.pop(session.switch, None)
            elif before is SwitchPhase.READING:
                self._look_at_rules(session, now)
            elif before in (SwitchPhase.INSTALLING, SwitchPhase.UPDATING) and session.rules is not None:
                self._confirmed_by(session, before, now, effects)
        except SwitchError as error:
            self._failed(session, error, now, effects)
        effects.due[session] = None

    def refused(self, session: SwitchSession, request: Request | None, refusal: Refusal, now: float, effects: Effects) -> None:
        """Take a switch's error message; ``request`` is None if it answers a flow-mod or group-mod."""
        LOG.error("switch %s refused a message: %s", session.name, refusal.text)
        try:
            if refusal.is_slave and self.leads and self.state.commitment is not None and session.phase in MASTERED:
                raise AnotherMasterError(OF_ANOTHER)
            session.refused(request, refusal)
        except SwitchError as error:
            # in force it refused a role check only, unless another controller is its master
            if session.phase is not SwitchPhase.IN_FORCE or isinstance(error, AnotherMasterError):
                self._failed(session, error, now, effects)
        effects.due[session] = None

    def installed(self, session: SwitchSession, found: InstalledState, effects: Effects) -> None:
        """Take what is installed in a switch whose rules are in force, and mend what differs."""
        wrong = session.compare(found)
        if wrong:
            LOG.error(
                "switch %s: %d of its entries or groups were changed by another program and are put right. Find out who writes to "
                "it (ovs-ofctl, another controller)",
                session.name,
                wrong,
            )
            effects.due[session] = None

    def lead(self, term: int, effects: Effects) -> None:
        """Claim every switch with a term: this controller leads the cluster."""
        self.generation.number = term
        self.leads = True
        self._begin_all_again(effects)

    def stand_by(self, effects: Effects) -> None:
        """Be a slave of every switch: another controller leads the cluster."""
        self.leads = False
        self._begin_all_again(effects)

    def _begin_all_again(self, effects: Effects) -> None:
        self.mastership.mastered_elsewhere.clear()
        for session in self.sessions.values():
            self.rollout.left(session.switch)
            session.begin_again()
            effects.due[session] = None

    def settled(self, effects: Effects) -> None:
        """Go on with the switches that wait until it is known what has failed."""
        effects.due |= dict.fromkeys(session for session in self.sessions.values() if session.phase is SwitchPhase.WAITING)

    def follow(self, since: int, effects: Effects) -> None:
        """Bring every switch from a version to the fabric's present one, independently of each other."""
        following = dict.fromkeys(self.rollout.follow(since))
        effects.due = {session: None for session in effects.due if session not in following} | following

    def tick(self, now: float, effects: Effects) -> None:
        """Give up answers that are overdue, retry what is due, and check roles in turn."""
        for session in self._deadlines.overdue(now):
            try:
                session.expire()
            except SwitchError as error:
                self._failed(session, error, now, effects)
            effects.due[session] = None
        for session in self.contests.overdue(now):
            effects.close.append(session.connection)
            self._succeed(session, now, effects)
        checked = self.mastership.tick(now)
        if checked is not None:
            effects.due[checked] = None

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do, in monotonic seconds."""
        return min(self._deadlines.next, self.mastership.next_tick, self.contests.next_tick)

    def collect(self, effects: Effects, now: float) -> None:
        """Hand on the versions that every connected switch has confirmed, and the sessions whose turn has come."""
        effects.due |= dict.fromkeys(self._admission.begin())
        for change in self.rollout.confirmed_by_all():
            change.installed_ms = change.milliseconds(now)
            LOG.info("version %d: all switches have its rules after %.1f ms", change.version, change.installed_ms)
            effects.in_force.append(change)

    # -- messages -----------------------------------------------------------------------------------------------------

    def due(self, session: SwitchSession) -> list[Message]:
        """Return what to send to a switch now; nothing while its answer is awaited, except probes."""
        messages = [*session.take_echo(), *session.take_probes()]
        if not session.is_busy and self._admission.is_turn(session):
            messages += self._next(session)
        return messages

    def was_sent(self, session: SwitchSession, now: float) -> None:
        """Note that everything due has been written to a switch's connection."""
        session.was_sent(now)
        self._deadlines.watch(session)

    def _next(self, session: SwitchSession) -> list[Message]:
        match session.phase:
            case SwitchPhase.CLAIMING if not session.knows_generation:
                return session.ask_generation()
            case SwitchPhase.CLAIMING if not self.leads:
                return session.stand_by(self.generation.number)
            case SwitchPhase.CLAIMING:
                return session.claim(self.generation.number)
            case SwitchPhase.READING:
                return session.read()
            case SwitchPhase.IN_FORCE if not self.rollout.is_behind(session):
                return session.role_check()
        return self.rollout.next(session)

    # -- what follows -------------------------------------------------------------------------------------------------

    def _weigh(self, session: SwitchSession, now: float, effects: Effects) -> None:
        """Let a claim wait until the other switches have been asked whose they are, if they have to be."""
        if self.state.commitment is not None:
            theirs = self.mastership.counted(session)
            if theirs is not None:
                self.highest_generation = max(self.highest_generation, theirs)
                if self.leads:
                    raise AnotherMasterError(AHEAD_OF_TERM.format(theirs))
            return
        try:
            asked = self.mastership.weigh(session)
        except AnotherMasterError:
            raise
        except SwitchError:
            if self.state.settled:
                raise
            asked = None  # what the other switches know is heard first
        if asked != []:
            effects.due |= dict.fromkeys(asked or ())
            session.back_off(now)
            self._deadlines.watch(session)

    def _look_at_rules(self, session: SwitchSession, now: float) -> None:
        """Note what the entries that were read say of the switch, and of an earlier controller."""
        if session.phase is SwitchPhase.WAITING:
            if session.installation.is_of_sopa:
                self.state.evidence.operating = True
            elif self.state.evidence.relies_on(session.switch):  # it has restarted, or was emptied
                self.state.switch_refuses(session.switch, now)

    def _confirmed_by(self, session: SwitchSession, before: SwitchPhase, now: float, effects: Effects) -> None:
        self.rollout.confirmed(session)
        if before is SwitchPhase.UPDATING:
            LOG.debug("switch %s has confirmed the rules of version %d", session.name, session.version)
            return
        self.rejections.clear(session.connection)
        sent = session.installation.changed
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
        if self.state.commitment is not None and str(error) == ANOTHER_MASTER:
            error = AnotherMasterError(OF_ANOTHER)
        if not self.leads:
            session.back_off(now)
            self._deadlines.watch(session)
            return
        self.rejections.reject(session.connection, f"{session.name}: {error}")
        self.rollout.left(session.switch)
        if isinstance(error, AnotherMasterError):
            self.mastership.mastered_elsewhere[session.switch] = session.connection
            if self.state.commitment is not None:
                self._doubted(session, now, effects)
                return
            session.taken()
            if was is SwitchPhase.IN_FORCE:
                del self.sessions[session.switch]
                effects.due |= dict.fromkeys(self.mastership.ask_others(session))
            self.state.connected.discard(session.switch)  # it forwards, but not by this controller's rules
            return
        if was is SwitchPhase.UPDATING:
            LOG.error(
                "switch %s has not confirmed the rules of version %d: %s. Its paths are excluded until it has",
                session.name,
                self.state.version,
                error,
            )
        session.back_off(now)
        self._deadlines.watch(session)
        self.state.switch_refuses(session.switch, now)

    def _doubted(self, session: SwitchSession, now: float, effects: Effects) -> None:
        """Go on without a switch that says that the leader is not its master; lead no longer if most switches say so."""
        if self.mastership.is_outranked:
            effects.outranked = (
                f"{len(self.mastership.mastered_elsewhere)} of {self.tree.switch_count} switches have another master"
            )
        effects.due |= dict.fromkeys(self.mastership.ask_others(session))
        session.back_off(now)
        self._deadlines.watch(session)
        self.state.switch_refuses(session.switch, now)

    def _tell_complete(self, now: float) -> None:
        sessions = self.sessions.values()
        connected = [session.connected_at for session in sessions]
        LOG.info(
            "all %d switches have their rules: %d flow-mods and group-mods, to the last barrier %.3f s from the first connect, "
            "%.3f s from the last",
            self.tree.switch_count,
            sum(session.installation.messages_sent for session in sessions),
            now - min(connected),
            now - max(connected),
        )
