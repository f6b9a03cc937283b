"""Commands of a campaign: their output goes to a file, and they end with it."""

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path


def end_in_order() -> None:
    """Let SIGTERM interrupt this process as Ctrl-C does; and SIGINT even where a script began it in the background."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def run(command: Sequence[str], log: Path, start: Callable[[], None] | None = None) -> int:
    """Return the exit status of a command whose output is written to ``log``; ``start`` is called in its process before it.

    Where this process is interrupted, the command gets SIGTERM and has ended when the exception goes on.
    """
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=start) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()  # Popen itself waits no longer than 0.25 s after Ctrl-C
            raise


def last_line(log: Path) -> str:
    """Return the last line that a command has printed: each campaign ends with what it has found."""
    lines = [line.strip() for line in log.read_text().splitlines() if line.strip() and not line.startswith("make: ")]
    return lines[-1] if lines else "it printed nothing"
