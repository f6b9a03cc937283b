"""Turns: what one client asks for delays others by one answer at most, and costly answers take a tenth of the time.

Requests of one address are answered one after the other, and after an answer that took long everything else that is ready has its
turn. An answer that costs much (`Operation.costly`) is shared by all requests that wait for it, and is never older than a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import eventlet
from eventlet.semaphore import Semaphore

from sopa_ryu.rest.operations import Problem

SLICE_SECONDS = 0.002
"""Shorter answers are made without a switch of green threads: all connections of an address need some 0.2 s for one each."""
SPACING_TIMES = 9
"""Pause after a costly answer in multiples of its processor time."""
MAX_PAUSE_SECONDS = 0.25
COSTLY_AT_ONCE = 4
MAX_WAITING = 64
"""Requests for costly answers that may wait; others are answered 503."""


class _Turn:
    """A semaphore, how many use it, and the last answer with the time at which it was begun."""

    __slots__ = ("answer", "began", "free", "users")

    def __init__(self) -> None:
        self.free = Semaphore(1)
        self.users = 0
        self.began = float("-inf")
        self.answer: Any = None


class Turns:
    """One turn at a time for each key."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        """Return the number of keys in use."""
        return len(self._turns)

    @contextmanager
    def of(self, key: str) -> Iterator[_Turn]:
        """Wait for the turn of a key, and give it back."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _Turn()
        turn.users += 1
        try:
            with turn.free:
                yield turn
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]


class Fairness:
    """The turns of all clients, and of costly answers."""

    def __init__(self) -> None:
        self._clients = Turns()
        self._costly = Turns()
        self._slots = Semaphore(COSTLY_AT_ONCE)
        self._waiting = 0
        self._free_at = 0.0

    def answer(self, client: str, make: Callable[[], Any]) -> Any:
        """Make an answer in the client's turn; if it took long, that ends after everything else that is ready had its own."""
        with self._clients.of(client):
            began = time.monotonic()
            try:
                return make()
            finally:
                if time.monotonic() - began > SLICE_SECONDS:
                    eventlet.sleep(0)

    def costly(self, key: str, make: Callable[[], Any]) -> Any:
        """Make a costly answer, or take one that was begun after the request.

        Raises:
            Problem: 503 if too many requests wait; and what ``make`` raises.
        """
        if self._waiting >= MAX_WAITING:
            text = "too many requests wait for answers that cost much: try again later, or send the operator token"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        asked = time.monotonic()
        self._waiting += 1
        try:
            with self._costly.of(key) as turn:
                if turn.began < asked:
                    with self._slots:
                        self._pause()
                        began, spent = time.monotonic(), time.thread_time()
                        turn.answer = make()
                        turn.began = began
                        pause = SPACING_TIMES * (time.thread_time() - spent)
                        self._free_at = time.monotonic() + min(MAX_PAUSE_SECONDS, pause)
                return turn.answer
        finally:
            self._waiting -= 1

    def _pause(self) -> None:
        while (left := self._free_at - time.monotonic()) > 0:
            eventlet.sleep(left)
