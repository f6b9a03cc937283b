"""An asyncio event loop with a virtual clock: nothing waits, timers run in their order, and threads are simulated."""

import asyncio
import functools
import selectors
from collections.abc import Callable
from typing import Any

THREAD_SECONDS = 0.015


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to the next timer when nothing else is to be done; a thread's work is done at its end."""

    def __init__(self) -> None:
        self.now = 0.0
        self.in_threads: list[Callable[..., Any]] = []  # what `asyncio.to_thread` has been given and is not done
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

        self.call_later(THREAD_SECONDS, work)
        return done

    def advance(self, seconds: float) -> None:
        self.run_until_complete(asyncio.sleep(seconds))

    def end_tasks(self) -> None:
        for task in (tasks := asyncio.all_tasks(self)):
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def close(self) -> None:
        if not self.is_closed():  # the interpreter closes it once more
            self.end_tasks()
        super().close()


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen: the loop waits for what is not simulated"
        self._loop.now += max(0.0, timeout)
        return super().select(0)
