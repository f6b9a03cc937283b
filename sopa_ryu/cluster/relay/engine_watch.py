"""The thread that watches the engine, and hands what it says to the relay's event loop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sopa_ryu.cluster.engine import Contents, Engine, EngineError, Kind, Outage

LOG = logging.getLogger("sopa.relay")

RETRY_SECONDS = 0.5
WATCH = "watch"


class EngineWatch:
    """A watch of all keys of the cluster that begins again whenever it ends, by a client of the engine for its thread alone.

    ``hand`` is called in the thread with what was read or has changed, or with None while the engine does not answer.
    """

    def __init__(self, engine: Engine, hand: Callable[[Contents | None], None]) -> None:
        self._engine = engine
        self._hand = hand
        self._ended = threading.Event()
        self._outage = Outage()
        self._thread = threading.Thread(target=self._run, name="engine watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End; the thread may go on until its present request has been answered."""
        self._ended.set()
        self._engine.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except EngineError as error:
                self._away(error)
            except Exception as error:
                LOG.critical("the engine's watch crashed, restarting: report the traceback", exc_info=True)
                self._away(EngineError(f"its watch has crashed ({type(error).__name__})", Kind.MALFORMED))
            self._ended.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        contents = self._engine.read()
        self._hand(contents._replace(whole=True))
        for changed in self._engine.watch(contents.revision):
            if self._ended.is_set():
                return
            self._hand(changed)
            if self._outage.worked(WATCH, time.monotonic()):
                LOG.warning("the engine answers again: views are followed")

    def _away(self, error: EngineError) -> None:
        if self._ended.is_set():
            return
        self._hand(None)
        if self._outage.failed(WATCH, error, time.monotonic()):
            LOG.error("the engine does not answer: %s; the last view goes on being sent, new ones wait", error)
