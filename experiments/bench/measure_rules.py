"""How long every rule of a k=48 fabric takes, and how much memory all of them held at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flowrules.switch_rules import fabric_rules
from topologies import FatTree

K = 48


def measure() -> dict[str, Any]:
    """Make all rules in a process of its own, so that the memory is theirs.

    Returns
    -------
    dict
        ``seconds`` and ``mib`` (the process's peak; ``python_mib`` of it before it began), and the number of ``switches``,
        ``flows`` and ``groups``.
    """
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _peak_mib() -> float:
    # not getrusage(): its peak includes the parent's, from before this process's exec
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM"))


def _measure_here() -> dict[str, Any]:
    before = _peak_mib()
    started = time.perf_counter()
    rules = dict(fabric_rules(FatTree(K)))
    seconds = time.perf_counter() - started
    return {
        "k": K,
        "switches": len(rules),
        "flows": sum(len(its.flows) for its in rules.values()),
        "groups": sum(len(its.groups) for its in rules.values()),
        "seconds": round(seconds, 3),
        "limit_seconds": 10.0,
        "mib": _peak_mib(),
        "limit_mib": 1024.0,
        "python_mib": before,
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here()))
