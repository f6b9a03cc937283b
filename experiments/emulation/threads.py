"""Functions that run in threads of their own while a context lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Threads:
    """Runs functions from entering until leaving the context. They end when `ended` is set; then `close` is called."""

    def __init__(self, *work: Callable[[], None]) -> None:
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in work]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join()
        self.close()

    def close(self) -> None:
        """Close what the threads have used."""
