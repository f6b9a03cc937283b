"""What is left of a permutation's throughput beside a grey link, in the lab and in ns-3, and what probes cost without one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from experiments import ns3, workloads
from experiments.bench.measuring import measured_in_lab
from experiments.core.records import RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.report.bad_links import effect
from experiments.schemes import named
from experiments.workloads import Scale
from topologies import FatTree
from topologies.lab.network import default_rate

LAB_SCHEMES = ("sopa", "sopa+probes=off", "rps", "ecmp", "mcs")
NS3_SCHEMES = ("sopa+probes=on", "sopa", "rps", "ecmp", "mcs", "reps", "plb")
LOSSES = (0.1, 1.0, 10.0)
SEEDS, LAB_SECONDS, PAIRS, PAIR_SECONDS = (1, 2, 3), 45.0, 8, 20.0
NS3_MBIT, NS3_SECONDS = 100.0, 12.0
NS3_SIZES = (4, 8)
LIMIT_KEPT_PERCENT, LIMIT_THROUGHPUT_PERCENT, LIMIT_PROCESSOR_PERCENT = 97.0, 1.5, 5.0
"""Issue 19: at 1% with probes; probes on by off; processor time of the switches, likewise."""
SHORT = "SOPA_BENCH_SHORT"
"""If set: one seed, one pair and short runs, to see that the bench works."""

Execute = Callable[[str, str, int], RunRecord]
"""Runs a workload with a scheme and a seed."""


def measure() -> dict[str, Any]:
    """Run ``grey-link`` at each loss with each scheme, and the permutation in pairs with and without probes.

    Returns
    -------
    dict
        ``lab_SCHEME`` and ``ns3_kK_SCHEME``: by percentage of loss, the mean throughput of all flows after the link has become
        grey in percent of the same runs with a healthy link; ``..._crossing`` of the flows with a candidate path over it.
        ``pairs_throughput_percent`` and ``pairs_switches_processor_percent``: with probes by without, medians of pairs of runs one
        after the other, with their range; ``pairs_idle_percent``: the least idle time of the processors.
    """
    found: dict[str, Any] = measured_in_lab(_in_lab)
    for k in NS3_SIZES[:1] if os.environ.get(SHORT) else NS3_SIZES:
        for name in NS3_SCHEMES:
            _compare(found, f"ns3_k{k}", name, partial(_simulated, k))
    return found | {
        "limit_kept_percent_at_1": LIMIT_KEPT_PERCENT,
        "limit_throughput_percent": LIMIT_THROUGHPUT_PERCENT,
        "limit_switches_processor_percent": LIMIT_PROCESSOR_PERCENT,
    }


def _compare(found: dict[str, Any], where: str, scheme: str, execute: Execute) -> None:
    every: dict[float, list[float]] = {loss: [] for loss in LOSSES}
    crossing: dict[float, list[float]] = {loss: [] for loss in LOSSES}
    for seed in SEEDS[:1] if os.environ.get(SHORT) else SEEDS:
        healthy = effect(execute("grey-link+loss=0", scheme, seed))
        assert healthy is not None
        for loss in LOSSES:
            grey = effect(execute(f"grey-link+loss={loss:g}", scheme, seed))
            assert grey is not None
            every[loss].append(grey.after / healthy.after)
            crossing[loss].append(grey.crossing_after / healthy.crossing_after)
    for key, values in ((f"{where}_{scheme}", every), (f"{where}_{scheme}_crossing", crossing)):
        found[key] = {f"{loss:g}%": _percent(each) for loss, each in values.items()}
        print(f"{key}: {found[key]}", file=sys.stderr, flush=True)


def _percent(shares: list[float]) -> float:
    return round(100 * sum(shares) / len(shares), 1)


def _run(k: int, workload: str, scheme: str, seed: int, scale: Scale) -> Run:
    tree, its = FatTree(k), workloads.named(workload)
    return Run(tree, its.build(tree, seed, scale), its.name, named(scheme), seed, scale)


def _simulated(k: int, workload: str, scheme: str, seed: int) -> RunRecord:
    seconds = NS3_SECONDS / (4 if os.environ.get(SHORT) or k > NS3_SIZES[0] else 1)
    return ns3.simulate(_run(k, workload, scheme, seed, Scale(NS3_MBIT, seconds)))[0]


# -- in the lab -------------------------------------------------------------------------------------------------------


def _in_lab() -> dict[str, Any]:
    tree = FatTree(4)
    rate = default_rate(tree)
    seconds = 9.0 if os.environ.get(SHORT) else LAB_SECONDS
    found: dict[str, Any] = {"lab_mbit": rate}
    for name in LAB_SCHEMES:
        with EmulatedFabric(tree, named(name), rate) as fabric:

            def execute(workload: str, scheme: str, seed: int, fabric: EmulatedFabric = fabric) -> RunRecord:
                record, _ = perform(fabric, _run(4, workload, scheme, seed, Scale(rate, seconds)))
                if record.cpu_idle_percent < 10:
                    print(
                        f"{workload}, {scheme}: processors {record.cpu_idle_percent:g}% idle",
                        file=sys.stderr,
                        flush=True,
                    )
                return record

            _compare(found, "lab", name, execute)
    return found | _pairs(tree, rate)


def _pairs(tree: FatTree, rate: float) -> dict[str, Any]:
    """Run the permutation with and without probes in turn over the same switches."""
    scale = Scale(rate, 5.0 if os.environ.get(SHORT) else PAIR_SECONDS)
    rates: list[float] = []
    times: list[float] = []
    idle: list[float] = []
    with EmulatedFabric(tree, named("sopa"), rate) as fabric:
        for number in range(1 if os.environ.get(SHORT) else PAIRS):
            figures: dict[str, tuple[float, float]] = {}
            order = ("sopa", "sopa+probes=off")
            for name in order if number % 2 else order[::-1]:
                fabric.scheme = named(name)  # its agents begin with the run
                run = _run(4, "permutation", name, 1 + number, scale)
                before = _switch_seconds(fabric)
                record, flows = perform(fabric, run)
                figures[name] = (sum(flow.mbit for flow in flows) / len(flows), _switch_seconds(fabric) - before)
                idle.append(record.cpu_idle_percent)
            with_probes, without = (figures[name] for name in order)
            rates.append(100 * with_probes[0] / without[0])
            times.append(100 * with_probes[1] / without[1])
    return {
        "pairs_throughput_percent": _spread(rates),
        "pairs_switches_processor_percent": _spread(times),
        "pairs_idle_percent": min(idle),
    }


def _spread(values: list[float]) -> Mapping[str, float]:
    return {"median": round(median(values), 2), "least": round(min(values), 2), "most": round(max(values), 2)}


def _switch_seconds(fabric: EmulatedFabric) -> float:
    """Return the processor time of the switches so far: one daemon is all of them."""
    assert fabric.sopa is not None
    fields = Path(f"/proc/{fabric.sopa.lab.ovs.pid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
