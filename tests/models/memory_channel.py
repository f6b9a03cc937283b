"""The push channel in memory: a controller whose messages a test chooses, and connections that a test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address

from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from sopa_ryu.channel import protocol
from sopa_ryu.channel.mcs import HostList
from sopa_ryu.channel.messages import Ack, ProtocolError
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

LATENCY_SECONDS = 0.001


class MemoryChannel:
    """One connection, as the agent sees it, in place of the websockets library's; as a context it is opened, and ends."""

    def __init__(self, controller: MemoryController, open_timeout: float) -> None:
        self._messages: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._controller, self._open_timeout = controller, open_timeout
        self._error: ConnectionClosedError | None = None
        self.open = False

    @property
    def transport(self) -> MemoryChannel:
        return self

    async def __aenter__(self) -> MemoryChannel:
        its = self._controller
        await asyncio.sleep(LATENCY_SECONDS)
        if not its.up:
            raise ConnectionRefusedError("Connection refused")
        if its.silent:
            await asyncio.sleep(self._open_timeout)
            raise TimeoutError("timed out during opening handshake")
        self.open = True
        its.channel = self
        its.send_snapshot()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.open = False
        self._controller.ended(self)

    def deliver(self, text: str | bytes) -> None:
        """Give the agent a message, after the network's latency."""
        self._loop.call_later(LATENCY_SECONDS, self._messages.put_nowait, text)

    def cut(self) -> None:
        self.open = False
        self._messages.put_nowait(None)

    def abort(self, close: Close | None = None) -> None:
        self._error = ConnectionClosedError(close, None)
        self.cut()

    async def ping(self) -> asyncio.Future[float]:
        answered: asyncio.Future[float] = self._loop.create_future()
        if not self.open:
            raise ConnectionClosedError(None, None)
        if not self._controller.silent:
            self._loop.call_later(LATENCY_SECONDS, lambda: answered.done() or answered.set_result(LATENCY_SECONDS))
        return answered

    async def close(self, code: int, reason: str) -> None:
        self._controller.codes.append(code)
        self.cut()

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        while self.open:
            text = await self._messages.get()
            if text is not None and self.open:
                yield text
        if self._error is not None:
            raise self._error

    async def send(self, message: str) -> None:
        if not self.open:
            raise ConnectionClosedError(None, None)
        self._controller.answer(message)


class MemoryController:
    """A controller with one agent, and one failure more or less in each version."""

    def __init__(self, address: IPv4Address, on_ack: Callable[[Ack], None]) -> None:
        self.address, self._on_ack = address, on_ack
        self.up, self.silent = True, False  # one that is silent stands still: it answers nothing
        self.lose, self.lost = 0, False  # of the next messages; whether one was that no later snapshot makes up for
        self.codes: list[int] = []  # by which the agent has closed channels
        self.views: dict[tuple[int, int], View] = {}  # all that there have been, by epoch and version
        self.channel: MemoryChannel | None = None
        self.sent: View | None = None
        self.hosts: HostList | None = None  # that run MCS, in snapshots
        self.enter(View(1, 1, Failures(FatTree(4))))

    def restart(self, k: int) -> None:
        """Begin a new epoch, with a healthy fabric of k-port switches."""
        self.cut()
        self.enter(View(self.now.epoch + 1, 1, Failures(FatTree(k))))

    def toggle(self, number: int) -> None:
        """Let an element fail, or heal if it has failed, and tell the agent."""
        tree, failures = self.now.failures.tree, self.now.failures
        names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
        name = names[number % len(names)]
        after = failures.without(name) if name in failures else failures.with_failed(name)
        self.enter(View(self.now.epoch, self.now.version + 1, after))
        if self.channel is not None and self.sent is not None:
            self.say(protocol.delta(self.sent, self.now))
            self.sent = self.now

    def say(self, text: str | bytes) -> None:
        if self.lose:
            self.lose -= 1
            self.lost = True
        elif self.channel is not None:
            self.channel.deliver(text)

    def cut(self) -> None:
        if self.channel is not None:
            self.channel.cut()
        self.channel = self.sent = None

    def kill(self) -> None:
        self.up = False
        self.cut()

    def stop(self) -> None:
        """Stand still: nothing is answered."""
        self.silent = True

    def start(self) -> None:
        self.up, self.silent = True, False

    def reset(self) -> None:
        """End the connection without a word."""
        if self.channel is not None:
            self.channel.abort()

    def send_on(self) -> None:
        """End the connection as a relay does that has more agents than its share."""
        if self.channel is not None:
            self.channel.abort(Close(protocol.SURPLUS, ""))

    def connect(self, *_arguments: object, open_timeout: float = 10.0, **_options: object) -> MemoryChannel:
        return MemoryChannel(self, open_timeout)

    def ended(self, channel: MemoryChannel) -> None:
        if self.channel is channel:
            self.channel = self.sent = None

    def take_codes(self) -> list[int]:
        codes, self.codes = self.codes, []
        return codes

    def enter(self, view: View) -> None:
        """Have such a view from now on; agents that are connected are not told."""
        self.now = view
        self.views[view.epoch, view.version] = view

    def send_snapshot(self) -> None:
        self.sent, self.lost = self.now, False
        self.say(protocol.snapshot(self.now, self.address, self.hosts))

    def answer(self, text: str) -> None:
        try:
            ack = protocol.answer(text, self.now)
        except ProtocolError as error:
            raise AssertionError(f"the agent sent what no agent may: {text}: {error}") from error
        if isinstance(ack, Ack):
            self._on_ack(ack)
        else:
            self.send_snapshot()
