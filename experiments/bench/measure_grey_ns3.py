"""What is left of a permutation's throughput beside a grey link in ns-3, with more schemes and at k=8."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from experiments import ns3
from experiments.bench.measure_grey import SHORT, compared, planned
from experiments.core.records import RunRecord
from experiments.workloads import Scale

SCHEMES = ("sopa+probes=on", "sopa", "rps", "ecmp", "drb", "mcs", "reps", "plb")
SIZES = {4: (Scale(40.0, 45.0), SCHEMES, (0.1, 1.0, 10.0)), 8: (Scale(20.0, 45.0), SCHEMES[:2], (1.0,))}
"""By k: rate and seconds, schemes, and losses in percent. A host judges by the last 30 s, so runs are long and links slow."""
SEEDS = (1,)


def measure() -> dict[str, Any]:
    """Simulate ``grey-link`` at each loss with each scheme, as many runs at a time as there are processors.

    Returns:
        As of ``measure_grey``, by the size of the fat-tree.
    """
    parts = [(k, name) for k in ((4,) if SHORT else SIZES) for name in SIZES[k][1]]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        found = list(workers.map(_part, parts))
    return {f"k={k}, {name}": value for (k, _), each in zip(parts, found, strict=True) for name, value in each.items()}


def _part(which: tuple[int, str]) -> dict[str, Any]:
    k, scheme = which
    return compared(scheme, partial(_simulated, k), SEEDS, SIZES[k][2])


def _simulated(k: int, workload: str, scheme: str, seed: int) -> RunRecord:
    scale = SIZES[k][0]
    if SHORT:
        scale = Scale(scale.rate_mbit, scale.seconds / 20)
    return ns3.simulate(planned(k, workload, scheme, seed, scale))[0]
