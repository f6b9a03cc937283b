"""What is left of a permutation's throughput beside a grey link in the lab, and what probes cost without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from experiments import workloads
from experiments.bench.measuring import measured_in_lab, say
from experiments.core.records import RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.report.bad_links import effect
from experiments.schemes import named
from experiments.workloads import Scale
from topologies import FatTree
from topologies.lab.network import default_rate

SCHEMES = ("sopa", "sopa+probes=off", "rps", "ecmp", "mcs")
LOSSES = (0.1, 1.0, 10.0)
SEEDS, SECONDS, PAIRS, PAIR_SECONDS = (1, 2), 45.0, 8, 20.0
LIMIT_KEPT_PERCENT, LIMIT_THROUGHPUT_PERCENT, LIMIT_PROCESSOR_PERCENT = 97.0, 1.5, 5.0
"""Issue 19: at 1% with probes; probes on by off; processor time of the switches, likewise."""
SHORT = bool(os.environ.get("SOPA_BENCH_SHORT"))
"""One seed, one pair and short runs, to see that the measurement works."""

Execute = Callable[[str, str, int], RunRecord]
"""Runs a workload with a scheme and a seed."""


def measure() -> dict[str, Any]:
    """Run ``grey-link`` at each loss with each scheme, and the permutation in pairs with and without probes.

    Returns:
        By scheme and percentage of loss, the mean throughput of all flows after the link has become grey in percent of the same
        runs with a healthy link; ``..., crossing`` of the flows with a candidate path over it. ``pairs_throughput_percent`` and
        ``pairs_switches_processor_percent``: with probes by without, medians of pairs of runs one after the other, with their
        range; ``least_idle_percent``: of the processors, in all runs.
    """
    return measured_in_lab(_in_lab) | {
        "limit_kept_percent_at_1": LIMIT_KEPT_PERCENT,
        "limit_throughput_percent": LIMIT_THROUGHPUT_PERCENT,
        "limit_switches_processor_percent": LIMIT_PROCESSOR_PERCENT,
    }


def compared(
    scheme: str, execute: Execute, seeds: tuple[int, ...], losses: tuple[float, ...] = LOSSES
) -> dict[str, Any]:
    """Return what a grey link leaves to a scheme, in percent of a healthy one: of all flows, and of those that may cross it.

    Args:
        seeds, losses: Losses in percent.
    """
    every: dict[str, list[float]] = {f"{loss:g}%": [] for loss in losses}
    crossing: dict[str, list[float]] = {name: [] for name in every}
    for seed in seeds[:1] if SHORT else seeds:
        healthy = effect(execute("grey-link+loss=0", scheme, seed))
        assert healthy is not None
        for loss in losses:
            grey = effect(execute(f"grey-link+loss={loss:g}", scheme, seed))
            assert grey is not None
            every[f"{loss:g}%"].append(grey.after / healthy.after)
            crossing[f"{loss:g}%"].append(grey.crossing_after / healthy.crossing_after)
    return {scheme: _means(every), f"{scheme}, crossing": _means(crossing)}


def planned(k: int, workload: str, scheme: str, seed: int, scale: Scale) -> Run:
    """Return a run of a workload on a fat-tree."""
    tree, its = FatTree(k), workloads.named(workload)
    return Run(tree, its.build(tree, seed, scale), its.name, named(scheme), seed, scale)


def _means(shares: Mapping[str, list[float]]) -> dict[str, float]:
    return {loss: round(100 * sum(each) / len(each), 1) for loss, each in shares.items()}


def _in_lab() -> dict[str, Any]:
    tree = FatTree(4)
    rate = default_rate(tree)
    scale = Scale(rate, 9.0 if SHORT else SECONDS)
    idle: list[float] = []
    found: dict[str, Any] = {"mbit": rate}
    for name in SCHEMES:
        with EmulatedFabric(tree, named(name), rate) as fabric:

            def execute(workload: str, scheme: str, seed: int, fabric: EmulatedFabric = fabric) -> RunRecord:
                record, _ = perform(fabric, planned(4, workload, scheme, seed, scale))
                idle.append(record.cpu_idle_percent)
                return record

            found |= compared(name, execute, SEEDS)
        say(str({key: value for key, value in found.items() if key.startswith(name)}))
    return found | _pairs(tree, rate, idle) | {"least_idle_percent": min(idle)}


def _pairs(tree: FatTree, rate: float, idle: list[float]) -> dict[str, Any]:
    """Run the permutation with and without probes in turn over the same switches."""
    scale = Scale(rate, 5.0 if SHORT else PAIR_SECONDS)
    rates: list[float] = []
    times: list[float] = []
    with EmulatedFabric(tree, named("sopa"), rate) as fabric:
        for number in range(1 if SHORT else PAIRS):
            figures: dict[str, tuple[float, float]] = {}
            order = ("sopa", "sopa+probes=off")
            for name in order if number % 2 else order[::-1]:
                fabric.scheme = named(name)  # its agents begin with the run
                before = _switch_seconds(fabric)
                record, flows = perform(fabric, planned(4, "permutation", name, 1 + number, scale))
                figures[name] = (sum(flow.mbit for flow in flows) / len(flows), _switch_seconds(fabric) - before)
                idle.append(record.cpu_idle_percent)
            with_probes, without = (figures[name] for name in order)
            rates.append(100 * with_probes[0] / without[0])
            times.append(100 * with_probes[1] / without[1])
    return {"pairs_throughput_percent": _spread(rates), "pairs_switches_processor_percent": _spread(times)}


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "least": round(min(values), 2), "most": round(max(values), 2)}


def _switch_seconds(fabric: EmulatedFabric) -> float:
    """Return the processor time of the switches so far: one daemon is all of them."""
    assert fabric.sopa is not None
    fields = Path(f"/proc/{fabric.sopa.lab.ovs.pid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
