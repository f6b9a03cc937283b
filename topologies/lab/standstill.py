"""Processes that stand still: stopped by SIGSTOP, as on a suspended or swapping machine, and continued."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 10.0
_POLL_SECONDS = 0.001
_STOPPED = frozenset("TtZX")


class StandstillError(RuntimeError):
    """A process was sent SIGSTOP and goes on, and was continued; the text says which of its threads went on."""


def pause(pid: int) -> None:
    """Stop a process, and return when none of its threads runs any more.

    One thread of the process takes the signal and stops the others. On a busy machine it may wait milliseconds for a processor, and
    the others work meanwhile (signal(7): a process-directed signal is delivered to an arbitrary thread). Raises
    `ProcessLookupError` without such a process, `StandstillError` if threads that wait in the kernel, where no signal reaches them,
    go on for `STOP_SECONDS`.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_SECONDS
    while going := {thread: state for thread, state in _states(pid).items() if state not in _STOPPED}:
        if time.monotonic() > deadline:
            resume(pid)
            raise StandstillError(f"process {pid} was stopped {STOP_SECONDS:g} s ago, and its threads {going} go on")
        time.sleep(_POLL_SECONDS)


def resume(pid: int) -> None:
    """Continue a stopped process. Raises `ProcessLookupError` if there is none."""
    os.kill(pid, signal.SIGCONT)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Let a process stand still meanwhile."""
    pause(pid)
    try:
        yield
    finally:
        resume(pid)


def _states(pid: int) -> dict[int, str]:
    """Return the state of each thread as in proc(5)."""
    states = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            told = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        states[int(task.name)] = told.rpartition(")")[2].split()[0]
    return states
