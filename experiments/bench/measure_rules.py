"""Time and memory to compute every rule of a k=48 fabric."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from experiments.bench.measuring import peak_mib
from flowrules.switch_rules import fabric_rules
from topologies import FatTree

K = 48


def measure() -> dict[str, Any]:
    """Compute all rules in a process of their own, so that its memory is theirs.

    Returns:
        ``seconds`` and ``mib`` (peak of the process; ``python_mib`` before the computation), and the number of ``switches``,
        ``flows`` and ``groups``.
    """
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measure_here() -> dict[str, Any]:
    before = peak_mib()
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
        "mib": peak_mib(),
        "limit_mib": 1024.0,
        "python_mib": before,
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here()))
