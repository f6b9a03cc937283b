"""A relay's channel to the leader: its agents' probes and reports, traces, and the hosts of all relays that run MCS.

Without it agents go on with the streams and the lists that they have, and what they report is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from sopa_ryu.channel import relayed
from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.channel.effects import Effect
from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.front.handing import Handing

LOG = logging.getLogger("sopa.relay")

PATH = "/sopa/v1/relays/{name}"
FEED_SECONDS = 0.25
HOSTS_SECONDS = 1.0
"""The least time between two messages that name the hosts."""
RETRY_SECONDS = 1.0
OPEN_SECONDS = 5.0
PING_SECONDS = 2.0
"""A leader that has stopped is left after twice this time."""


class Uplink:
    """The channel to whichever member leads.

    Args:
        name: The relay's.
        notifier: Of its agents.
        leader: Return the URL of the leader's REST; None while nobody leads.
        carry_out: Carries out what follows for the agents.
        address: Return the address of a controller of a URL, with the relays' token.
    """

    def __init__(
        self,
        name: str,
        notifier: Notifier,
        leader: Callable[[], str | None],
        carry_out: Callable[[list[Effect]], None],
        address: Callable[[str], ControllerAddress],
    ) -> None:
        self._path = PATH.format(name=name)
        self._notifier, self._leader, self._address = notifier, leader, address
        self._handing = Handing(notifier, carry_out)
        self._problem = ""

    async def run(self) -> NoReturn:
        """Keep the channel open until cancelled."""
        while True:
            leader = self._leader()
            if leader is None:
                self._notifier.probe_lists.take_waiting()
            else:
                work, most = partial(self._attend, leader), relayed.MAX_DOWN_BYTES
                loss = await self._address(leader).attend(self._path, work, OPEN_SECONDS, ping=PING_SECONDS, max_bytes=most)
                if loss.error is not None and loss.problem != self._problem:
                    self._problem = loss.problem
                    LOG.warning(
                        "the leader at %s does not take what agents report of their probes: %s. Agents keep their streams of "
                        "probes",
                        leader,
                        loss.problem,
                    )
            await asyncio.sleep(RETRY_SECONDS)

    async def _attend(self, leader: str, channel: ClientConnection) -> str:
        self._problem = ""
        self._handing.opened()
        LOG.info("the leader at %s takes what agents report of their probes", leader)
        reading = asyncio.create_task(self._read(channel))
        try:
            await self._feed(channel, reading, leader)
        finally:
            self._handing.ended()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketException, ProtocolError):
                await reading
        return ""

    async def _feed(self, channel: ClientConnection, reading: asyncio.Task[None], leader: str) -> None:
        handing, next_hosts, next_mcs = self._handing, 0.0, 0.0
        loop = asyncio.get_running_loop()
        while not reading.done() and self._leader() == leader:
            if handing.has_hosts and loop.time() >= next_hosts:
                next_hosts = loop.time() + HOSTS_SECONDS
                await channel.send(handing.hosts())
            if waiting := handing.reports():
                await channel.send(waiting)
            if answers := handing.answers():
                await channel.send(answers)
            if loop.time() >= next_mcs:
                next_mcs = loop.time() + HOSTS_SECONDS
                for events in handing.mcs():
                    await channel.send(events)
                    await asyncio.sleep(0)
            await asyncio.wait([reading], timeout=FEED_SECONDS)
        if reading.done():
            reading.result()

    async def _read(self, channel: ClientConnection) -> None:
        async for message in channel:
            for turn in self._handing.take(message):
                if turn % relayed.LISTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
