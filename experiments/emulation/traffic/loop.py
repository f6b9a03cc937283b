"""An event loop for one thread: timed actions, and callbacks of sockets."""

from __future__ import annotations

import heapq
import selectors
import socket
import time
from collections.abc import Callable

_IDLE_SECONDS = 0.1


class Loop:
    """Runs timed actions and callbacks of sockets from `begin` on.

    Times are seconds after `begin`.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._begin = 0.0

    def begin(self) -> None:
        """Set the current time to 0."""
        self._begin = time.monotonic()

    def now(self) -> float:
        """Return the seconds since `begin`."""
        return time.monotonic() - self._begin

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action. Actions of the same time run in the order of scheduling."""
        self._order += 1
        heapq.heappush(self._due, (seconds, self._order, action))

    def due_before(self, seconds: float) -> bool:
        """Return True if an action is scheduled up to a time that has not passed."""
        return bool(self._due) and self._due[0][0] <= seconds and self.now() <= seconds

    def when_readable(self, of: socket.socket, action: Callable[[], None]) -> None:
        """Register a callback for a readable socket."""
        self._selector.register(of, selectors.EVENT_READ, action)

    def when_writable(self, of: socket.socket, action: Callable[[], None]) -> None:
        """Register a callback for a writable socket."""
        self._selector.register(of, selectors.EVENT_WRITE, action)

    def forget(self, of: socket.socket) -> None:
        """Unregister a socket."""
        self._selector.unregister(of)

    def turn(self) -> None:
        """Run due actions; then wait for a socket or the next action."""
        while self._due and self._due[0][0] <= self.now():
            heapq.heappop(self._due)[2]()
        wait = self._due[0][0] - self.now() if self._due else _IDLE_SECONDS
        for key, _ in self._selector.select(max(0.0, wait)):
            key.data()

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()
