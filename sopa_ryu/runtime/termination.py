"""How a process on asyncio ends: at the first signal, or by the error of one of its tasks."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def first_signal(tasks: Sequence[asyncio.Task[Any]]) -> int:
    """Wait for the first of `SIGNALS` while tasks run, which run until they are cancelled; return its number.

    Raises:
        Exception: The error by which a task has ended before.
    """
    loop = asyncio.get_running_loop()
    received: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not received.done():
            received.set_result(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, end, number)
    waited: list[asyncio.Future[Any]] = [received, *tasks]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
    return received.result()


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all have ended, however they do."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def exit_status(number: int) -> int:
    """Return a process's exit status after a signal: 0 after SIGINT, which a person at a terminal sends, else 128 + its number.

    >>> exit_status(signal.SIGINT), exit_status(signal.SIGTERM)
    (0, 143)
    """
    return 0 if number == signal.SIGINT else 128 + number
