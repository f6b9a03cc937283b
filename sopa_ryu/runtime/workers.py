"""Green threads that work until the process ends, whatever goes wrong in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ryu.lib import hub

LOG = logging.getLogger("sopa")

RESTART_SECONDS = 1.0


class Workers:
    """The green threads of an application."""

    def __init__(self) -> None:
        self._threads: list[Any] = []

    def start(self, work: Callable[..., None], *args: Any) -> None:
        """Run a worker in a green thread of its own until `stop`; restart it if a programming error ends it."""
        self._threads.append(hub.spawn(_keep, work, *args))

    def stop(self) -> None:
        """End all workers."""
        for thread in self._threads:
            hub.kill(thread)
        self._threads.clear()


def _keep(work: Callable[..., None], *args: Any) -> None:
    while True:
        try:
            work(*args)
        except Exception:
            name = work.__name__.strip("_")
            LOG.critical("worker %s crashed, restarting: report the traceback", name, exc_info=True)
        hub.sleep(RESTART_SECONDS)
