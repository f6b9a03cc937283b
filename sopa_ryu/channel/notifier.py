"""The controller's side of the push channel: what agents are sent, which are cut off, which claims are accepted. Pure.

Observations come in as method calls, with their time (``now``, monotonic seconds) where that matters; what has to be done comes
back as effects. What has to be sent is pulled: a session's writer calls `Notifier.due` until that returns None. A version that
comes while a writer waits for a slow agent becomes part of that agent's next message, and delays no other agent.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET

from flowrules.label import Carrier
from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import CUT_SECONDS, AgentSession, Keepalive, Phase
from sopa_ryu.channel.claims import Claim, ClaimError, Claims, DeposedClaimError, ForeignClaimError, TakenClaimError, foreign
from sopa_ryu.channel.effects import Accept, Completed, Cut, Effect, Effects, Reject
from sopa_ryu.channel.handed_mcs import HandedMcsHosts
from sopa_ryu.channel.handed_traces import HandedTraces
from sopa_ryu.channel.mcs import Variant
from sopa_ryu.channel.mcs_hosts import McsHosts
from sopa_ryu.channel.messages import Ack, FromAgent, ProtocolError, Report, Resync, TraceAnswer
from sopa_ryu.channel.probe_lists import ProbeLists
from sopa_ryu.fabric.departures import is_link
from sopa_ryu.fabric.view import VersionTracker, View
from topologies import Clos, Host

LOG = logging.getLogger("sopa.notify")

MAX_REFUSED = 100
"""An agent of which so many messages were rejected is cut off."""
MAX_DELTA_VERSIONS = 64
"""An agent that is farther behind gets a snapshot."""
DEPOSED = "another controller is the switches' master: ask that one"


class Texts(NamedTuple):
    """Log lines, for agents by default. ``%s`` first is the name of the host, or in `rejected` the address of the claimant."""

    unanswering: str = "agent of %s at %s does not answer: cut off, another that connects takes its place"
    silent: str = "agent of %s silent for %.0f s: cut off. Its host keeps its path sets. Check the agent and its network"
    twice: str = "agent of %s connected twice: the connection from %s is cut"
    connected: str = "agent of %s connected from %s (%d connected)"
    disconnected: str = "agent of %s disconnected: its host keeps its path sets until the agent is back (%d connected)"
    malformed: str = "agent of %s: message rejected: %s. Check the agent's version"
    cut_off: str = "agent of %s cut off after %d rejected messages. Check the agent's version"
    rejected: str = "connection from %s as agent of %s rejected: %s"
    deposed: str = (
        "another controller is the master of most switches: %d agents are sent away. They keep their path sets. End this "
        "controller, or the other one and restart this one"
    )
    stands_by: str = "this controller stands by: %d agents are sent away, and keep their path sets: %s"
    accepted_again: str = "this controller is the master of most switches again: agents are accepted"


class Notifier:
    """The sessions of all connected agents.

    Args:
        view: Return what agents have to know now; None while it is not known what has failed.
        carrier: The carrier of the fabric; an agent that writes the label elsewhere is a warning in the log.
        relays: Whether the leader has the hosts of other relays that run MCS.

    Attributes:
        sessions: The connected agents.
        refused: ``claims`` and ``messages`` that were rejected.
        traces: What the controller has agents trace, and what they answer.
        is_deposed: Whether another controller is the switches' master, or leads the cluster: agents are sent away to find it.
        deposed_text: The error that claimants get meanwhile.
        probe_lists: Who probes what, and what is reported.
        mcs_hosts: Who runs MCS.
    """

    texts = Texts()

    def __init__(self, tree: Clos, view: Callable[[], View | None], carrier: str = Carrier.MAC, *, relays: bool = False) -> None:
        self.tree = tree
        self.carrier = carrier
        self.sessions: dict[Host, AgentSession] = {}
        self.refused: Counter[str] = Counter(claims=0, messages=0)
        self.is_deposed = False
        self.deposed_text = DEPOSED
        self._view = view
        self._deltas: dict[tuple[int, int, int], str] = {}
        self._claims = Claims()
        self._keepalive = Keepalive()
        self.mcs_hosts: McsHosts = HandedMcsHosts(tree) if relays else McsHosts()
        self.traces = HandedTraces()
        self.probe_lists = ProbeLists()
        self._places: dict[Host, int] = {}
        self._effects = Effects()
        self._tracker = VersionTracker(lambda version: self._effects.add(Completed(version)))

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do; a pending claim may need it earlier."""
        return self._keepalive.next_look

    # -- to the agents ------------------------------------------------------------------------------------------------

    def broadcast(self) -> tuple[int, list[Effect]]:
        """Bring every agent to the version that was just made.

        Returns:
            How many agents have to acknowledge it, and what has to be done.
        """
        view = self._view()
        if view is None:
            return 0, []
        self._deltas.clear()
        count = self._tracker.begin(view.version, self.sessions.values())
        for session in self.sessions.values():
            self._effects.wake(session)
        return count, self._effects.take()

    def due(self, session: AgentSession, now: float) -> str | None:
        """Return the message that a session's writer has to write next, or None if the writer has to end."""
        view = self._view()
        if session.phase is Phase.CLOSED:
            return None
        before = session.sent
        if view is not None and (before is None or (before.epoch, before.version) != (view.epoch, view.version)):
            session.note_sent(view, now)
            if before is None or before.epoch != view.epoch:
                return self._snapshot(session, view, now)
            if not 0 < view.version - before.version < MAX_DELTA_VERSIONS:
                return self._snapshot(session, view, now)
            return self._delta(before, view)
        change = self.mcs_hosts.due(session, now)
        if change is not None:
            return change
        if (asked := self.traces.due(session.host)) is not None:
            return asked
        streams = self.probe_lists.due(session)
        if streams is not None:
            return streams
        if session.ping_due:
            session.ping_due = False
            return protocol.PING
        session.phase = Phase.IDLE
        return None

    def _snapshot(self, session: AgentSession, view: View, now: float) -> str:
        return protocol.snapshot(view, self.tree.ip(session.host), self.mcs_hosts.list_for(session, now))

    def _delta(self, before: View, after: View) -> str:
        """Return a delta's text; agents that are at the same version share it."""
        key = after.epoch, before.version, after.version
        if key not in self._deltas:
            self._deltas[key] = protocol.delta(before, after)
        return self._deltas[key]

    # -- from the agents ----------------------------------------------------------------------------------------------

    def claim(self, host: Host, peer: str, claimant: Any, now: float) -> list[Effect]:
        """Decide whether a connection from an address may be the agent of a host.

        If the host's agent is connected already, it is asked whether it is still there; `received`, `closed` or `tick` then decide.
        One claim of a host waits: an earlier one is rejected.

        Returns:
            `Accept` or `Reject` with `ForeignClaimError`, unless the decision waits.
        """
        foreign = self._foreign(host, peer)
        holder = self.sessions.get(host)
        if foreign:
            self._reject(host, peer, claimant, ForeignClaimError(foreign))
        elif self.is_deposed:
            self._reject(host, peer, claimant, DeposedClaimError(self.deposed_text))
        elif holder is not None:
            self._reject_claim(self._claims.add(holder, peer, claimant, now))
            self._ping(holder, now)
        else:
            self._effects.add(Accept(claimant))
        return self._effects.take()

    def _foreign(self, host: Host, peer: str) -> str:
        return foreign(self.tree, host, peer)

    def _name(self, host: Host) -> str:
        return self.tree.name(host)

    def _taken(self, holder: AgentSession) -> str:
        """Return why a claim is rejected whose place is taken."""
        return f"another agent of {self.tree.ip(holder.host)} is connected, from {holder.peer}: end that one first"

    def connected(
        self,
        host: Host,
        peer: str,
        carrier: str | None,
        connection: Any,
        now: float,
        policy: str | None = None,
        variant: Variant | None = None,
        probes: bool = False,
    ) -> tuple[AgentSession, list[Effect]]:
        """Begin the session of an agent whose claim was accepted; a session that its host still has is closed."""
        former = self.sessions.get(host)
        if former is not None:
            LOG.warning(self.texts.twice, former.name, former.peer)
            self._close(former)
        session = AgentSession(host, self._name(host), peer, carrier, connection, now, now)
        session.policy, session.variant, session.probes = policy, variant, probes
        self.sessions[host] = session
        self.mcs_hosts.connected(session)
        self.probe_lists.connected(session)
        LOG.info(self.texts.connected, session.name, peer, len(self.sessions))
        if carrier not in (None, self.carrier):
            text = "agent of %s writes labels by carrier %.20s: switches may not read them. Start it with --carrier %s"
            LOG.warning(text, session.name, carrier, self.carrier)
        if self.is_deposed:  # since its claim was accepted
            self._close(session)
        else:
            self._effects.wake(session)
        return session, self._effects.take()

    def received(self, session: AgentSession, text: str | bytes, now: float) -> list[Effect]:
        """Follow what an agent sent: an acknowledgement, a report, or a request for a snapshot."""
        view = self._view()
        if session.phase is Phase.CLOSED:
            return []
        session.heard = now
        if view is not None:  # before, an agent can only answer a ping
            try:
                self._take(session, protocol.answer(text, view), view, now)
            except ProtocolError as error:
                self._reject_message(session, error)
        self._reject_claim(self._claims.take(session))
        return self._effects.take()

    def _take(self, session: AgentSession, message: FromAgent, view: View, now: float) -> None:
        match message:
            case Ack():
                self._follow(session, message, view, now)
            case Resync():
                session.sent = None
                self._effects.wake(session)
            case Report():
                self.probe_lists.take(session, message, self._place(session.host), now)
                left = () if message.left is UNSET else message.left
                if unknown := [name for name in left if not is_link(self.tree, name)]:
                    raise ProtocolError(f"it has left {unknown[0]!r}, which is no link between switches")
                session.left = left
            case TraceAnswer():
                try:
                    self.traces.answered(session.host, message)
                except ValueError as error:
                    raise ProtocolError(str(error)) from error

    def _follow(self, session: AgentSession, ack: Ack, view: View, now: float) -> None:
        session.refuses = ack.refused
        if ack.epoch == view.epoch:
            version = min(ack.version, view.version)  # another relay of the cluster may have sent it a later one
            session.note_acknowledged(version, now)
            if session.variant is not None:
                self.mcs_hosts.acknowledged(session, self.tree.ip(session.host), ack.mcs or 0)
            self._tracker.reached(session, version)
            if session.probes:
                self.probe_lists.acknowledged(session)
                self._effects.wake(session)

    def _place(self, host: Host) -> int:
        if not self._places:
            self._places = {each: number for number, each in enumerate(self.tree.hosts())}
        return self._places[host]

    def assign(self, host: Host, number: int, text: str) -> list[Effect]:
        """Give a host's agent another list of streams to probe: the text of the message."""
        session = self.probe_lists.assign(host, number, text)
        if isinstance(session, AgentSession):
            self._effects.wake(session)
        return self._effects.take()

    def forged(self, host: Host, count: int) -> list[Effect]:
        """Count what is wrong in the records of a host's reports, which are read elsewhere."""
        session = self.sessions.get(host)
        if session is not None:
            self._reject_message(session, ProtocolError(f"{count} records of probes that it cannot have sent"))
        return self._effects.take()

    def closed(self, session: AgentSession, *, left: bool = False) -> list[Effect]:
        """End the session of an agent whose connection is gone, unless it has ended already; ``left`` if the agent has said so."""
        if session.phase is not Phase.CLOSED:
            self._close(session, left=left)
            LOG.info(self.texts.disconnected, session.name, len(self.sessions))
        return self._effects.take()

    def depose(self, deposed: bool, leader: str | None = None) -> list[Effect]:
        """Send all agents away and accept no other while another controller is the switches' master; they keep their path sets.

        Args:
            leader: In a cluster: who leads it, for those who are sent away. A member that stands by is no error.
        """
        self.is_deposed = deposed
        self.deposed_text = DEPOSED if leader is None else leader
        if deposed:
            if leader is None:
                LOG.error(self.texts.deposed, len(self.sessions))
            else:
                LOG.info(self.texts.stands_by, len(self.sessions), leader)
            for claim in self._claims.take_all():
                self._reject(claim.holder.host, claim.peer, claim.claimant, DeposedClaimError(self.deposed_text))
            for session in list(self.sessions.values()):
                self._close(session)
        else:
            LOG.info(self.texts.accepted_again)
        self.mcs_hosts.begin()
        return self._effects.take()

    # -- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Decide the claims that have waited long enough, ping agents that have been silent, cut off those that stay silent."""
        for holder in self._claims.overdue(now):
            LOG.warning(self.texts.unanswering, holder.name, holder.peer)
            self._close(holder)
        for session in self.mcs_hosts.tick(now, self.sessions.values()):
            self._effects.wake(session)
        silent = self._keepalive.look(self.sessions.values(), now)
        for session in silent.dead:
            LOG.warning(self.texts.silent, session.name, CUT_SECONDS)
            self._close(session)
        for session in silent.pinged:
            self._ping(session, now)
        return self._effects.take()

    def ask(self, host: Host, text: str) -> list[Effect]:
        """Ask a host's agent for what the controller wants traced; raises `ProtocolError`."""
        self.traces.ask(host, text)
        if (session := self.sessions.get(host)) is not None:
            self._effects.wake(session)
        return self._effects.take()

    def _ping(self, session: AgentSession, now: float) -> None:
        session.pinged, session.ping_due = now, True
        self._effects.wake(session)

    # -- what follows -------------------------------------------------------------------------------------------------

    def _close(self, session: AgentSession, *, left: bool = False) -> None:
        """End a session; the claims that waited for its answer are accepted."""
        session.phase = Phase.CLOSED
        self.mcs_hosts.closed(session, left)
        self.traces.left(session.host)
        self.probe_lists.closed(session, left)
        self._effects.add(Cut(session))
        del self.sessions[session.host]
        self._tracker.left(session)
        if (claim := self._claims.take(session)) is not None:
            self._effects.add(Accept(claim.claimant))

    def _reject_message(self, session: AgentSession, error: ProtocolError) -> None:
        session.refused += 1
        self.refused["messages"] += 1
        if session.refused == 1:
            LOG.warning(self.texts.malformed, session.name, error)
        if session.refused == MAX_REFUSED:
            LOG.warning(self.texts.cut_off, session.name, MAX_REFUSED)
            self._close(session)

    def _reject_claim(self, claim: Claim | None) -> None:
        """Reject a claim, if there is one, whose place is taken, or that a later one has replaced."""
        if claim is not None:
            self._reject(claim.holder.host, claim.peer, claim.claimant, TakenClaimError(self._taken(claim.holder)))

    def _reject(self, host: Host, peer: str, claimant: Any, error: ClaimError) -> None:
        self.refused["claims"] += 1
        LOG.warning(self.texts.rejected, peer, self._name(host), error)
        self._effects.add(Reject(claimant, error))

    # -- reports ------------------------------------------------------------------------------------------------------

    def behind(self, version: int) -> int:
        """Return how many connected agents have not acknowledged a version."""
        return sum(session.acknowledged != version for session in self.sessions.values())
