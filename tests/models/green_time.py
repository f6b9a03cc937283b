"""Green threads whose sleep costs nothing: all are woken in order, by a clock that leaps from each to the next."""

import functools
import heapq
import itertools
from collections.abc import Callable

import greenlet


class GreenTime:
    """Stands in for both `time` and `ryu.lib.hub`; unlike with these, an exception that a thread raises fails the test."""

    def __init__(self, passed: Callable[[], object] = lambda: None) -> None:
        self.now = 1000.0
        self._passed = passed  # called whenever the clock has gone on
        self._sleepers: list[tuple[float, int, greenlet.greenlet]] = []
        self._number = itertools.count()
        self._main = greenlet.getcurrent()
        self.Event = functools.partial(Event, self)

    def __call__(self) -> float:
        return self.now

    monotonic = __call__

    def sleep(self, seconds: float = 0.0) -> None:
        self.wake(greenlet.getcurrent(), seconds)
        self._main.switch()

    def spawn(self, function: Callable[..., object], *arguments: object) -> None:
        self.wake(greenlet.greenlet(functools.partial(function, *arguments), self._main))

    def wake(self, thread: greenlet.greenlet, seconds: float = 0.0) -> None:
        """Have a thread go on after so long, and at no other time."""
        self._sleepers = [its for its in self._sleepers if its[2] is not thread]
        heapq.heapify(self._sleepers)
        heapq.heappush(self._sleepers, (self.now + max(0.0, seconds), next(self._number), thread))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, thread = heapq.heappop(self._sleepers)
            self.now = max(self.now, at)
            self._passed()
            thread.switch()
        self.now = max(self.now, until)


class Event:
    """`hub.Event` for one thread that waits."""

    def __init__(self, time: GreenTime) -> None:
        self._time, self._is_set = time, False
        self._waiting: greenlet.greenlet | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None:
            self._time.wake(self._waiting)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float) -> bool:
        if not self._is_set:
            self._waiting = greenlet.getcurrent()
            self._time.sleep(timeout)
            self._waiting = None
        return self._is_set
