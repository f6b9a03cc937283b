"""The arbiter's end of the controller's channel: the fabric and the term, through every loss of the connection."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import urlencode

import websockets
from websockets.asyncio.client import ClientConnection, connect

from sopa_ryu.channel import protocol
from sopa_ryu.channel.addresses import MAX_RETRY_SECONDS, Addresses
from sopa_ryu.channel.client import ClientOptionError, ControllerAddress, refusal
from sopa_ryu.channel.liveness import watched
from sopa_ryu.channel.messages import ArbiterReport, GapError, LowerTermError, ProtocolError, Snapshot, from_controller
from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.fabric.view import View

LOG = logging.getLogger("sopa.arbiter")

CHANNEL = "/sopa/v1/arbiter"

REPORT_SECONDS = 5.0
CLOSE_SECONDS = 1.0
"""With several URLs: how long the answer to a close is awaited before the next one is asked."""
MAX_REPORTED = 5  # problems of one absence of the controller


class ControllerLink:
    """The connection to the controller.

    Args:
        controllers: The controller; of a cluster, its controllers, of which the leader takes an arbiter.
        followed: Called with each version of the fabric and the term.
        superseded: Called when the controller has accepted another arbiter.
        report: Returns what the controller shows of this arbiter.
        seed: For the jitter of retries.

    Attributes:
        urls: Which controller is in use, or asked next.
        connected: True while the channel is open.
        term: The last that the controller has given; 0 before the first.
        view: What is in force.
        refused: Messages of the controller that were rejected.
    """

    def __init__(
        self,
        controllers: Sequence[ControllerAddress],
        followed: Callable[[View, int], None],
        superseded: Callable[[], None],
        report: Callable[[], ArbiterReport],
        seed: int = 0,
    ) -> None:
        self._controllers = {each.url: each for each in controllers}
        self.urls = Addresses(list(self._controllers), "arbiter", random.Random(seed))
        self.connected = False
        self.term = 0
        self.view: View | None = None
        self.refused = 0
        self._followed, self._superseded, self._report = followed, superseded, report
        self._reported: set[tuple[str, str]] = set()
        self._latest: View | None = None
        self._opened_at = 0.0
        self._silent = False

    @property
    def address(self) -> ControllerAddress:
        """The controller that is in use, or asked next."""
        return self._controllers[self.urls.url]

    async def run(self) -> NoReturn:
        """Follow the controller until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._silent = False
            problem = await self._follow_once()
            served = self.connected and self.urls.has_served(loop.time() - self._opened_at)
            self.connected = False
            await asyncio.sleep(self._note(problem, served))

    def _note(self, problem: str, served: bool = False) -> float:
        """Log once why there is no connection; return the seconds until the next attempt."""
        url = self.urls.url
        if served:
            self._reported.clear()
        delay = self.urls.next(served, hosts=1, silent=self._silent)
        if (url, problem) not in self._reported and len(self._reported) < MAX_REPORTED * len(self.urls.urls):
            self._reported.add((url, problem))
            LOG.warning(
                "no controller at %s: %s; %s; %s; check the controller and the network to it",
                url,
                problem,
                "slots are granted by what it sent last" if self.term else "no slot is granted until it answers",
                f"asking {self.urls.url} next"
                if self.urls.several
                else f"retrying every {MAX_RETRY_SECONDS:g} s or sooner",
            )
        return delay

    async def _follow_once(self) -> str:
        """Follow the controller over one connection; return why it ended, or could not be opened."""
        at = self.address
        # the library's own pings, every 20 s, are for a controller that has no other
        more: dict[str, Any] = {"ping_interval": None, "close_timeout": CLOSE_SECONDS} if self.urls.several else {}
        try:
            async with connect(
                at.channel(CHANNEL, urlencode({"term": self.term}) if self.term else ""),
                additional_headers=at.headers(),
                ssl=at.tls(),
                open_timeout=self.urls.open_seconds(hosts=1),
                max_size=protocol.MAX_MESSAGE_BYTES,
                compression=None,
                proxy=None,
                **more,
            ) as channel:
                self._open()
                async with watched(channel, lambda: 1) if self.urls.several else nullcontext():
                    return await self._follow(channel) or "the controller closed the connection"
        except websockets.InvalidStatus as error:
            stands_by = LEADER_HEADER in error.response.headers
            if error.response.status_code == HTTPStatus.CONFLICT and self.term and not stands_by:
                LOG.error("another arbiter has this one's place: no slot is granted any more; end one of the two")
                self.term = 0
                self._superseded()
            return refusal(error)
        except (OSError, ClientOptionError, websockets.WebSocketException, TimeoutError) as error:
            self._silent = isinstance(error, TimeoutError)
            return str(error) or type(error).__name__

    def _open(self) -> None:
        LOG.info("connected to controller %s: slots are granted once it has a version of the fabric", self.address.url)
        self.connected = True
        self._opened_at = asyncio.get_running_loop().time()
        self.view = None  # a snapshot comes first, with the term

    async def _follow(self, channel: ClientConnection) -> str:
        """Answer messages until the channel closes; return why this end has closed it, if it has."""
        reporting = asyncio.create_task(self._report_often(channel))
        try:
            async for text in channel:
                await channel.send(self._receive(text))
            return ""
        except LowerTermError as error:
            self.connected = False  # it was no success
            await channel.close(protocol.LOWER_TERM, "a view of a later term is in force")
            return f"its snapshot is refused: {error}"
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    def _receive(self, text: str | bytes) -> str:
        """Put a message in force; return the answer."""
        try:
            message = from_controller(text)
            view = protocol.follow(message, self.view, None)
            self._check_term(view)
            term = message.term if isinstance(message, Snapshot) else None
            if isinstance(message, Snapshot) and term is None:
                raise ProtocolError("it has no term", "term")
        except GapError as error:
            LOG.info("asking the controller for a snapshot: %s", error)
            return protocol.RESYNC
        except LowerTermError:
            self.refused += 1
            raise
        except ProtocolError as error:
            self.refused += 1
            LOG.error("message of the controller refused (%d so far): %s; the fabric stays as it was; check the versions of "
                      "controller and arbiter", self.refused, error)  # fmt: skip
            return self._ack()
        if term is not None:
            self.term = term
        if view is not None and (view is not self.view or term is not None):
            self.view = self._latest = view
            self._followed(view, self.term)
        return self._ack()

    def _check_term(self, view: View | None) -> None:
        """Raise `LowerTermError` if a view of the cluster is of a term before the last one that was in force, on any channel."""
        last = self._latest
        if (
            view is not None
            and last is not None
            and view.cluster
            and view.cluster == last.cluster
            and view.epoch < last.epoch
        ):
            raise LowerTermError(f"it is of term {view.epoch}, but a view of term {last.epoch} is in force")

    def _ack(self) -> str:
        return protocol.ack(self.view, self.refused, report=self._report())

    async def _report_often(self, channel: ClientConnection) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self.view is not None:
                await channel.send(self._ack())
