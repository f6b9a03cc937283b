"""What arrives at one moment, to be taken together: the first of it without delay, what follows closely some milliseconds later."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import eventlet
from eventlet.hubs import get_hub

Thing = TypeVar("Thing")

SPACING_SECONDS = 0.01


class Moment(Generic[Thing]):
    """Gathers things until every green thread that can go on has had its turn, and for some milliseconds after the last time.

    Args:
        take: Called with what was gathered, in its order.
        spacing: Seconds from one call to the next, at least, unless `end` is called.
    """

    def __init__(self, take: Callable[[list[Thing]], object], spacing: float = SPACING_SECONDS) -> None:
        self._take = take
        self._spacing = spacing
        self._next = float("-inf")
        self._gathered: list[Thing] = []
        self._sources: set[Hashable] = set()
        self._waiting: Any = None

    def add(self, source: Hashable, thing: Thing) -> None:
        """Gather a thing of a source."""
        self._gathered.append(thing)
        self._sources.add(source)
        if self._waiting is None:
            # a timer of the hub: a green thread that is cancelled would be a cycle
            delay = max(0.0, self._next - time.monotonic())
            self._waiting = get_hub().schedule_call_global(delay, eventlet.spawn_n, self._over)

    def end(self, source: Hashable | None = None) -> None:
        """Have everything taken now if there is something of a source, or with None anything."""
        if source in self._sources if source is not None else self._gathered:
            self._waiting.cancel()
            self._over()

    def _over(self) -> None:
        if self._waiting is None:
            return  # it was ended between the timer and this
        self._waiting = None
        gathered, self._gathered = self._gathered, []
        self._sources.clear()
        self._next = time.monotonic() + self._spacing
        self._take(gathered)
