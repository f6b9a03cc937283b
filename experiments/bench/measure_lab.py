"""Start time and memory of the k=8 lab: 80 switches, 128 hosts, 128 agents."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from experiments.bench.measuring import measured_in_lab
from experiments.emulation.sopa_lab import SopaLab
from topologies import FatTree
from topologies.lab.network import default_rate

K = 8


def measure() -> dict[str, Any]:
    """Start the lab with controller and agents in namespaces of its own, and stop it.

    Returns:
        ``up_seconds`` until every agent has acknowledged, ``down_seconds``, and ``mib``: the decrease of the available memory.
    """
    return measured_in_lab(_inside)


def _inside() -> dict[str, Any]:
    tree = FatTree(K)
    before, started = _available_mib(), time.monotonic()
    with SopaLab(tree, default_rate(tree)):
        up, mib = time.monotonic() - started, before - _available_mib()
    return {
        "k": K,
        "switches": tree.switch_count,
        "agents": tree.host_count,
        "up_seconds": round(up, 1),
        "limit_seconds": 120.0,
        "down_seconds": round(time.monotonic() - started - up, 1),
        "mib": round(mib),
        "limit_mib": 6144,
    }


def _available_mib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable"))
