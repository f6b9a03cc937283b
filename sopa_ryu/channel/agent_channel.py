"""The push channels of agents and arbiter: for each a green thread that reads and, while something is due, one that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import eventlet
from eventlet.event import Event

from sopa_ryu.channel import mcs, protocol
from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.arbiter_notifier import ARBITER, ArbiterNotifier, asked_term
from sopa_ryu.channel.claims import CLAIM_SECONDS
from sopa_ryu.channel.effects import Accept, Completed, Cut, Effect, Hand, Reject, Wake
from sopa_ryu.channel.frames import AGENT_PACE
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.channel.trace_desk import Asked, Trace
from sopa_ryu.channel.websocket import Handshake, WebSocket, served
from sopa_ryu.runtime import clock
from topologies import Host

LOOK_SECONDS = 1.0
"""How often the clock is looked at, at least: it takes a longer gap for a pause of the process."""


class AgentChannel:
    """The connections of all agents, on eventlet: takes observations to the notifier and carries out its effects.

    Args:
        completed: Called with each version that every agent has acknowledged.

    Attributes:
        hand: Has a relay hand a message to the agent of a host.
    """

    def __init__(self, notifier: Notifier, completed: Callable[[int], None]) -> None:
        self.notifier = notifier
        self._completed = completed
        self.hand: Callable[[Relayed, Host, str], None] = lambda relay, host, text: None

    # -- to the agents ------------------------------------------------------------------------------------------------

    def broadcast(self) -> int:
        """Bring every agent to the version that was just made; return how many have to acknowledge it."""
        count, effects = self.notifier.broadcast()
        self._carry_out(effects)
        return count

    def assign(self, host: Host, number: int, text: str) -> None:
        """Give a host's agent another list of streams to probe."""
        self._carry_out(self.notifier.assign(host, number, text))

    def forged(self, host: Host, count: int) -> None:
        """Count records of a host's reports that are forged."""
        self._carry_out(self.notifier.forged(host, count))

    def depose(self, deposed: bool, leader: str | None = None) -> None:
        """Send all agents away while another controller is the switches' master, or accept them again (`Notifier.depose`)."""
        self._carry_out(self.notifier.depose(deposed, leader))

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked, version: int) -> Trace:
        """Have the agent of the first host trace paths, or a flow, to the second; raises `TraceError` if it cannot."""
        trace, effects = self.notifier.begin_trace(ends, asked, version, clock.now())
        self._carry_out(effects)
        return trace

    def traced(self, host: Host, text: str) -> None:
        """Take what an agent that a relay has answers to a trace; raises `ProtocolError`."""
        self.notifier.tracing.relayed(host, text, clock.now())

    def cancel_trace(self, trace: Trace) -> None:
        """End a trace, unless it has ended."""
        self._carry_out(self.notifier.cancel_trace(trace, clock.now()))

    def watch(self) -> None:
        """Ping silent agents and cut off those that stay silent, until killed."""
        while True:
            self._carry_out(self.notifier.tick(clock.now()))
            eventlet.sleep(max(0.0, min(LOOK_SECONDS, self.notifier.next_tick - clock.now())))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake(session):
                    eventlet.spawn_n(self._write, session)
                case Cut(session):
                    session.connection.cut()  # this also wakes a writer that waits
                case Accept(claimant):
                    claimant.send()
                case Reject(claimant, error):
                    claimant.send_exception(error)
                case Completed(version):
                    self._completed(version)
                case Hand(relay, host, text):
                    self.hand(relay, host, text)

    def _write(self, session: AgentSession) -> None:
        """Write until nothing is due; waits while the agent is slow."""
        try:
            while (text := self.notifier.due(session, clock.now())) is not None:
                session.connection.send(text)
        except OSError:
            self._carry_out(self.notifier.closed(session))

    # -- from the agents ----------------------------------------------------------------------------------------------

    def serve(self, environ: dict[str, Any], start_response: Any, host: Host) -> Iterable[bytes]:
        """Answer a WebSocket request of a host's agent and follow the agent until it leaves.

        Raises:
            HandshakeError: If it is no WebSocket request of version 13.
            ClaimError: If the request comes from another host of the fabric, or the host's agent is connected and answers.
        """
        peer = environ.get("REMOTE_ADDR", "")
        self._claim(host, peer)
        handshake = Handshake(environ, protocol.MAX_ANSWER_BYTES, AGENT_PACE)
        self._read(host, peer, parse_qs(environ.get("QUERY_STRING", "")), handshake.accept())
        return served()

    def _claim(self, host: Host, peer: str) -> None:
        decision = Event()
        self._carry_out(self.notifier.claim(host, peer, decision, clock.now()))
        while not decision.ready():
            decision.wait(CLAIM_SECONDS)
            self._carry_out(self.notifier.tick(clock.now()))
        decision.wait()

    def _read(self, host: Host, peer: str, query: dict[str, list[str]], socket: WebSocket) -> None:
        session, effects = self._enter(host, peer, query, socket)
        self._carry_out(effects)
        try:
            while (text := socket.receive()) is not None:
                self._carry_out(self.notifier.received(session, text, clock.now()))
                if session.phase is Phase.CLOSED:
                    break
        finally:
            self._carry_out(self.notifier.closed(session, left=socket.left))

    def _enter(self, host: Host, peer: str, query: dict[str, list[str]], socket: WebSocket) -> tuple[AgentSession, list[Effect]]:
        carrier = query.get("carrier", [None])[0]
        policy, variant = mcs.requested(query)
        probing = query.get(protocol.PROBES) == ["1"]
        return self.notifier.connected(host, peer, carrier, socket, clock.now(), policy, variant, probing)


class ArbiterChannel(AgentChannel):
    """The connection of the arbiter."""

    def __init__(self, notifier: ArbiterNotifier) -> None:
        super().__init__(notifier, lambda version: None)
        self._arbiters = notifier

    def attend(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a WebSocket request of an arbiter and follow it until it leaves; raises as `serve` does."""
        return self.serve(environ, start_response, ARBITER)

    def _enter(self, host: Host, peer: str, query: dict[str, list[str]], socket: WebSocket) -> tuple[AgentSession, list[Effect]]:
        self._arbiters.knows(asked_term(query))
        return self._arbiters.enter(peer, socket, clock.now())
