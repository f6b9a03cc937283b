"""Debian's ns-3 and the one built from source give the same results.

`scripts/install_ns3.sh --optimised` runs this after it has built the second: without it there is nothing to compare.
"""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

from experiments.core.run import Run
from experiments.ns3 import SIMULATED, build
from experiments.ns3.program import optimised
from experiments.ns3.run_lines import DCTCP
from experiments.ns3.simulate import lines
from experiments.schemes import named
from experiments.workloads import Scale
from experiments.workloads import named as workload_named
from tests.helpers.simulator import SCALE, permutation, said
from topologies import FatTree


def test_both_builds_give_the_same_results(tmp_path: Path) -> None:
    assert optimised(), "ns-3 is not built from source: make install-ns3 ARGS=--optimised"
    program, packaged = build(), build(directory=tmp_path, packaged=True)
    failure = replace(permutation(traced=(0,)), failed=("a0_0",), fail_after=0.002)
    short = Scale(1000.0, 0.01)
    many = workload_named("production").build(FatTree(4), 1, short)  # each host has many connections, that end and begin
    for (plan, scale), scheme, recovery in product(((failure, SCALE), (many, short)), SIMULATED, ("ns-3.37", "ns-3.20")):
        if scheme in DCTCP and recovery != "ns-3.37":  # which is another congestion control
            continue
        run = Run(FatTree(4), plan, "test", named(scheme), 1, scale, 20)
        text = "\n".join((*lines(run), f"loss-recovery {recovery}"))
        one, other = (said(built, text).stdout.splitlines() for built in (program, packaged))
        assert one[:-1] == other[:-1]
        assert {**json.loads(one[-1]), "seconds": 0} == {**json.loads(other[-1]), "seconds": 0}
