"""The channels of one agent: how one is opened, and the way back to the URL that comes first for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import websockets
from websockets.asyncio.client import ClientConnection, connect

from sopa_ryu.agent.agent_options import AgentError, Options
from sopa_ryu.agent.follower import Follower
from sopa_ryu.channel import protocol

LOG = logging.getLogger("sopa.agent")

CLOSE_SECONDS = 1.0
"""With several URLs: how long the answer to a close is awaited before the next one is asked."""


class Opened(NamedTuple):
    """A channel that is open at another URL, and the first message that came there."""

    url: str
    channel: ClientConnection
    first: str | bytes

    async def messages(self) -> AsyncIterator[str | bytes]:
        """Yield all messages until the channel closes."""
        yield self.first
        async for text in self.channel:
            yield text


class Channels:
    """Opens the channels of an agent.

    Parameters
    ----------
    options : Options
    follower : Follower
        Knows the URLs, and the view in force.

    Attributes
    ----------
    opened : Opened or None
        The channel at a URL that comes before the one in use, which was closed for it.
    """

    def __init__(self, options: Options, follower: Follower) -> None:
        self.opened: Opened | None = None
        self._options, self._follower = options, follower

    def connect(self, url: str) -> connect:
        """Return the opening of a channel."""
        its, follower = self._options, self._follower
        # the library's own pings, every 20 s, are for a controller that has no other
        several = follower.controllers.several
        more: dict[str, Any] = {"ping_interval": None, "close_timeout": CLOSE_SECONDS} if several else {}
        return connect(
            its.channel(follower.address, url),
            additional_headers=its.headers(follower.address),
            ssl=its.tls(url),
            open_timeout=follower.controllers.open_seconds(follower.hosts),
            max_size=protocol.MAX_MESSAGE_BYTES,
            compression=None,
            proxy=None,
            **more,
        )

    async def go_back(self, channel: ClientConnection) -> None:
        """Leave a channel for one at a URL that comes before, once one is open there; returns at once if none comes before."""
        at = self._follower.controllers
        while at.before:
            await asyncio.sleep(at.back_seconds(self._follower.hosts))
            for url in at.before:
                self.opened = await self._open(url)
                if self.opened is not None:
                    await channel.close(protocol.MOVED, "another relay comes before this one")
                    return

    async def _open(self, url: str) -> Opened | None:
        """Return a channel at another URL that is open, and not behind; None if it cannot be had."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                channel = await stack.enter_async_context(self.connect(url))
                async with asyncio.timeout(self._follower.controllers.open_seconds(self._follower.hosts)):
                    first = await channel.recv()
            except (OSError, AgentError, websockets.WebSocketException, TimeoutError) as error:
                LOG.debug("%s: not back at %s: %s", self._follower.address, url, error)
                return None
            if not self._follower.goes_back(first):
                return None
            stack.pop_all()
            return Opened(url, channel, first)
