"""The one way in which tests wait for another process or thread: poll, and on a timeout say what was seen last."""

import inspect
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.helpers import report
from topologies.lab.private_ovs import OvsError

T = TypeVar("T")

SLOWER = float(os.environ.get("SOPA_SLOWER", "1"))
"""How many times slower than others this machine is: the guests of make test-kernel say so."""
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.02
interrupted = threading.Event()
"""Set where the run is: each wait ends at its next reading, whatever that says, as what a test has broken is mended no more."""
MAX_SHOWN = 3000  # characters of the last value: the end of a log is what matters


@dataclass(frozen=True)
class Containing:
    """Condition: text or a collection contains a part."""

    part: object

    def __call__(self, whole: Any) -> bool:
        return self.part in whole


def eventually(
    read: Callable[[], T],
    expected: object = bool,
    *,
    seconds: float = PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Poll until a value is what is expected, or fulfils a condition, and return it; at the time limit say what was seen last.

    One more reading is made after it, so that a process that was stopped meanwhile does not fail for that. ``sleep`` is for hubs.

    >>> readings = iter([1, 2, 3])
    >>> eventually(lambda: next(readings), 2)
    2
    >>> eventually(lambda: [1], Containing(4), seconds=0)
    Traceback (most recent call last):
    AssertionError: after 0 s, expected Containing(part=4); last seen: [1]
    """
    begin = time.monotonic()
    deadline = begin + seconds
    while True:
        late = time.monotonic() > deadline
        try:
            value = read()
        except OvsError:  # Open vSwitch ends the connection of a command when both have stood still
            if late or interrupted.is_set():
                raise
            sleep(POLL_SECONDS)
            continue
        if interrupted.is_set() or (expected(value) if callable(expected) else value == expected):
            report.note_wait(time.monotonic() - begin, seconds)
            return value
        if late:
            raise AssertionError(f"after {seconds:g} s, expected {_shown(expected)}; last seen: {_ending(value)}")
        sleep(POLL_SECONDS)


def throughout(read: Callable[[], T], expected: T, *, seconds: float) -> None:
    """Check that a value stays the same for ``seconds``: for what must not happen, which no event ends."""
    end = time.monotonic() + seconds
    while True:
        value = read()
        if value != expected:
            left = f"{end - time.monotonic():.2f} s before the end of {seconds:g} s"
            raise AssertionError(f"{left}, expected {expected!r}; seen: {_ending(value)}")
        if time.monotonic() > end:
            return
        time.sleep(POLL_SECONDS)


def _shown(expected: object) -> str:
    if expected is bool:
        return "something true"
    if inspect.isfunction(expected):
        try:
            return f"the condition of `{inspect.getsource(expected).strip()}`"
        except OSError:
            return expected.__qualname__
    return repr(expected)


def _ending(value: object) -> str:
    text = value if isinstance(value, str) and "\n" in value else repr(value)
    return text if len(text) <= MAX_SHOWN else f"... {text[-MAX_SHOWN:]}"
