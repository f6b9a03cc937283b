"""Memory, open files and green threads of this process, to diagnose leaks."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import greenlet


def process() -> dict[str, Any]:
    """Return the body of ``GET /sopa/v1/process``.

    Returns:
        ``pid``, ``memory_mib`` (resident), ``open_files`` and ``greenlets`` (those that have not ended). It examines every
        object: some 10 ms, and 0.1 s with thousands of agents.
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    gc.unfreeze()  # include the objects that `collector` has frozen
    # isinstance would ask a weak proxy for its class, which fails if its object is gone
    greenlets = sum(1 for each in gc.get_objects() if issubclass(type(each), greenlet.greenlet) and not each.dead)
    gc.freeze()
    return {
        "pid": os.getpid(),
        "memory_mib": round(int(fields["VmRSS"].split()[0]) / 1024, 1),
        "open_files": len(os.listdir("/proc/self/fd")),
        "greenlets": greenlets,
    }
