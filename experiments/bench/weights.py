"""SOPA with and without weights of candidate paths, on uneven fabrics in the lab, compared with the best possible rates."""

from __future__ import annotations

from statistics import mean

from experiments.bench.frame import Results, in_lab, planned, times
from experiments.bench.optimum import max_min
from experiments.core.records import FlowRecord
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.schemes import named
from experiments.workloads import Scale
from topologies import Clos, FatTree
from topologies.lab.links import FRAME_BYTES

RATE_MBIT = 4.0
"""Of hosts' links: what a lab of k=4 bears with processor time to spare."""
SECONDS = 10.0
SEEDS = (1, 2, 3)[: times(3)]
SEGMENT_BYTES = 1448
"""Payload of a full frame: an MTU of 1500 bytes, headers of IPv4 and TCP, and TCP's timestamps."""
WITH, WITHOUT = "sopa", "sopa+weights=off"
FABRICS = {
    "leaf-spine": Clos(1, 3, 2, 0, 3, mbit={"host": 1000, "edge": 2000}, links={f"e0_{leaf}-a0_1": 1000 for leaf in range(3)}),
    "k=4 without two links": Clos(4, 2, 2, 4, 2, links={"e0_0-a0_1": "absent", "a3_1-c1_1": "absent"}),
}


@in_lab
def weights() -> Results:
    """Run permutations over each fabric, and figure 7 of the SOPA paper over a whole one.

    ``of fair share``: the mean of a flow's rate by its max-min fair one of the same permutation, each split as is best; ``ratio``
    of the means with and without weights.
    """
    results: Results = {}
    for name, tree in FABRICS.items():
        means = {}
        for scheme in (WITH, WITHOUT):
            rates, shares, idles = _permutations(tree, scheme)
            means[scheme] = mean(rates)
            results[f"{name}, {scheme}"] = {
                "mbit": round(mean(rates), 2),
                "least": round(min(rates), 2),
                "of fair share": round(mean(rate / best for rate, best in zip(rates, shares, strict=True)), 3),
                "idle_percent": idles,
            }
        results[f"{name}, ratio"] = round(means[WITH] / means[WITHOUT], 2)
    whole = FatTree(4)
    for scheme in (WITH, WITHOUT):
        with EmulatedFabric(whole, named(scheme), RATE_MBIT) as fabric:
            flows, idle = _run(fabric, whole, scheme, "asymmetric", 1)
        results[f"asymmetric, {scheme}"] = {"mbit": [round(flow.mbit, 2) for flow in flows], "idle_percent": idle}
    return results


def _permutations(tree: Clos, scheme: str) -> tuple[list[float], list[float], list[float]]:
    """Return the rates of all flows of all seeds, the best possible ones, and how idle the processors were."""
    rates: list[float] = []
    shares: list[float] = []
    idle: list[float] = []
    payload = RATE_MBIT / tree.level_rate("host") * SEGMENT_BYTES / FRAME_BYTES
    with EmulatedFabric(tree, named(scheme), RATE_MBIT) as fabric:
        for seed in SEEDS:
            flows, percent = _run(fabric, tree, scheme, "permutation", seed)
            rates += [flow.mbit for flow in flows]
            pairs = [(tree.host(flow.src), tree.host(flow.dst)) for flow in flows]
            shares += [payload * share for share in max_min(tree, pairs)]
            idle.append(percent)
    return rates, shares, idle


def _run(fabric: EmulatedFabric, tree: Clos, scheme: str, workload: str, seed: int) -> tuple[list[FlowRecord], float]:
    record, flows = perform(fabric, planned(tree, workload, scheme, seed, Scale(RATE_MBIT, SECONDS)))
    return flows, record.cpu_idle_percent
