"""The arbiter's end of the controller's channel: the fabric and the term, through every loss of the connection."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NoReturn

from msgspec import UNSET, UnsetType
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from sopa_ryu.channel import messages, protocol
from sopa_ryu.channel.addresses import Addresses, Loss
from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.channel.messages import GapError, HostLink, HostLinks, LowerTermError, ProtocolError, Snapshot
from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.fabric.view import View

LOG = logging.getLogger("sopa.arbiter")

CHANNEL = "/sopa/v1/arbiter"

REPORT_SECONDS = 5.0
"""How often the arbiter reports, and asks what hosts' links carry."""


class ControllerLink:
    """The connection to the controller.

    Args:
        controllers: The controller; of a cluster, its controllers, of which the leader takes an arbiter.
        followed: Called with each version of the fabric and the term.
        superseded: Called when the controller has accepted another arbiter.
        measured: Called with what is known of the links of all hosts; with nothing by a controller that does not tell.
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
        measured: Callable[[Sequence[HostLink]], None],
        report: Callable[[], messages.ArbiterReport],
        seed: int = 0,
    ) -> None:
        self._controllers = {each.url: each for each in controllers}
        self.urls = Addresses(list(self._controllers), "arbiter", random.Random(seed))
        self.connected = False
        self.term = 0
        self.view: View | None = None
        self.refused = 0
        self._followed, self._superseded, self._measured, self._report = followed, superseded, measured, report
        self._lower = protocol.LowerTerms(time.monotonic)
        self._links: list[HostLink] = []
        self._is_told = False

    async def run(self) -> NoReturn:
        """Follow the controller until cancelled."""
        while True:
            await asyncio.sleep(self._note(await self._follow_once()))

    def _note(self, loss: Loss) -> float:
        """Log once why there is no connection; return the seconds until the next attempt."""
        url = self.urls.url
        delay, is_new = self.urls.lost(loss, hosts=1, valid=self.connected)
        self.connected = False
        if is_new:
            LOG.warning(
                "no controller at %s: %s. %s. %s. Check the controller and the network to it",
                url,
                loss.problem,
                "Slots are granted by what it sent last" if self.term else "No slot is granted until it answers",
                self.urls.prospect,
            )
        return delay

    async def _follow_once(self) -> Loss:
        """Follow the controller over one connection."""
        loss = await self._controllers[self.urls.url].attend(
            f"{CHANNEL}?term={self.term}" if self.term else CHANNEL,
            self._follow,
            self.urls.open_seconds(hosts=1),
            hosts=(lambda: 1) if self.urls.several else None,
        )
        if isinstance(loss.error, InvalidStatus):
            response = loss.error.response
            taken = response.status_code == HTTPStatus.CONFLICT and LEADER_HEADER not in response.headers
            if taken and self.term:
                LOG.error("another arbiter has this one's place: no slot is granted any more. End one of the two")
                self.term = 0
                self._superseded()
        return loss

    async def _follow(self, channel: ClientConnection) -> str:
        """Answer messages until the channel closes; return why this end has closed it, if it has."""
        LOG.info("connected to controller %s: slots are granted once it has a version of the fabric", self.urls.url)
        self.connected = True
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
            message = messages.from_controller(text)
            view = protocol.follow(message, self.view, None)
            self._lower.ended()
            term = message.term if isinstance(message, Snapshot) else None
            if isinstance(message, Snapshot) and term is None:
                raise ProtocolError("it has no term", "term")
        except GapError as error:
            LOG.info("asking the controller for a snapshot: %s", error)
            return protocol.RESYNC
        except LowerTermError:
            if self._lower.last():
                LOG.warning("no controller knows the term in force any more: it is forgotten")
                self.view = None
                return self._receive(text)
            self.refused += 1
            raise
        except ProtocolError as error:
            self.refused += 1
            LOG.error("message of the controller refused (%d so far): %s. The fabric stays as it was. Controller and arbiter may "
                      "be of different versions", self.refused, error)  # fmt: skip
            return self._ack()
        if isinstance(message, HostLinks):
            return self._take_links(message)
        if term is not None:
            self.term = term
        if view is not None and (view is not self.view or term is not None):
            self.view = view
            self._followed(view, self.term)
        return self._ack() if term is None else self._ask_links()

    def _ask_links(self) -> str:
        self._links = []
        return self._ack(links=0)

    def _take_links(self, part: HostLinks) -> str:
        """Note a part of the hosts' links; return the answer, which asks for the next part."""
        if part.first != len(self._links):
            return self._ack()  # of what was asked before
        self._links += part.links
        if part.links and self.view is not None and len(self._links) < self.view.failures.tree.host_count:
            return self._ack(links=len(self._links))
        self._is_told = True
        self._measured(self._links)
        return self._ack()

    def _ack(self, links: int | UnsetType = UNSET) -> str:
        return protocol.ack(self.view, self.refused, report=self._report(), links=links)

    async def _report_often(self, channel: ClientConnection) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self.view is not None:
                if not self._is_told:
                    self._measured(())
                await channel.send(self._ask_links())
