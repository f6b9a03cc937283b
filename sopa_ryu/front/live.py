"""The live page's feed: one WebSocket for each page, and the latest message to every page that has read the one before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from websockets.frames import CloseCode

from sopa_ryu.channel.frames import Pace, text_frame
from sopa_ryu.front.websocket import WebSocket
from sopa_ryu.runtime import clock

LOG = logging.getLogger("sopa.live")

PATH = "/sopa/v1/live"
PACE = Pace(burst=64, rate=8.0)
"""A page sends nothing but a close, and a proxy before it pings."""
MAX_PAGE_BYTES = 1024
STUCK_SECONDS = 30.0
ROUND_SECONDS = 5.0
"""How often pages that do not read are looked for."""


class _Page:
    """An open page.

    Attributes:
        sent: The round whose message it got last.
        since: When that was written, if the page has not read it.
        gone: Gives its place among connections without a token back.
    """

    __slots__ = ("gone", "peer", "sent", "since")

    def __init__(self, peer: str, gone: Callable[[], None]) -> None:
        self.peer = peer
        self.gone = gone
        self.sent = 0
        self.since: float | None = None


class PageFeed:
    """The feed of all pages.

    A page that reads slowly skips messages: it gets the latest one when it has read the one before.

    Args:
        most: The maximum number of open pages.
        watched: Called when a page opens and when the last one closes, with whether any is open.
    """

    def __init__(self, most: int, watched: Callable[[bool], None]) -> None:
        self._most = most
        self._watched = watched
        self.pages: set[WebSocket] = set()
        self._round = 0
        self._text = ""

    def __len__(self) -> int:
        """Return the number of open pages."""
        return len(self.pages)

    # -- pages --------------------------------------------------------------------------------------------------------

    def attend(self, transport: Any, early: bytes, peer: str, gone: Callable[[], None]) -> None:
        """Serve a page whose request was accepted; ``gone`` is called at its end."""
        socket = WebSocket(transport, self, PACE, MAX_PAGE_BYTES)
        socket.session = _Page(peer, gone)
        transport.set_protocol(socket)
        if len(self.pages) >= self._most:
            # a page's script cannot read the body of a rejected WebSocket request, but the reason of a close
            LOG.warning("page from %s rejected: %d pages are open already", peer, self._most)
            socket.close(CloseCode.TRY_AGAIN_LATER, f"{self._most} pages are open already: close one")
            return
        if not self.pages:
            self._text = ""  # of a time when nobody looked
        self.pages.add(socket)
        LOG.info("page opened from %s (%d open)", peer, len(self.pages))
        self._watched(True)
        socket.begin(early)
        self.writable(socket)

    def received(self, socket: WebSocket, message: str | bytes) -> None:
        """Close a page that sends."""
        socket.close(CloseCode.POLICY_VIOLATION, "a page sends no messages")

    def writable(self, socket: WebSocket) -> None:
        """Send a page the latest message, unless it has it."""
        page: _Page = socket.session
        page.since = None
        if self._text and page.sent != self._round:
            page.sent = self._round
            socket.send(text_frame(self._text))
            if socket.is_full:
                page.since = clock.now()

    def ended(self, socket: WebSocket) -> None:
        """Forget a page that is closed."""
        socket.session.gone()
        if socket in self.pages:
            self.pages.discard(socket)
            LOG.info("page from %s closed (%d open)", socket.session.peer, len(self.pages))
            if not self.pages:
                self._watched(False)

    def close_all(self, code: int, reason: str) -> None:
        """Close all pages, which try again."""
        for socket in list(self.pages):
            socket.close(code, reason)

    def show(self, text: str) -> None:
        """Send a message to every page that reads."""
        self._text = text
        self._round += 1
        for socket in list(self.pages):
            if not socket.is_full:
                self.writable(socket)

    async def look(self) -> NoReturn:
        """Cut pages that do not read, until cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            now = clock.now()
            for socket in list(self.pages):
                since = socket.session.since
                if since is not None and now - since > STUCK_SECONDS:
                    LOG.warning("page from %s has not read for %.0f s: connection closed", socket.session.peer, STUCK_SECONDS)
                    socket.cut()
