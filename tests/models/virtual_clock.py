"""An asyncio event loop with a virtual clock: nothing waits, timers run in their order, and threads are simulated."""

import asyncio
import functools
import selectors
from collections.abc import Callable
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to the next timer when nothing else is to be done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.thread_seconds = (
            0.015  # what a thread takes (`asyncio.to_thread`): its work is done in the loop's own at the end
        )
        self.in_threads: list[Callable[..., Any]] = []  # what is under way so
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        called = func.args[0] if isinstance(func, functools.partial) else func  # to_thread wraps it
        self.in_threads.append(called)

        def work() -> None:
            self.in_threads.remove(called)
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:
                done.set_exception(error)

        self.call_later(self.thread_seconds, work)
        return done

    def advance(self, seconds: float) -> None:
        self.run_until_complete(asyncio.sleep(seconds))


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen: the loop waits for what is not simulated"
        self._loop.now += max(0.0, timeout)
        return super().select(0)
