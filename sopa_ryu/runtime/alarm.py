"""A wait that ends after a time, or as soon as somebody rings."""

from __future__ import annotations

import asyncio


class Alarm:
    """For one task that waits some thousand times a minute: `asyncio.timeout` around an event takes four times as long."""

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """End the wait under way, or the next one at once."""
        self._is_rung = True
        self._wake()

    async def wait(self, seconds: float) -> None:
        """Wait for so long, or until it rings."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._is_rung = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
