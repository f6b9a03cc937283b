"""A host agent that runs as it does on a host, over real WebSockets; its kernel side is in memory."""

import asyncio
import threading
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

from sopa_ryu.agent.agent_options import AgentOptions
from tests.models.memory_labeller import MemoryInterface, host_agent

FIRST = IPv4Address("10.0.0.2")


class RunningAgent:
    """A host agent in a thread of its own."""

    def __init__(self, urls: tuple[str, ...], address: IPv4Address = FIRST, token_file: Path | None = None, **more: Any) -> None:
        options = AgentOptions(urls, token_file=token_file, probes=False, **more)
        self.agent = host_agent(MemoryInterface(), address, options)
        self.follower = self.agent.follower
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        async def run() -> None:
            self.agent.start()
            self.loop, self.task = asyncio.get_running_loop(), asyncio.current_task()
            self._started.set()
            await self.agent.run()

        with suppress(asyncio.CancelledError):
            asyncio.run(run())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def at(self) -> str | None:
        """The URL whose channel is open."""
        return self.follower.controllers.url if self.follower.connected else None

    @property
    def version(self) -> tuple[int, int]:
        """Epoch and version of the view in force."""
        its = self.follower.view
        return (its.epoch, its.version) if its is not None else (0, 0)

    def end(self) -> None:
        assert self._started.wait(20)
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.task.cancel)
        self._thread.join(20)
        assert not self._thread.is_alive()
