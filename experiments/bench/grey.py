"""What is left of a permutation's throughput beside a grey link in the lab and in ns-3, and what probes cost without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

from experiments import ns3
from experiments.bench.frame import SHORT, Results, in_lab, planned, processor_seconds, say, times
from experiments.core.records import RunRecord
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.report.faults import effect
from experiments.schemes import named
from experiments.workloads import Scale
from topologies import FatTree
from topologies.lab.network import default_rate

TREE = FatTree(4)
SCHEMES = ("sopa", "sopa+probes=off", "rps", "ecmp", "mcs")[: times(5)]
LOSSES = (0.1, 1.0, 10.0)[: times(3)]
SEEDS, SECONDS = (1, 2)[: times(2)], 9.0 if SHORT else 45.0
PAIRS, PAIR_SECONDS = times(8), 5.0 if SHORT else 20.0
LIMIT_KEPT_PERCENT, LIMIT_THROUGHPUT_PERCENT, LIMIT_PROCESSOR_PERCENT = 97.0, 1.5, 5.0
"""Issue 19: at 1% with probes; probes on by off; processor time of the switches, likewise."""
Execute = Callable[[str, str, int], RunRecord]
"""Runs a workload with a scheme and a seed."""


@in_lab
def grey() -> Results:
    """Run ``grey-link`` at each loss with each scheme, and the permutation in pairs with and without probes.

    By scheme and percentage of loss: the mean throughput of all flows after the link has become grey in percent of the same runs
    with a healthy link; ``..., crossing`` of the flows with a candidate path over it. ``pairs_*_percent``: with probes by without,
    medians of pairs of runs one after the other, with their range.
    """
    rate = default_rate(TREE)
    scale = Scale(rate, SECONDS)
    idle: list[float] = []
    results: Results = {"mbit": rate}
    for name in SCHEMES:
        with EmulatedFabric(TREE, named(name), rate) as fabric:

            def execute(workload: str, scheme: str, seed: int, fabric: EmulatedFabric = fabric) -> RunRecord:
                record, _ = perform(fabric, planned(TREE, workload, scheme, seed, scale))
                idle.append(record.cpu_idle_percent)
                return record

            results |= compared(name, execute, SEEDS)
        say(str({key: value for key, value in results.items() if key.startswith(name)}))
    return {
        **results,
        **_pairs(rate, idle),
        "least_idle_percent": min(idle),
        "limit_kept_percent_at_1": LIMIT_KEPT_PERCENT,
        "limit_throughput_percent": LIMIT_THROUGHPUT_PERCENT,
        "limit_switches_processor_percent": LIMIT_PROCESSOR_PERCENT,
    }


def compared(scheme: str, execute: Execute, seeds: tuple[int, ...], losses: tuple[float, ...] = LOSSES) -> Results:
    """Return what a grey link leaves to a scheme, in percent of a healthy one: of all flows, and of those that may cross it."""
    every: dict[str, list[float]] = {f"{loss:g}%": [] for loss in losses}
    crossing: dict[str, list[float]] = {name: [] for name in every}
    for seed in seeds:
        healthy = effect(execute("grey-link+loss=0", scheme, seed))
        assert healthy is not None
        for loss in losses:
            bad = effect(execute(f"grey-link+loss={loss:g}", scheme, seed))
            assert bad is not None
            every[f"{loss:g}%"].append(bad.after / healthy.after)
            crossing[f"{loss:g}%"].append(bad.crossing_after / healthy.crossing_after)
    return {scheme: _means(every), f"{scheme}, crossing": _means(crossing)}


def _means(shares: Mapping[str, list[float]]) -> dict[str, float]:
    return {loss: round(100 * sum(each) / len(each), 1) for loss, each in shares.items()}


def _pairs(rate: float, idle: list[float]) -> Results:
    """Run the permutation with and without probes in turn over the same switches."""
    scale = Scale(rate, PAIR_SECONDS)
    rates: list[float] = []
    times: list[float] = []
    with EmulatedFabric(TREE, named("sopa"), rate) as fabric:
        assert fabric.sopa is not None
        switches = fabric.sopa.lab.ovs.pid()  # one daemon is all of them
        for number in range(PAIRS):
            figures: dict[str, tuple[float, float]] = {}
            order = ("sopa", "sopa+probes=off")
            for name in order if number % 2 else order[::-1]:
                fabric.scheme = named(name)  # its agents begin with the run
                before = processor_seconds(switches)
                record, flows = perform(fabric, planned(TREE, "permutation", name, 1 + number, scale))
                figures[name] = (sum(flow.mbit for flow in flows) / len(flows), processor_seconds(switches) - before)
                idle.append(record.cpu_idle_percent)
            with_probes, without = (figures[name] for name in order)
            rates.append(100 * with_probes[0] / without[0])
            times.append(100 * with_probes[1] / without[1])
    return {"pairs_throughput_percent": _spread(rates), "pairs_switches_processor_percent": _spread(times)}


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "least": round(min(values), 2), "most": round(max(values), 2)}


# -- in ns-3 --------------------------------------------------------------------------------------------------------------

NS3_SCHEMES = ("sopa+probes=on", "sopa", "rps", "ecmp", "drb", "mcs", "reps", "plb")
SIZES = {4: (Scale(40.0, 45.0), NS3_SCHEMES, (0.1, 1.0, 10.0)), 8: (Scale(20.0, 45.0), NS3_SCHEMES[:2], (1.0,))}
"""By k: rate and seconds, schemes, and losses in percent. A host judges by the last 30 s, so runs are long and links slow."""
NS3_SEEDS = (1,)


def grey_ns3() -> Results:
    """Simulate what `grey` runs, by the size of the fat-tree, as many runs at a time as there are processors."""
    parts = [(k, name) for k in ((4,) if SHORT else SIZES) for name in SIZES[k][1]]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        results = list(workers.map(_part, parts))
    return {f"k={k}, {name}": value for (k, _), each in zip(parts, results, strict=True) for name, value in each.items()}


def _part(which: tuple[int, str]) -> Results:
    k, scheme = which
    return compared(scheme, partial(_simulated, k), NS3_SEEDS, SIZES[k][2])


def _simulated(k: int, workload: str, scheme: str, seed: int) -> RunRecord:
    scale = SIZES[k][0]
    if SHORT:
        scale = Scale(scale.rate_mbit, scale.seconds / 20)
    return ns3.simulate(planned(FatTree(k), workload, scheme, seed, scale))[0]
