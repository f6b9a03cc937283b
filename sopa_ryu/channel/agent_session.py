"""One agent's connection to the push channel, as the controller keeps it."""

from __future__ import annotations

import contextlib
import socket as sockets
from typing import Any

from ryu.lib import hub

from sopa_ryu.channel import protocol
from sopa_ryu.fabric.view import View
from topologies import Host

KEPT_VIEWS = 64
"""Versions whose way to an agent is remembered."""


class Buffered:
    """A socket that is read in large pieces: a short frame then costs one system call, not three."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._buffer = b""

    def recv(self, count: int) -> bytes:
        """Up to ``count`` bytes; none at the end."""
        if not self._buffer:
            self._buffer = self._socket.recv(protocol.MAX_ANSWER_BYTES)
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class AgentSession:
    """One connected agent.

    Attributes
    ----------
    carrier : str or None
        Where it writes the word, as it says; None if it does not say.
    sent : View or None
        What it has been sent last; None if it needs a snapshot.
    acknowledged : int
        The version that it acknowledged last; 0 before the first.
    acknowledged_ms : float or None
        How long after the version was sent that was.
    refused, refuses : int
        Messages of its that were refused here, and messages that it says it has refused.
    """

    def __init__(self, host: Host, socket: Any, peer: str, now: float, carrier: str | None = None) -> None:
        self.host = host
        self.carrier = carrier
        self.peer = peer
        self.sent: View | None = None
        self.acknowledged = 0
        self.acknowledged_ms: float | None = None
        self.heard = self.pinged = now
        self.refused = self.refuses = 0
        self.ping_due = False
        self.writing = False
        self.gone = False
        self.spoke = hub.Event()
        self._socket = socket
        self._sent_at: dict[int, float] = {}

    def send(self, text: str) -> None:
        """Write a message; waits if the agent is slow."""
        self._socket.send(text)

    def note_sent(self, view: View, now: float) -> None:
        """Remember what is about to be sent, and when."""
        self.sent = view
        if len(self._sent_at) < KEPT_VIEWS:  # one that never acknowledges is known to be late already
            self._sent_at[view.version] = now

    def note_acknowledged(self, version: int, now: float) -> None:
        """Take in an acknowledgement."""
        self.acknowledged = version
        if version in self._sent_at:
            self.acknowledged_ms = round(1000 * (now - self._sent_at[version]), 3)
        for earlier in [sent for sent in self._sent_at if sent <= version]:
            del self._sent_at[earlier]

    def behind_since(self) -> float | None:
        """When the oldest version was sent that it has not acknowledged; None if there is none."""
        return min(self._sent_at.values(), default=None)

    def cut(self) -> None:
        """Break the connection, also one that is stuck; the agent sees it and connects again."""
        self.gone = True
        with contextlib.suppress(OSError):
            self._socket.socket.shutdown(sockets.SHUT_RDWR)
