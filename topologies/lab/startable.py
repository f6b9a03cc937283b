"""The base class of the lab's context managers, and what their daemons have logged last."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self


class Startable(ABC):
    """A context manager that starts on entering, and stops on leaving or if the start fails."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start."""

    @abstractmethod
    def stop(self) -> object:
        """Stop what has been started; it can be called again."""


def log_tail(*logs: Path) -> str:
    """Return the last ten lines of each log that can be read."""
    lines: list[str] = []
    for log in logs:
        with contextlib.suppress(OSError):
            lines += log.read_text(errors="replace").splitlines()[-10:]
    return "\n".join(lines)
