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
from sopa_ryu.channel.handed_mcs import HandedMcsHosts
from sopa_ryu.channel.messages import ProtocolError, encode
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.relayed import AnsweringHosts, Forged, Given, Handed, TraceAnswers
from topologies import Host

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
        self._notifier, self._leader = notifier, leader
        self._carry_out, self._address = carry_out, address
        assert isinstance(notifier.mcs_hosts, HandedMcsHosts)
        self._mcs = notifier.mcs_hosts
        self._hosts = list(notifier.tree.hosts())
        self._places = {host: place for place, host in enumerate(self._hosts)}
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
                        "the leader at %s does not take what agents report of their probes: %s; they go on with the streams that "
                        "they have",
                        leader,
                        loss.problem,
                    )
            await asyncio.sleep(RETRY_SECONDS)

    async def _attend(self, leader: str, channel: ClientConnection) -> str:
        self._problem = ""
        for session in self._notifier.sessions.values():
            session.list_sent = session.list_reported = 0  # another leader counts its lists anew
        self._notifier.probe_lists.take_waiting()
        self._notifier.tracing.handed()
        self._mcs.opened()
        LOG.info("the leader at %s takes what agents report of their probes", leader)
        reading = asyncio.create_task(self._read(channel))
        try:
            await self._feed(channel, reading, leader)
        finally:
            self._mcs.ended()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketException, ProtocolError):
                await reading
        return ""

    async def _feed(self, channel: ClientConnection, reading: asyncio.Task[None], leader: str) -> None:
        lists, known, next_hosts, next_mcs = self._notifier.probe_lists, -1, 0.0, 0.0
        loop = asyncio.get_running_loop()
        while not reading.done() and self._leader() == leader:
            if lists.changes != known and loop.time() >= next_hosts:
                known, next_hosts = lists.changes, loop.time() + HOSTS_SECONDS
                places = tuple(sorted(self._places[host] for host in lists.hosts()))
                await channel.send(encode(AnsweringHosts(places, traces=True, mcs=True)))
            if waiting := lists.take_waiting():
                await channel.send(waiting)
            if answers := self._notifier.tracing.handed():
                rows = (Handed(self._places[host], text) for host, text in answers)
                await channel.send(encode(TraceAnswers(tuple(rows))))
            if loop.time() >= next_mcs:
                next_mcs = loop.time() + HOSTS_SECONDS
                while (told := self._mcs.take()) is not None:
                    await channel.send(encode(told))
                    await asyncio.sleep(0)
            await asyncio.wait([reading], timeout=FEED_SECONDS)
        if reading.done():
            reading.result()

    async def _read(self, channel: ClientConnection) -> None:
        async for message in channel:
            for turn, entry in enumerate(relayed.from_leader(message, len(self._hosts)), 1):
                match entry:
                    case Given(place, number, text):
                        self._carry_out(self._notifier.assign(self._hosts[place], number, text))
                    case Handed(place, text):
                        self._ask(self._hosts[place], text)
                    case Forged(place, records):
                        self._carry_out(self._notifier.forged(self._hosts[place], records))
                    case _:
                        self._mcs.follow(entry)
                if turn % relayed.LISTS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _ask(self, host: Host, text: str) -> None:
        try:
            self._carry_out(self._notifier.ask(host, text))
        except ProtocolError as error:
            raise ProtocolError(f"what it asks {host} is no trace: {error}") from error
