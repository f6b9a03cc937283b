"""The arbiter's end of the controller's channel: the fabric and the term, through every loss of the connection."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NoReturn

import websockets
from websockets.asyncio.client import ClientConnection, connect

from sopa_ryu.channel import arbiter as messages
from sopa_ryu.channel import protocol
from sopa_ryu.channel.client import ClientOptionError, ControllerAddress, refusal
from sopa_ryu.channel.protocol import GapError, ProtocolError
from sopa_ryu.fabric.view import View

LOG = logging.getLogger("sopa.arbiter")

OPEN_SECONDS = 10.0
REPORT_SECONDS = 5.0
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 5.0
MAX_REPORTED = 5  # problems of one absence of the controller


class ControllerLink:
    """The connection to the controller.

    Parameters
    ----------
    address : ControllerAddress
    followed : callable
        Called with each version of the fabric and the term.
    superseded : callable
        Called when the controller has accepted another arbiter.
    report : callable
        Returns what the controller shows of this arbiter.
    seed : int
        For the jitter of retries.

    Attributes
    ----------
    connected : bool
        True while the channel is open.
    term : int
        The last that the controller has given; 0 before the first.
    view : View or None
        What is in force.
    refused : int
        Messages of the controller that were rejected.
    """

    def __init__(
        self,
        address: ControllerAddress,
        followed: Callable[[View, int], None],
        superseded: Callable[[], None],
        report: Callable[[], dict[str, Any]],
        seed: int = 0,
    ) -> None:
        self.address = address
        self.connected = False
        self.term = 0
        self.view: View | None = None
        self.refused = 0
        self._followed, self._superseded, self._report = followed, superseded, report
        self._retry_seconds = MIN_RETRY_SECONDS
        self._reported: set[str] = set()
        self._jitter = random.Random(seed)

    async def run(self) -> NoReturn:
        """Follow the controller until cancelled."""
        while True:
            problem = await self._follow_once()
            self.connected = False
            await asyncio.sleep(self._note(problem))

    def _note(self, problem: str) -> float:
        """Log once why there is no connection; return the seconds until the next attempt."""
        if problem not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(problem)
            LOG.warning(
                "no controller at %s: %s; %s; retrying every %g s or sooner; check the controller and the network to it",
                self.address.url,
                problem,
                "slots are granted by what it sent last" if self.term else "no slot is granted until it answers",
                MAX_RETRY_SECONDS,
            )
        delay = self._retry_seconds
        self._retry_seconds = min(2 * delay, MAX_RETRY_SECONDS)
        return delay * self._jitter.uniform(0.5, 1.0)

    async def _follow_once(self) -> str:
        """Follow the controller over one connection; return why it ended, or could not be opened."""
        try:
            async with connect(
                self.address.channel(messages.CHANNEL, messages.query(self.term)),
                additional_headers=self.address.headers(),
                ssl=self.address.tls(),
                open_timeout=OPEN_SECONDS,
                max_size=protocol.MAX_MESSAGE_BYTES,
                compression=None,
                proxy=None,
            ) as channel:
                self._open()
                await self._follow(channel)
            return "the controller closed the connection"
        except websockets.InvalidStatus as error:
            if error.response.status_code == HTTPStatus.CONFLICT and self.term:
                LOG.error("another arbiter has this one's place: no slot is granted any more; end one of the two")
                self.term = 0
                self._superseded()
            return refusal(error)
        except (OSError, ClientOptionError, websockets.WebSocketException, TimeoutError) as error:
            return str(error) or type(error).__name__

    def _open(self) -> None:
        LOG.info("connected to controller %s", self.address.url)
        self.connected = True
        self.view = None  # a snapshot comes first, with the term
        self._reported.clear()
        self._retry_seconds = MIN_RETRY_SECONDS

    async def _follow(self, channel: ClientConnection) -> None:
        reporting = asyncio.create_task(self._report_often(channel))
        try:
            async for text in channel:
                await channel.send(self._receive(text))
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    def _receive(self, text: str | bytes) -> str:
        """Put a message in force; return the answer."""
        try:
            view = protocol.receive(text, self.view, None)
            term = messages.term_of(text)
        except GapError as error:
            LOG.info("asking the controller for a snapshot: %s", error)
            return protocol.RESYNC
        except ProtocolError as error:
            self.refused += 1
            LOG.error("message of the controller refused (%d so far): %s; the fabric stays as it was; check the versions of "
                      "controller and arbiter", self.refused, error)  # fmt: skip
            return self._ack()
        if term is not None:
            self.term = term
        if view is not None and (view is not self.view or term is not None):
            self.view = view
            self._followed(view, self.term)
        return self._ack()

    def _ack(self) -> str:
        return messages.ack(self.view, self.refused, self._report())

    async def _report_often(self, channel: ClientConnection) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self.view is not None:
                await channel.send(self._ack())
