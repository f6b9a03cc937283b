"""Speed of the simulator in packet-hops per second, with its own event list and with the heap of ns-3 in alternation."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from statistics import median

from experiments.bench.frame import Results, times
from experiments.core.run import Run
from experiments.ns3 import SimulatorError, build
from experiments.ns3.simulate import ALLOCATOR, lines
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer
from experiments.workloads.pairs import inter_pod_permutation
from topologies import FatTree

SIZES = {4: 10_000_000, 8: 2_000_000, 16: 300_000}
"""Bytes per flow of a permutation, by k: about the same number of hops for each."""
ROUNDS = times(3)
SCALE = Scale(1000.0, 1.0)


def simulator() -> Results:
    """Simulate permutations with both event lists. Without ns-3, return the reason why nothing was measured."""
    try:
        program = str(build())
    except SimulatorError as error:
        return {"not measured": str(error)}
    environment = {**os.environ, "GLIBC_TUNABLES": ALLOCATOR}
    results: Results = {}
    for k, size in SIZES.items():
        tree = FatTree(k)
        pairs = inter_pod_permutation(tree, 1)
        plan = Plan(tuple(Transfer(src, dst, size) for src, dst in pairs), 1.0)
        text = "\n".join(lines(Run(tree, plan, "", named("sopa"), 1, SCALE)))
        speeds: dict[str, list[float]] = {"wheel": [], "heap": []}
        for _ in range(ROUNDS):
            for scheduler, speed in speeds.items():
                done = subprocess.run(
                    [program], input=f"{text}\nscheduler {scheduler}\n", capture_output=True, text=True, check=True,
                    env=environment,
                )  # fmt: skip
                whole = json.loads(done.stdout.splitlines()[-1])
                speed.append(whole["hops"] / whole["seconds"])
        wheel, heap = median(speeds["wheel"]), median(speeds["heap"])
        results[f"k={k}"] = {
            "hops": whole["hops"],
            "hops_per_second": round(wheel),
            "with_ns3_heap": round(heap),
            "ratio": round(wheel / heap, 2),
        }
    results["most_mib"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
    return results
