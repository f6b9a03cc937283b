"""What a shared machine does to the tests, on purpose: busy loops beside them, or a standstill of them all now and then."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from experiments.emulation.freezer import Freezer

STANDSTILL_SECONDS, STANDSTILL_EVERY = 3.0, 20.0
Start = Callable[[], None]
"""Is called in the process that runs the tests, before it does."""


@contextmanager
def busy() -> Iterator[Start]:
    """Two loops that want a processor each all the time, at the same priority."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield lambda: None
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def standstill() -> Iterator[Start]:
    """Stop all processes of the run for `STANDSTILL_SECONDS` in every `STANDSTILL_EVERY` by cgroup v2 (cgroup.freeze)."""
    ended = threading.Event()
    with Freezer() as group:

        def freeze() -> None:
            while not ended.wait(STANDSTILL_EVERY - STANDSTILL_SECONDS):
                with group.frozen():
                    ended.wait(STANDSTILL_SECONDS)

        freezer = threading.Thread(target=freeze)
        freezer.start()
        try:
            yield group.enter
        finally:
            ended.set()
            freezer.join()


DISTURBANCES: dict[str, Callable[[], AbstractContextManager[Start]]] = {
    "idle": lambda: nullcontext(lambda: None),
    "busy": busy,
    "standstill": standstill,
}
