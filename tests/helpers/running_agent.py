"""A host agent that runs as it does on a host, over real WebSockets; its kernel side is in memory."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from ipaddress import IPv4Address
from pathlib import Path

from sopa_ryu.agent.agent_options import Options
from sopa_ryu.agent.follower import Follower
from sopa_ryu.agent.host_agent import HostAgent
from sopa_ryu.agent.keeper import Keeper
from sopa_ryu.agent.kernel.netns import Interface
from tests.models.memory_labeller import MemoryChanges, MemoryInterface, MemoryLabeller, MemoryPlace, MemorySettings

FIRST = IPv4Address("10.0.0.2")


class RunningAgent:
    """A host agent in a thread of its own.

    Parameters
    ----------
    urls : tuple of str
        Of its controllers.
    address : IPv4Address
        The host's.
    token_file : Path, optional
    """

    def __init__(self, urls: tuple[str, ...], address: IPv4Address = FIRST, token_file: Path | None = None) -> None:
        options = Options(urls, token_file=token_file, probes=False)
        interface = MemoryInterface()
        self.follower = Follower(address, options.controllers)
        place = MemoryPlace(interface, address)
        labeller = MemoryLabeller(interface)
        keeper = Keeper(place, labeller, MemorySettings(interface), MemoryChanges(interface), Counter())
        self.agent = HostAgent(Interface("host0"), options, self.follower, labeller, keeper)
        self.loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        async def run() -> None:
            self.agent.start()
            self.task = asyncio.current_task()
            self._started.set()
            await self.agent.run()

        try:
            self.loop.run_until_complete(run())
        except asyncio.CancelledError:
            pass
        finally:
            self.loop.close()

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
        """End it, and wait until it has."""
        assert self._started.wait(20)
        assert self.task is not None
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.task.cancel)
        self._thread.join(20)
        assert not self._thread.is_alive()
