"""Runs of the simulator program itself."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.ns3 import simulate
from experiments.ns3.program import is_installed
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer
from experiments.workloads import named as workload_named
from experiments.workloads.pairs import inter_pod_permutation
from topologies import Clos, FatTree

NEEDS_NS3 = pytest.mark.skipif(not is_installed(), reason="ns-3 is missing: make install-ns3")
MEGABYTE = 1_000_000
SCALE = Scale(1000.0, 1.0)
TREE = FatTree(4)


def permutation(k: int = 4, size: int = MEGABYTE, seed: int = 1, traced: tuple[int, ...] = ()) -> Plan:
    """Return a plan in which every host sends one transfer to a host of another pod."""
    pairs = inter_pod_permutation(FatTree(k), seed)
    return Plan(tuple(Transfer(src, dst, size) for src, dst in pairs), 1.0, traced=traced)


def transfers(size: int | None, *pairs: str, **plan: object) -> Plan:
    """Return a plan of transfers between hosts of a fat-tree, each pair as ``h0_0_2 h1_0_2``."""
    ends = [map(TREE.host, pair.split()) for pair in pairs]
    seconds = plan.pop("seconds", 1.0)
    return Plan(tuple(Transfer(src, dst, size) for src, dst in ends), seconds, **plan)  # type: ignore[arg-type]


def said(program: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], input=text, capture_output=True, text=True)


def simulated(
    plan: Plan | str,
    scheme: str = "sopa",
    tree: Clos = TREE,
    *,
    seed: int = 1,
    scale: Scale = SCALE,
    queue: int = 100,
    **options: int | str,
) -> tuple[RunRecord, list[FlowRecord]]:
    """Simulate a plan, or a workload by its name; names of options have underscores."""
    wanted = workload_named(plan).build(tree, seed, scale) if isinstance(plan, str) else plan
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return simulate(Run(tree, wanted, "test", named(scheme), seed, scale, queue, given))


def taken(run: RunRecord, flow: int = 0, after: float = 0.0) -> Counter[tuple[float, ...]]:
    """Count the packets of a flow by path."""
    return Counter(tuple(up for up in row[2:4] if up != 255) for row in run.arrivals[str(flow)] if row[0] >= after)
