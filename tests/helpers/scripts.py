"""Python scripts that run in processes of their own, as a user's command would."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tests.helpers.waiting import SLOWER

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0 * SLOWER


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
