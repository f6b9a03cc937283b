"""Turns of answers that a relay computes itself: one at a time, clients in turn, and everything else between two of them.

An answer about a large fabric takes milliseconds. A client that asks for many delays the view's way to agents by one answer at
most, and the other clients by one each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from sopa_ryu.rest.operations import Problem

T = TypeVar("T")

MAX_WAITING = 1024
"""Requests that may wait; others are answered 503."""


class Turns:
    """The requests that wait for their turn, by client."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0
        self._next: asyncio.Handle | None = None

    async def make(self, client: str, make: Callable[[], T]) -> T:
        """Return what a function returns, called in its turn.

        Raises:
            Problem: 503 if too many requests wait; and what ``make`` raises.
        """
        if self._count >= MAX_WAITING:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait: try again later", {"Retry-After": "1"})
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._count += 1
        self._schedule()
        try:
            await turn
        finally:
            self._count -= 1
        return make()

    def _schedule(self) -> None:
        if self._next is None and self._waiting:
            self._next = asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        """Give one client its turn; it goes to the end of the queue."""
        self._next = None
        while self._waiting:
            client = next(iter(self._waiting))
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():  # otherwise its client has left
                turn.set_result(None)
                break
        self._schedule()
