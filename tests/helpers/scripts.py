"""Python scripts that run in processes of their own, as a user's command would."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def running(seconds: str) -> list[int]:
    """The processes of this machine, in whichever namespace, that are ``sleep`` with that argument."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(file.parent.name))
    return found


class Script:
    """A running Python script, whose output can be read a line at a time."""

    def __init__(self, body: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", body], bufsize=0, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe
        )

    def line(self) -> str:
        """The next line of its standard output; fails if it ends without one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line, f"no line came; stderr: {self.process.communicate()[1].decode()}"
        return line.rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        """Close its standard input, wait for it; its status and the rest of its output."""
        out, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out.decode(), errors.decode()
