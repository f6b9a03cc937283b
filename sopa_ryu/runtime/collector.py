"""Keeps Python's garbage collector from stopping the controller for long.

A full collection looks at every object: with 3,456 agents it took 170 ms, in which no failure is told and no request answered, and
it came whenever enough objects had been made. What has lived for a while is put out of its sight instead (`gc.freeze`, which
takes no time), and all of it is looked through seldom.
"""

from __future__ import annotations

import gc
import logging
import time

from ryu.lib import hub

LOG = logging.getLogger("sopa")

FREEZE_SECONDS = 1.0
FULL_SECONDS = 600.0


def keep_short() -> None:
    """For ever: freeze what lives, and look through everything now and then."""
    done = time.monotonic()
    while True:
        hub.sleep(FREEZE_SECONDS)
        gc.collect(1)  # what is young and dead already need not be kept
        gc.freeze()
        if time.monotonic() - done > FULL_SECONDS:
            began = time.monotonic()
            gc.unfreeze()
            collected = gc.collect()
            gc.freeze()
            done = time.monotonic()
            LOG.debug("%d unreachable objects collected in %.0f ms", collected, 1000 * (done - began))
