"""The push channel: one WebSocket an agent; a snapshot on connecting, then deltas, acknowledged by version."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import eventlet
from eventlet import websocket
from ryu.lib import hub

from flowrules.label import Carrier
from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import KEPT_VIEWS, AgentSession, Buffered
from sopa_ryu.channel.protocol import ProtocolError
from sopa_ryu.fabric.version_tracker import VersionTracker
from sopa_ryu.fabric.view import View
from topologies import FatTree, Host, TopologyError

LOG = logging.getLogger("sopa.notify")

PING_SECONDS = 10.0
PINGS_AT_ONCE, PINGS_A_SECOND = 8, 2000
CUT_SECONDS = 30.0
CLAIM_SECONDS = 2.0
MAX_REFUSED = 100
"""An agent that has sent so much that is refused is cut off."""


class ClaimError(Exception):
    """A connection for a host that is not the host's, or that another agent of the host has already."""


class Notifier:
    """Tells every connected agent what the fabric's state is; a slow one gets one merged delta later, and delays nobody.

    Parameters
    ----------
    tree : FatTree
    view : callable
        Gives what agents are to know now; None while it is not known what has failed.
    completed : callable
        Told each version that every agent has acknowledged.
    carrier : str
        Where agents are to write the word; one that says that it writes it elsewhere is a warning in the log.
    """

    def __init__(
        self,
        tree: FatTree,
        view: Callable[[], View | None],
        completed: Callable[[int], None],
        carrier: str = Carrier.MAC,
    ) -> None:
        self.tree = tree
        self.carrier = carrier
        self.sessions: dict[Host, AgentSession] = {}
        self.refused: Counter[str] = Counter(claims=0, messages=0)
        self._view = view
        self._views: OrderedDict[int, View] = OrderedDict()
        self._deltas: OrderedDict[tuple[int, int], str] = OrderedDict()
        self._rollout = VersionTracker(completed)

    # -- to the agents ------------------------------------------------------------------------------------------------

    def broadcast(self) -> int:
        """Bring every agent to the present version; how many there are."""
        view = self._view()
        if view is None:
            return 0
        self._remember(view)
        count = self._rollout.begin(view.version, self.sessions.values())
        for session in list(self.sessions.values()):
            self._wake(session)
        return count

    def watch(self) -> None:
        """For ever: ask those that have been silent for a while, and cut off those that stay silent."""
        while True:
            hub.sleep(PING_SECONDS / 10)
            asked = 0
            for session in list(self.sessions.values()):
                now = time.monotonic()
                if now - session.heard > CUT_SECONDS:
                    LOG.warning(
                        "agent of %s has been silent for %.0f s: cut off", self.tree.name(session.host), CUT_SECONDS
                    )
                    self._drop(session)
                elif now - max(session.heard, session.pinged) > PING_SECONDS:
                    self._ping(session, now)
                    asked += 1
                    if (
                        not asked % PINGS_AT_ONCE
                    ):  # thousands were told something at the same moment: now others have their turn
                        hub.sleep(PINGS_AT_ONCE / PINGS_A_SECOND)

    def _ping(self, session: AgentSession, now: float) -> None:
        session.pinged, session.ping_due = now, True
        self._wake(session)

    def _wake(self, session: AgentSession) -> None:
        if not session.writing:
            session.writing = True
            eventlet.spawn_n(self._write, session)

    def _write(self, session: AgentSession) -> None:
        """Send until the agent has been sent everything; what changes meanwhile is sent as one."""
        try:
            while not session.gone and (text := self._due(session)) is not None:
                session.send(text)
        except OSError:
            session.cut()
        finally:
            session.writing = False

    def _due(self, session: AgentSession) -> str | None:
        view = self._view()
        if view is not None and (session.sent is None or session.sent.version != view.version):
            before, now = session.sent, time.monotonic()
            self._remember(view)
            session.note_sent(view, now)
            if before is None or before.version not in self._views:
                return protocol.snapshot(view, self.tree.ip(session.host))
            return self._delta(before, view)
        if session.ping_due:
            session.ping_due = False
            return protocol.PING
        return None

    def _delta(self, before: View, after: View) -> str:
        key = before.version, after.version
        if key not in self._deltas:
            self._deltas[key] = protocol.delta(before, after)
            while len(self._deltas) > KEPT_VIEWS:
                self._deltas.popitem(last=False)
        return self._deltas[key]

    def _remember(self, view: View) -> None:
        self._views[view.version] = view
        while len(self._views) > KEPT_VIEWS:
            self._views.popitem(last=False)

    # -- from the agents ----------------------------------------------------------------------------------------------

    def serve(self, environ: dict[str, Any], start_response: Any, host: Host) -> Iterable[bytes]:
        """Answer a WebSocket request of a host's agent and stay with it until it leaves.

        Raises
        ------
        ClaimError
            If the request comes from another host of the fabric, or the host's agent is connected already.
        """
        peer = environ.get("REMOTE_ADDR", "")
        try:
            self._check_claim(host, peer)
        except ClaimError as error:
            self.refused["claims"] += 1
            LOG.warning("%s from %s is refused: %s", self.tree.name(host), peer, error)
            raise
        carrier = parse_qs(environ.get("QUERY_STRING", "")).get("carrier", [None])[0]
        handler = websocket.WebSocketWSGI(
            lambda socket: self._attend(host, socket, peer, carrier), max_frame_length=protocol.MAX_ANSWER_BYTES
        )
        served: Iterable[bytes] = handler(environ, start_response)
        return served

    def _check_claim(self, host: Host, peer: str) -> None:
        try:
            sender = self.tree.host_by_ip(peer)
        except (TopologyError, ValueError):
            sender = host  # from outside the fabric, as over a management network: it may be any host
        if sender != host:
            raise ClaimError(f"{peer} is {self.tree.name(sender)}: an agent may only ask for its own host")
        holder = self.sessions.get(host)
        if holder is not None and self._answers(holder):
            raise ClaimError(
                f"another agent of {self.tree.ip(host)} is connected, from {holder.peer}: end that one first"
            )

    def _answers(self, session: AgentSession) -> bool:
        """Whether an agent is still there; one that is not loses its place."""
        session.spoke.clear()
        self._ping(session, time.monotonic())
        if session.spoke.wait(CLAIM_SECONDS) and not session.gone:
            return True
        self._drop(session)
        return False

    def _attend(self, host: Host, socket: Any, peer: str, carrier: str | None) -> None:
        socket.socket = Buffered(socket.socket)
        session = AgentSession(host, socket, peer, time.monotonic(), carrier)
        former = self.sessions.get(host)
        if former is not None:
            self._drop(former)  # two came at the same moment
        self.sessions[host] = session
        LOG.info("agent of %s connected from %s (%d in all)", self.tree.name(host), peer, len(self.sessions))
        if carrier not in (None, self.carrier):
            LOG.warning(
                "agent of %s writes paths by carrier %.20s, but the fabric's is %s: start it with --carrier %s",
                self.tree.name(host),
                carrier,
                self.carrier,
                self.carrier,
            )
        self._wake(session)
        try:
            while not session.gone and (text := socket.wait()) is not None:
                self._receive(session, text)
        except (OSError, ValueError):  # gone, or no UTF-8
            pass
        finally:
            self._drop(session)
            LOG.info("agent of %s left (%d remain)", self.tree.name(host), len(self.sessions))

    def _receive(self, session: AgentSession, text: str | bytes) -> None:
        now = time.monotonic()
        session.heard = now
        session.spoke.set()
        view = self._view()
        try:
            if view is None:
                return  # it answers a ping before it could be told anything
            ack = protocol.answer(text, view)
        except ProtocolError as error:
            self._refuse(session, error)
            return
        if ack is None:
            session.sent = None
            self._wake(session)
            return
        session.refuses = ack.refused
        if ack.epoch == view.epoch:
            session.note_acknowledged(ack.version, now)
            self._rollout.reached(session, ack.version)

    def _refuse(self, session: AgentSession, error: ProtocolError) -> None:
        session.refused += 1
        self.refused["messages"] += 1
        name = self.tree.name(session.host)
        if session.refused == 1:
            LOG.warning("agent of %s sent what is refused: %s", name, error)
        if session.refused == MAX_REFUSED:
            LOG.warning("agent of %s has sent %d messages that are refused: cut off", name, MAX_REFUSED)
            self._drop(session)

    def _drop(self, session: AgentSession) -> None:
        session.cut()
        if self.sessions.get(session.host) is session:
            del self.sessions[session.host]
        self._rollout.left(session)

    # -- what is told to the outside ----------------------------------------------------------------------------------

    def behind(self, version: int) -> int:
        """How many connected agents have not acknowledged a version."""
        return sum(session.acknowledged != version for session in self.sessions.values())

    def tell(self, session: AgentSession, version: int) -> dict[str, Any]:
        """What a connected agent has in force, and how far behind the version it is."""
        now, behind = time.monotonic(), session.behind_since()
        return {
            "host": self.tree.name(session.host),
            "address": str(self.tree.ip(session.host)),
            "peer": session.peer,
            "carrier": session.carrier,
            "version": session.acknowledged,
            "lag": version - session.acknowledged,
            "lag_seconds": round(now - behind, 3) if behind is not None else 0.0,
            "acknowledged_ms": session.acknowledged_ms,
            "last_contact_seconds": round(now - session.heard, 3),
            "refused": session.refused,
            "refuses": session.refuses,
        }
