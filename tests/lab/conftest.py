"""What the lab's tests share: every lab runs in a Python process of its own, as a user's command would."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
OURS = re.compile(r"-eth\d+$|-mgmt$|^ovs-|^sopatest\d|^same$|^[eac]\d+_\d+$")


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition comes true before the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def running(seconds: str) -> list[int]:
    """The processes of this machine, in whichever namespace, that are ``sleep`` with that argument."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                words = (directory / "cmdline").read_bytes()
            except OSError:
                continue
            if words == f"sleep\0{seconds}\0".encode():
                found.append(int(directory.name))
    return found


class Script:
    """A running Python script, whose output can be read a line at a time with a deadline."""

    def __init__(self, body: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(body)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._buffer = b""

    def line(self, seconds: float = PATIENCE_SECONDS) -> str:
        """The next line of its standard output; fails if none comes."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not data:
                self.process.kill()
                _, errors = self.process.communicate()
                raise AssertionError(f"no line came but {self._buffer!r}; stderr: {errors.decode()}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def end(self, seconds: float = PATIENCE_SECONDS) -> tuple[int, str, str]:
        """Close its standard input, wait for it; its status and the rest of its output."""
        out, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, (self._buffer + out).decode(), errors.decode()


@pytest.fixture
def script() -> Iterator[Callable[[str], Script]]:
    """Start Python scripts from the repository's root; whichever still run at the end are killed."""
    started: list[Script] = []

    def start(body: str) -> Script:
        started.append(Script(body))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture(autouse=True)
def machine_is_left_alone() -> Iterator[None]:
    """No test may leave one of a lab's interfaces or mounts behind; other tests may run meanwhile, and have theirs."""

    def state() -> tuple[set[str], list[str]]:
        interfaces = {name for name in os.listdir("/sys/class/net") if OURS.search(name)}
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return interfaces, [point for point in points if point in ("/proc", "/sys", "/run", "/tmp", "/sys/fs/bpf")]

    if os.geteuid() != 0:
        pytest.skip("needs root")
    before = state()
    yield
    assert eventually(lambda: state() == before)
