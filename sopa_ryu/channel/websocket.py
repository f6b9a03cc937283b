"""The push channel's WebSockets: one an agent, with a green thread that reads and, while something is due, one that writes."""

from __future__ import annotations

import contextlib
import socket as sockets
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import eventlet
from eventlet.event import Event
from eventlet.websocket import WebSocketWSGI

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.notifier import CLAIM_SECONDS, Accept, Completed, Cut, Effect, Notifier, Reject, Wake
from topologies import Host

MESSAGES_AT_ONCE = 64
"""Data that has arrived is read without a switch of green threads: after so many messages of an agent, others have their turn."""


class AgentChannel:
    """The connections of all agents, on eventlet: takes observations to the notifier and carries out its effects.

    Parameters
    ----------
    notifier : Notifier
    completed : callable
        Called with each version that every agent has acknowledged.
    """

    def __init__(self, notifier: Notifier, completed: Callable[[int], None]) -> None:
        self.notifier = notifier
        self._completed = completed

    # -- to the agents ------------------------------------------------------------------------------------------------

    def broadcast(self) -> int:
        """Bring every agent to the version that was just made; return how many have to acknowledge it."""
        count, effects = self.notifier.broadcast()
        self._carry_out(effects)
        return count

    def depose(self, deposed: bool) -> None:
        """Send all agents away while another controller is the switches' master, or accept them again."""
        self._carry_out(self.notifier.depose(deposed))

    def watch(self) -> None:
        """Ping silent agents and cut off those that stay silent, until killed."""
        while True:
            self._carry_out(self.notifier.tick(time.monotonic()))
            eventlet.sleep(max(0.0, self.notifier.next_tick - time.monotonic()))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake(session):
                    eventlet.spawn_n(self._write, session)
                case Cut(session):
                    with contextlib.suppress(OSError):  # this also wakes a writer that waits
                        session.connection.socket.shutdown(sockets.SHUT_RDWR)
                case Accept(claimant):
                    claimant.send()
                case Reject(claimant, error):
                    claimant.send_exception(error)
                case Completed(version):
                    self._completed(version)

    def _write(self, session: AgentSession) -> None:
        """Write until nothing is due; waits while the agent is slow."""
        try:
            while (text := self.notifier.due(session, time.monotonic())) is not None:
                session.connection.send(text)
        except OSError:
            self._carry_out(self.notifier.closed(session))

    # -- from the agents ----------------------------------------------------------------------------------------------

    def serve(self, environ: dict[str, Any], start_response: Any, host: Host) -> Iterable[bytes]:
        """Answer a WebSocket request of a host's agent and follow the agent until it leaves.

        Raises
        ------
        ClaimError
            If the request comes from another host of the fabric, or the host's agent is connected and answers.
        """
        peer = environ.get("REMOTE_ADDR", "")
        self._claim(host, peer)
        carrier = parse_qs(environ.get("QUERY_STRING", "")).get("carrier", [None])[0]
        handler = WebSocketWSGI(
            lambda socket: self._read(host, peer, carrier, socket), max_frame_length=protocol.MAX_ANSWER_BYTES
        )
        served: Iterable[bytes] = handler(environ, start_response)
        return served

    def _claim(self, host: Host, peer: str) -> None:
        decision = Event()
        self._carry_out(self.notifier.claim(host, peer, decision, time.monotonic()))
        while not decision.ready():
            decision.wait(CLAIM_SECONDS)
            self._carry_out(self.notifier.tick(time.monotonic()))
        decision.wait()

    def _read(self, host: Host, peer: str, carrier: str | None, socket: Any) -> None:
        socket.socket = Buffered(socket.socket)
        session, effects = self.notifier.connected(host, peer, carrier, socket, time.monotonic())
        self._carry_out(effects)
        try:
            for count, text in enumerate(iter(socket.wait, None), 1):
                self._carry_out(self.notifier.received(session, text, time.monotonic()))
                if session.phase is Phase.CLOSED:
                    break
                if not count % MESSAGES_AT_ONCE:
                    eventlet.sleep()
        except (OSError, ValueError):  # the connection is gone, or the text is no UTF-8
            pass
        finally:
            self._carry_out(self.notifier.closed(session))


class Buffered:
    """A socket that is read in large pieces: a short frame then costs one system call instead of three."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._buffer = b""

    def recv(self, count: int) -> bytes:
        """Return up to ``count`` bytes; none at the end."""
        if not self._buffer:
            self._buffer = self._socket.recv(protocol.MAX_ANSWER_BYTES)
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)
