"""The controller's green threads: workers until the process ends, turns of those that serve switches, observations together.

Eventlet lets every green thread that can go on do so before it looks at the sockets again. When thousands of switches connect, each
has something to do for some tenths of a millisecond: a request of a reader or the word of an agent would wait for all of them.
So together they keep the process from its other work for a bounded time only (`Turns`).
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import eventlet
import greenlet
from eventlet.hubs import get_hub

from sopa_ryu.runtime.library import hub
from sopa_ryu.runtime.process import FREEZE_SECONDS, Freezer

LOG = logging.getLogger("sopa")

RESTART_SECONDS = 1.0
END_SECONDS = 2.0
TURN_SECONDS = 0.01
"""So long switches are served between two looks at all sockets."""
SPACING_SECONDS = 0.01

Thing = TypeVar("Thing")


class Workers:
    """The green threads of an application."""

    def __init__(self) -> None:
        self._threads: list[Any] = []

    def start(self, work: Callable[..., None], *args: Any) -> None:
        """Run a worker in a green thread of its own until `stop`; restart it if a programming error ends it."""
        self._threads.append(hub.spawn(_keep, work, *args))

    def stop(self) -> None:
        """End all workers."""
        for thread in self._threads:
            hub.kill(thread)
        self._threads.clear()


def _keep(work: Callable[..., None], *args: Any) -> None:
    while True:
        try:
            work(*args)
        except Exception:
            name = work.__name__.strip("_")
            LOG.critical("worker %s crashed, restarting: report the traceback", name, exc_info=True)
        hub.sleep(RESTART_SECONDS)


class Turns:
    """A line in which green threads wait once the time of all of them is used up, until the sockets have been looked at."""

    def __init__(self, seconds: float = TURN_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self._line: deque[Any] = deque()

    def take(self, first: bool = False) -> None:
        """Go on if there is time left, or wait for a turn; ``first``: before all others that wait."""
        if self._until is None:
            self._begin()
            return
        if self._clock() < self._until and (first or not self._line):
            return
        me = greenlet.getcurrent()
        if first:
            self._line.appendleft(me)
        else:
            self._line.append(me)
        try:
            get_hub().switch()
        except BaseException:  # it was killed, or ran out of time
            if me in self._line:
                self._line.remove(me)
            raise

    def _begin(self) -> None:
        self._until = self._clock() + self._seconds
        get_hub().schedule_call_global(0, self._looked)

    def _looked(self) -> None:
        """The sockets have been looked at since the turn began."""
        self._until = None
        if not self._line:
            return
        self._begin()
        while self._line and self._clock() < (self._until or 0.0):
            self._line.popleft().switch()


SWITCHES = Turns()
"""Of all green threads that read from switches, write to them, or handle what they have said."""


class Moment(Generic[Thing]):
    """Gathers things until every green thread that can go on has had its turn, and for some milliseconds after the last time.

    ``take`` is called with what was gathered, in its order, and again after ``spacing`` seconds at least, unless `end` is called.
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


def keep_short() -> None:
    """Run until killed: freeze live objects every second, collect all every ten minutes."""
    freezer = Freezer()
    while True:
        hub.sleep(FREEZE_SECONDS)
        freezer.step()


def end_child(child: subprocess.Popen[bytes]) -> None:
    """End a child process, which does so by itself once its socket is closed, or is killed after `END_SECONDS`."""
    deadline = time.monotonic() + END_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        eventlet.sleep(0.01)
    if child.poll() is None:
        child.kill()
        while child.poll() is None:
            eventlet.sleep(0.01)
