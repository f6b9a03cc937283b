"""Short pauses for garbage collection.

A full collection examines every object: with 3,456 agents it took 170 ms, in which the controller handled no failure and no
request, and it ran whenever enough objects had been allocated. Instead, long-lived objects are moved out of the collector's
generations (`gc.freeze`, which takes constant time) and examined every ten minutes.
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
    """Run until killed: freeze live objects every second, collect all every `FULL_SECONDS`."""
    done = time.monotonic()
    while True:
        hub.sleep(FREEZE_SECONDS)
        gc.collect(1)  # so that young objects that are already dead are not frozen
        gc.freeze()
        if time.monotonic() - done > FULL_SECONDS:
            began = time.monotonic()
            gc.unfreeze()
            collected = gc.collect()
            gc.freeze()
            done = time.monotonic()
            LOG.debug("%d unreachable objects collected in %.0f ms", collected, 1000 * (done - began))
