"""What a shared machine does to the tests, on purpose: busy loops beside them, or a standstill of them all now and then."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

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
    group = _cgroup() / f"sopa-tests-{os.getpid()}"
    group.mkdir()
    ended = threading.Event()

    def freeze() -> None:
        while not ended.wait(STANDSTILL_EVERY - STANDSTILL_SECONDS):
            (group / "cgroup.freeze").write_text("1")
            ended.wait(STANDSTILL_SECONDS)
            (group / "cgroup.freeze").write_text("0")

    freezer = threading.Thread(target=freeze)
    freezer.start()

    def enter() -> None:
        (group / "cgroup.procs").write_text("0")

    try:
        yield enter
    finally:
        ended.set()
        freezer.join()
        for pid in (group / "cgroup.procs").read_text().split():  # nothing should be left
            with suppress(ProcessLookupError):
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def _cgroup() -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise FileNotFoundError("no cgroup v2 is mounted, to stop processes: mount -t cgroup2 none /sys/fs/cgroup/unified")


DISTURBANCES: dict[str, Callable[[], AbstractContextManager[Start]]] = {
    "idle": lambda: nullcontext(lambda: None),
    "busy": busy,
    "standstill": standstill,
}
