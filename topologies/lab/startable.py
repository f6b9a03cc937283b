"""The base class of the lab's context managers."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Startable:
    """A context manager that starts on entering, and stops on leaving or if the start fails."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Stop what has been started; it can be called again."""
        raise NotImplementedError
