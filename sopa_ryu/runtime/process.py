"""The resources of this process: open files, short pauses for garbage collection; and its new beginning.

A full collection examines every object: with 3,456 agents it took 170 ms, in which the controller handled no failure and no
request, and it ran whenever enough objects had been allocated. Instead, long-lived objects are moved out of the collector's
generations (`gc.freeze`, which takes constant time) and examined every ten minutes.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sys
import time

LOG = logging.getLogger("sopa")

FREEZE_SECONDS = 1.0
FULL_SECONDS = 600.0


def allow_files() -> int:
    """Raise the limit of open files to the hard limit and return it: each connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


_begins_anew = False


def begin_anew() -> None:
    """Stop as on SIGTERM, after which `continue_anew` has this process run its program from the beginning."""
    global _begins_anew
    _begins_anew = True
    os.kill(os.getpid(), signal.SIGTERM)


def continue_anew() -> None:
    """Run the program from the beginning, with the same arguments and process id, if `begin_anew` was called."""
    if _begins_anew:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it stays ignored until the program takes it again
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class Freezer:
    """Live objects are frozen at each step, and all are collected every `FULL_SECONDS`; steps are `FREEZE_SECONDS` apart."""

    def __init__(self) -> None:
        self._done = time.monotonic()

    def step(self) -> None:
        """Freeze what lives."""
        gc.collect(1)  # so that young objects that are already dead are not frozen
        gc.freeze()
        if time.monotonic() - self._done > FULL_SECONDS:
            began = time.monotonic()
            gc.unfreeze()
            collected = gc.collect()
            gc.freeze()
            self._done = time.monotonic()
            LOG.debug("%d unreachable objects collected in %.0f ms", collected, 1000 * (self._done - began))
