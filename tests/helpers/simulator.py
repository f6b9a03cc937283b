"""Runs of the simulator program itself."""

import subprocess
from pathlib import Path

from experiments.workloads import Plan, Scale, Transfer
from experiments.workloads.pairs import inter_pod_permutation
from topologies import FatTree

MISSING = not list(Path("/usr/lib").glob("*/cmake/ns3/ns3Config.cmake"))
MEGABYTE = 1_000_000
SCALE = Scale(1000.0, 1.0)


def permutation(k: int = 4, size: int = MEGABYTE, seed: int = 1, traced: tuple[int, ...] = ()) -> Plan:
    """Return a plan in which every host sends one transfer to a host of another pod."""
    pairs = inter_pod_permutation(FatTree(k), seed)
    return Plan(tuple(Transfer(src, dst, size) for src, dst in pairs), 1.0, traced=traced)


def said(program: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run the program with its input as text."""
    return subprocess.run([program], input=text, capture_output=True, text=True)
