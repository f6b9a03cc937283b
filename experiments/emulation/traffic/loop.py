"""One thread's time and sockets: what is to be done when, and what a socket that is ready wants done."""

from __future__ import annotations

import heapq
import selectors
import socket
import time
from collections.abc import Callable

_IDLE_SECONDS = 0.1


class Loop:
    """Carries out what is due, and what sockets are ready for, from `begin` on.

    Times are seconds after `begin`.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._begin = 0.0

    def begin(self) -> None:
        """Time is 0 now."""
        self._begin = time.monotonic()

    def now(self) -> float:
        """Seconds since `begin`."""
        return time.monotonic() - self._begin

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done then; what is due at the same time is done in the order in which it was said."""
        self._order += 1
        heapq.heappush(self._due, (seconds, self._order, action))

    def due_before(self, seconds: float) -> bool:
        """Whether anything is to be done by then, and it is not later yet."""
        return bool(self._due) and self._due[0][0] <= seconds and self.now() <= seconds

    def when_readable(self, of: socket.socket, action: Callable[[], None]) -> None:
        """Call whenever there is something to read."""
        self._selector.register(of, selectors.EVENT_READ, action)

    def when_writable(self, of: socket.socket, action: Callable[[], None]) -> None:
        """Call whenever there is room to write."""
        self._selector.register(of, selectors.EVENT_WRITE, action)

    def forget(self, of: socket.socket) -> None:
        """Never call for this socket again."""
        self._selector.unregister(of)

    def turn(self) -> None:
        """Do what is due; then wait for a socket, or for what is due next."""
        while self._due and self._due[0][0] <= self.now():
            heapq.heappop(self._due)[2]()
        wait = self._due[0][0] - self.now() if self._due else _IDLE_SECONDS
        for key, _ in self._selector.select(max(0.0, wait)):
            key.data()

    def close(self) -> None:
        """Forget all sockets."""
        self._selector.close()
