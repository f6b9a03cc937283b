"""The live page's feed: one WebSocket per page; the whole state at each change, and every two seconds for the traffic."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from typing import Any

import eventlet
from ryu.lib import hub

from sopa_ryu.channel.frames import Pace
from sopa_ryu.channel.websocket import Handshake, WebSocket, served
from sopa_ryu.runtime import clock
from sopa_ryu.web.picture import Picture

LOG = logging.getLogger("sopa.live")

PATH = "/sopa/v1/live"
ROUND_SECONDS = 2.0
SPACING_SECONDS = 0.05
SPACING_TIMES = 10
"""Pause after a round in multiples of its duration: the feed uses at most a tenth of the controller's time."""
STUCK_SECONDS = 30.0
MAX_CLIENTS = 256
MAX_MESSAGE_BYTES = 1024
PACE = Pace(burst=64, rate=8.0)
"""A page sends nothing but a close, and a proxy before it pings."""
TRY_AGAIN_LATER, POLICY_VIOLATION = 1013, 1008  # RFC 6455's registry of close codes


class Client:
    """One open page.

    Attributes:
        sent: The last round whose message was sent to it.
        writing_since: Start of the message that is being sent (`clock.now`); None while there is nothing to send.
    """

    def __init__(self, socket: WebSocket, peer: str) -> None:
        self.peer = peer
        self.sent = 0
        self.writing_since: float | None = None
        self._socket = socket

    def send(self, text: str) -> None:
        """Send a message; block while the client is slow."""
        self._socket.send(text)

    def cut(self) -> None:
        """Close the connection, even if a write blocks."""
        self._socket.cut()


class Live:
    """The feed: sends the state of the fabric to every open page.

    Each round makes one text for all pages. A slow page skips rounds: it gets the latest text when it has read the one before, so
    that nothing is queued and no other page waits for it. Without a page no text is made.

    Args:
        picture: Makes the message.
        most: The maximum number of open pages.
    """

    def __init__(self, picture: Picture, most: int = MAX_CLIENTS) -> None:
        self._picture = picture
        self._most = most
        self._clients: set[Client] = set()
        self._round = 0
        self._text = ""
        self._wanted = hub.Event()

    def __len__(self) -> int:
        """Return the number of open pages."""
        return len(self._clients)

    def changed(self) -> None:
        """Schedule a round soon, because the state may have changed."""
        self._wanted.set()

    def rounds(self) -> None:
        """Run until killed: send a message to every page at each change, and every two seconds."""
        while True:
            # without a page, the first one ends the wait
            self._wanted.wait(ROUND_SECONDS if self._clients else None)
            self._wanted.clear()
            if not self._clients:
                continue
            began = time.monotonic()
            self._text = json.dumps(self._picture.message(), separators=(",", ":"))
            self._round += 1
            for client in list(self._clients):
                self._wake(client)
            self._cut_stuck()
            hub.sleep(max(SPACING_SECONDS, SPACING_TIMES * (time.monotonic() - began)))

    def serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a page's WebSocket request and serve it until it closes; `HandshakeError` if it is none of version 13."""
        handshake = Handshake(environ, MAX_MESSAGE_BYTES, PACE)
        self._attend(handshake.accept(), environ.get("REMOTE_ADDR", ""))
        return served()

    def _attend(self, socket: WebSocket, peer: str) -> None:
        if len(self._clients) >= self._most:
            # a page's script cannot read the body of a rejected WebSocket request, but the reason of a close
            LOG.warning("page from %s rejected: %d pages are open already", peer, self._most)
            socket.close(TRY_AGAIN_LATER, f"{self._most} pages are open already: close one")
            return
        client = Client(socket, peer)
        self._clients.add(client)
        LOG.info("page opened from %s (%d open)", peer, len(self._clients))
        self._wanted.set()
        try:
            if socket.receive() is not None:
                socket.close(POLICY_VIOLATION, "a page sends no messages")
        finally:
            self._clients.discard(client)
            client.cut()
            LOG.info("page from %s closed (%d open)", peer, len(self._clients))

    def _wake(self, client: Client) -> None:
        if client.writing_since is None:
            client.writing_since = clock.now()
            eventlet.spawn_n(self._write, client)

    def _write(self, client: Client) -> None:
        """Send until the client has the latest message."""
        try:
            while client in self._clients and client.sent != self._round:
                client.sent, client.writing_since = self._round, clock.now()
                client.send(self._text)
        except OSError:
            client.cut()
        finally:
            client.writing_since = None

    def _cut_stuck(self) -> None:
        latest = clock.now() - STUCK_SECONDS
        for client in list(self._clients):
            if client.writing_since is not None and client.writing_since < latest:
                LOG.warning("page from %s has not read for %.0f s: connection closed", client.peer, STUCK_SECONDS)
                client.cut()
