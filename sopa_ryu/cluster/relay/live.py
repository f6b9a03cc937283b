"""The page's feed on a relay: one WebSocket to the leader while any page is open, and its latest message to every page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.frames import CloseCode

from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.channel.frames import Pace, text_frame
from sopa_ryu.cluster.relay.websocket import WebSocket
from sopa_ryu.runtime import clock

LOG = logging.getLogger("sopa.relay")

PATH = "/sopa/v1/live"
MAX_PAGES = 4096
PACE = Pace(burst=64, rate=8.0)
"""A page sends nothing but a close, and a proxy before it pings."""
MAX_PAGE_BYTES = 1024
STUCK_SECONDS = 30.0
ROUND_SECONDS = 5.0
"""How often pages that do not read are looked for; after so long without the leader all are closed: they say so and try again."""
RETRY_SECONDS = 1.0
OPEN_SECONDS = 5.0


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


class RelayFeed:
    """The feed of all pages.

    A page that reads slowly skips messages: it gets the latest one when it has read the one before.

    Args:
        controllers: Return the URLs of the controllers, the leader's first.
        ca_file: The authorities that may have signed the controllers' certificates.
        most: The maximum number of open pages.
    """

    def __init__(self, controllers: Callable[[], list[str]], ca_file: Path | None, most: int = MAX_PAGES) -> None:
        self._controllers, self._ca_file = controllers, ca_file
        self._most = most
        self._pages: set[WebSocket] = set()
        self._round = 0
        self._text = ""
        self._heard = 0.0
        self._wanted = asyncio.Event()
        self._moved = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of open pages."""
        return len(self._pages)

    def moved(self) -> None:
        """Follow another leader."""
        self._moved.set()

    # -- pages --------------------------------------------------------------------------------------------------------

    def attend(self, transport: Any, early: bytes, peer: str, gone: Callable[[], None]) -> None:
        """Serve a page whose request was accepted; ``gone`` is called at its end."""
        socket = WebSocket(transport, self, PACE, MAX_PAGE_BYTES)
        socket.session = _Page(peer, gone)
        transport.set_protocol(socket)
        if len(self._pages) >= self._most:
            # a page's script cannot read the body of a rejected WebSocket request, but the reason of a close
            LOG.warning("page from %s rejected: %d pages are open already", peer, self._most)
            socket.close(CloseCode.TRY_AGAIN_LATER, f"{self._most} pages are open already: close one")
            return
        if not self._pages:
            self._heard = clock.now()
            self._text = ""  # of a time when nobody looked
        self._pages.add(socket)
        LOG.info("page opened from %s (%d open)", peer, len(self._pages))
        self._wanted.set()
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
        if socket in self._pages:
            self._pages.discard(socket)
            LOG.info("page from %s closed (%d open)", socket.session.peer, len(self._pages))
            if not self._pages:
                self._wanted.clear()
                self._moved.set()  # the connection to the leader is needed no longer

    def send_away(self) -> None:
        """Close all pages."""
        self._close_all(CloseCode.GOING_AWAY, "this relay ends")

    def _close_all(self, code: int, reason: str) -> None:
        for socket in list(self._pages):
            socket.close(code, reason)

    # -- the leader ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the leader's feed while any page is open, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look())
            while True:
                await self._wanted.wait()
                self._moved.clear()
                if not await self._follow_any():
                    await asyncio.sleep(RETRY_SECONDS)

    async def _look(self) -> None:
        """Cut pages that do not read; close all while no controller answers."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            now = clock.now()
            for socket in list(self._pages):
                since = socket.session.since
                if since is not None and now - since > STUCK_SECONDS:
                    LOG.warning("page from %s has not read for %.0f s: connection closed", socket.session.peer, STUCK_SECONDS)
                    socket.cut()
            if self._pages and now - self._heard > ROUND_SECONDS:
                LOG.warning("no controller's feed answers: %d pages are closed, they try again", len(self._pages))
                self._close_all(CloseCode.TRY_AGAIN_LATER, "no controller of the cluster answers the relay: trying again")

    async def _follow_any(self) -> bool:
        """Follow the first controller that answers; return whether to go on at once: not with one that closes at once."""
        for url in self._controllers():
            loss = await ControllerAddress(url, lambda: None, self._ca_file).attend(PATH, self._follow, OPEN_SECONDS)
            if loss.seconds is not None:
                return self._moved.is_set() or loss.seconds >= RETRY_SECONDS
            LOG.debug("the feed of %s is not there: %s", url, loss.problem)
        return False

    async def _follow(self, channel: ClientConnection) -> str:
        """Pass messages on until the feed ends, or another one is wanted."""
        leaving = asyncio.create_task(self._leave(channel))
        try:
            async for text in channel:
                if isinstance(text, str):
                    self._take(text)
            return ""
        finally:
            leaving.cancel()

    async def _leave(self, channel: ClientConnection) -> None:
        await self._moved.wait()
        await channel.close()

    def _take(self, text: str) -> None:
        self._heard = clock.now()
        self._text = text
        self._round += 1
        for socket in list(self._pages):
            if not socket.is_full:
                self.writable(socket)
