"""Turns of answers that a relay computes itself: one at a time, clients in fair order, and everything else between two of them.

An answer about a large fabric takes milliseconds. Clients that ask for many delay the view's way to agents by one answer at most,
and a client that asks for few by one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from sopa_ryu.rest.operations import Problem
from sopa_ryu.runtime.fair_order import FairOrder

T = TypeVar("T")

MAX_WAITING = 1024
"""Requests that may wait; others are answered 503."""


class Turns:
    """The requests that wait for their turn, by client."""

    def __init__(self) -> None:
        self._order: FairOrder[asyncio.Future[None]] = FairOrder()
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
        self._order.add(client, turn)
        self._count += 1
        self._schedule()
        began = None
        try:
            await turn
            began = time.thread_time()
            return make()
        finally:
            self._count -= 1
            if not turn.cancelled():  # also if its client has left right after it
                self._order.spent(client, time.thread_time() - began if began is not None else 0.0)
                self._schedule()

    def _schedule(self) -> None:
        if self._next is None and self._order:
            self._next = asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        """Give one client its turn."""
        self._next = None
        while self._order:
            client, turn = self._order.take()
            if not turn.done():  # otherwise its client has left
                turn.set_result(None)
                break
            self._order.spent(client, 0.0)
