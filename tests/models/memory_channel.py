"""The push channel in memory: a controller whose messages a test chooses, and connections that a test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

from websockets.exceptions import ConnectionClosedError

from sopa_ryu.channel import protocol
from sopa_ryu.channel.mcs import HostList
from sopa_ryu.channel.protocol import Ack, ProtocolError
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

LATENCY_SECONDS = 0.001


class MemoryChannel:
    """One connection, as the agent sees it."""

    def __init__(self, answered: Callable[[str], None]) -> None:
        self._messages: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._answered = answered
        self.open = True

    def deliver(self, text: str | bytes) -> None:
        """Give the agent a message, after the network's latency."""
        self._loop.call_later(LATENCY_SECONDS, self._messages.put_nowait, text)

    def cut(self) -> None:
        """End the connection: what is under way is lost."""
        self.open = False
        self._messages.put_nowait(None)

    async def close(self, code: int, reason: str) -> None:
        """End the connection from the agent's side."""
        self.cut()

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        while self.open:
            text = await self._messages.get()
            if text is not None and self.open:
                yield text

    async def send(self, message: str) -> None:
        if not self.open:
            raise ConnectionClosedError(None, None)
        self._answered(message)


class MemoryController:
    """A controller with one agent, and one failure more or less in each version.

    Parameters
    ----------
    address : IPv4Address
        The agent's.
    on_ack : callable
        Called with each acknowledgement when the agent sends it.

    Attributes
    ----------
    views : dict
        Every view that there has been, by epoch and version.
    lose : int
        How many of the next messages are lost.
    lost : bool
        True if a message was lost that no later snapshot makes up for.
    hosts : HostList or None
        The hosts that run MCS, in snapshots.
    """

    def __init__(self, address: IPv4Address, on_ack: Callable[[Ack], None]) -> None:
        self.address, self._on_ack = address, on_ack
        self.up, self.lose, self.lost = True, 0, False
        self.views: dict[tuple[int, int], View] = {}
        self.channel: MemoryChannel | None = None
        self.sent: View | None = None
        self.hosts: HostList | None = None
        self._enter(View(1, 1, Failures(FatTree(4))))

    def restart(self, k: int) -> None:
        """Begin a new epoch, with a healthy fabric of k-port switches."""
        self.cut()
        self._enter(View(self.now.epoch + 1, 1, Failures(FatTree(k))))

    def toggle(self, number: int) -> None:
        """Let an element fail, or heal if it has failed, and tell the agent."""
        tree, failures = self.now.failures.tree, self.now.failures
        names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
        name = names[number % len(names)]
        after = failures.without(name) if name in failures else failures.with_failed(name)
        self._enter(View(self.now.epoch, self.now.version + 1, after))
        if self.channel is not None and self.sent is not None:
            self.say(protocol.delta(self.sent, self.now))
            self.sent = self.now

    def say(self, text: str | bytes) -> None:
        """Send the agent any text, if it is connected."""
        if self.lose:
            self.lose -= 1
            self.lost = True
        elif self.channel is not None:
            self.channel.deliver(text)

    def cut(self) -> None:
        """End the connection."""
        if self.channel is not None:
            self.channel.cut()
        self.channel = self.sent = None

    @asynccontextmanager
    async def connect(self, *_arguments: object, **_options: object) -> AsyncIterator[MemoryChannel]:
        """Open the agent's channel, in place of the websockets library's `connect`."""
        await asyncio.sleep(LATENCY_SECONDS)
        if not self.up:
            raise ConnectionRefusedError("Connection refused")
        channel = self.channel = MemoryChannel(self._answer)
        self._snapshot()
        try:
            yield channel
        finally:
            channel.open = False
            if self.channel is channel:
                self.channel = self.sent = None

    def _enter(self, view: View) -> None:
        self.now = view
        self.views[view.epoch, view.version] = view

    def _snapshot(self) -> None:
        self.sent, self.lost = self.now, False
        self.say(protocol.snapshot(self.now, self.address, self.hosts))

    def _answer(self, text: str) -> None:
        try:
            ack = protocol.answer(text, self.now)
        except ProtocolError as error:
            raise AssertionError(f"the agent sent what no agent may: {text}: {error}") from error
        if ack is None:
            self._snapshot()
        else:
            self._on_ack(ack)
