"""The push channel: one WebSocket an agent, a snapshot on connecting and at every new version, acknowledged by version."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

from eventlet import websocket
from ryu.lib import hub

from topologies import Host

LOG = logging.getLogger("sopa.notify")

# An agent that has not taken this many messages is cut off: it reconnects and gets one snapshot instead of a backlog.
BACKLOG = 64


class AgentSession:
    """One connected agent."""

    def __init__(self, host: Host, socket: Any) -> None:
        self.host = host
        self.acknowledged = 0
        self.queue: hub.Queue = hub.Queue(BACKLOG)
        self._socket = socket

    def cut(self) -> None:
        """Close the socket; the agent sees it and reconnects."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def write(self) -> None:
        """Send what is queued until the socket breaks or None is queued."""
        try:
            while (text := self.queue.get()) is not None:
                self._socket.send(text)
        except OSError:
            pass


class Notifier:
    """Tells every connected agent what the fabric's state is.

    Parameters
    ----------
    snapshot : callable
        Gives the message that an agent gets on connecting.
    name : callable
        Gives a host's name, for the log.
    """

    def __init__(self, snapshot: Callable[[], dict[str, Any]], name: Callable[[Host], str]) -> None:
        self._snapshot = snapshot
        self._name = name
        self.sessions: set[AgentSession] = set()

    def broadcast(self) -> None:
        """Send the present snapshot to every agent, encoded once; never waits for a slow one."""
        text = json.dumps(self._snapshot())
        for session in list(self.sessions):
            try:
                session.queue.put(text, block=False)
            except hub.queue.Full:
                LOG.warning("agent of %s takes no messages; it is cut off and may reconnect", self._name(session.host))
                self._cut(session)

    def agents(self) -> list[dict[str, Any]]:
        """The connected agents in the order of their hosts, each with the version that it acknowledged last (0: none yet)."""
        sessions = sorted(self.sessions, key=lambda session: session.host)
        return [{"host": self._name(session.host), "version": session.acknowledged} for session in sessions]

    def serve(self, environ: dict[str, Any], start_response: Any, host: Host) -> Any:
        """Answer a WebSocket request of a host's agent and stay with it until it leaves."""
        handler = websocket.WebSocketWSGI(lambda socket: self._attend(host, socket))
        return handler(environ, start_response)

    def _attend(self, host: Host, socket: Any) -> None:
        session = AgentSession(host, socket)
        session.queue.put(json.dumps(self._snapshot()))
        self.sessions.add(session)
        writer = hub.spawn(session.write)
        LOG.info("agent of %s connected (%d in all)", self._name(host), len(self.sessions))
        try:
            while (text := socket.wait()) is not None:
                self._receive(session, text)
        except OSError:
            pass
        finally:
            self.sessions.discard(session)
            hub.kill(writer)
            LOG.info("agent of %s left (%d remain)", self._name(host), len(self.sessions))

    def _receive(self, session: AgentSession, text: str | bytes) -> None:
        try:
            message = json.loads(text)
            kind = message["type"]
            if kind == "ack":
                session.acknowledged = int(message["version"])
                return
            if kind == "resync":
                session.queue.put(json.dumps(self._snapshot()), block=False)
                return
            problem = f"unknown type {kind!r}"
        except hub.queue.Full:
            return
        except (ValueError, TypeError, KeyError) as error:
            problem = f"{type(error).__name__}: {error}"
        LOG.warning("agent of %s sent what is no message: %s", self._name(session.host), problem)

    def _cut(self, session: AgentSession) -> None:
        self.sessions.discard(session)
        hub.spawn(session.cut)
