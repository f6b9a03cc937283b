"""A service on asyncio: what systemd is told of it (sd_notify(3)), and how it ends: by a signal, or by the error of a task."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NoReturn

from sopa_ryu.runtime.process import FREEZE_SECONDS, Freezer

LOG = logging.getLogger("sopa")

RESTART_SECONDS = 1.0
LONG_SECONDS, TOGETHER_SECONDS = 0.1, 0.05
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def notify(state: str) -> bool:
    """Send a state, such as ``READY=1``, to the service manager; return whether there is one that takes it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        try:
            manager.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
        except OSError:
            return False
    return True


async def first_signal(tasks: Sequence[asyncio.Task[Any]]) -> int:
    """Wait for the first of `SIGNALS` while tasks run until cancelled; return its number, or raise the error that ends a task."""
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


async def set_or_after(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, which it is after so long by itself: that costs less than an `asyncio.timeout` that ends.

    Waits of `LONG_SECONDS` and more end with others, at the nearest multiple of `TOGETHER_SECONDS`: what a process does at one wake
    costs several times less than at many, each with caches that others have used meanwhile.
    """
    loop = asyncio.get_running_loop()
    at = loop.time() + seconds
    timer = loop.call_at(round(at / TOGETHER_SECONDS) * TOGETHER_SECONDS if seconds >= LONG_SECONDS else at, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


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


async def kept(work: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    """Do a part's work until cancelled; begin again if a programming error ends it: the other parts go on."""
    while True:
        try:
            await work()
        except Exception:
            LOG.critical("worker %s crashed, restarting: report the traceback", work.__qualname__, exc_info=True)
        await asyncio.sleep(RESTART_SECONDS)


async def keep_short() -> None:
    """Keep pauses for garbage short (`Freezer`), until cancelled."""
    freezer = Freezer()
    while True:
        await asyncio.sleep(FREEZE_SECONDS)
        freezer.step()
