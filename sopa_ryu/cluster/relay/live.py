"""A relay's feed: one WebSocket to the leader while any page is open, and what comes by it to every page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from websockets.asyncio.client import ClientConnection
from websockets.frames import CloseCode

from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.front.live import PATH, ROUND_SECONDS, PageFeed
from sopa_ryu.runtime import clock

LOG = logging.getLogger("sopa.relay")

MAX_PAGES = 4096
RETRY_SECONDS = 1.0
OPEN_SECONDS = 5.0


class RelayFeed(PageFeed):
    """The feed of all pages of a relay; ``controllers`` returns the URLs of the controllers, the leader's first.

    ``token`` is sent to all of them.
    """

    def __init__(
        self, controllers: Callable[[], list[str]], ca_file: Path | None, token: str | None = None, most: int = MAX_PAGES
    ) -> None:
        super().__init__(most, self._watch)
        self._controllers, self._ca_file, self._token = controllers, ca_file, token
        self._heard = 0.0
        self._wanted = asyncio.Event()
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """Follow another leader."""
        self._moved.set()

    def send_away(self) -> None:
        self.close_all(CloseCode.GOING_AWAY, "this relay ends")

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._wanted.is_set():
            self._heard = clock.now()
            self._wanted.set()
        elif not wanted:
            self._wanted.clear()
            self._moved.set()  # the connection to the leader is needed no longer

    async def run(self) -> None:
        """Follow the leader's feed while any page is open, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.look())
            tasks.create_task(self._close_unfed())
            while True:
                await self._wanted.wait()
                self._moved.clear()
                if not await self._follow_any():
                    await asyncio.sleep(RETRY_SECONDS)

    async def _close_unfed(self) -> None:
        """Close all pages while no controller answers: they say so and try again."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            if self.pages and clock.now() - self._heard > ROUND_SECONDS:
                LOG.warning("no controller's feed answers: %d pages are closed, they try again", len(self.pages))
                self.close_all(CloseCode.TRY_AGAIN_LATER, "no controller of the cluster answers the relay: trying again")

    async def _follow_any(self) -> bool:
        """Follow the first controller that answers; return whether to go on at once: not with one that closes at once."""
        for url in self._controllers():
            loss = await ControllerAddress(url, lambda: self._token, self._ca_file).attend(PATH, self._follow, OPEN_SECONDS)
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
                    self._heard = clock.now()
                    self.show(text)
            return ""
        finally:
            leaving.cancel()

    async def _leave(self, channel: ClientConnection) -> None:
        await self._moved.wait()
        await channel.close()
