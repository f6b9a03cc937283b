"""Workloads of the MCS paper (Li, Bi, Wang, IFIP Networking 2017, section VI.A): two racks, a fabric at half load. Seeded, pure."""

from __future__ import annotations

import random

from experiments.workloads.checks import need_scale, need_transfers, need_two_hosts, poisson, smaller
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos, Level, Link, Switch

FILE_SHARE = 0.8
FAILURE_SHARE = 0.1
LOAD = 0.5
LARGE = 0.2
"""Mean size of a large flow as a share of what a host's link carries in the run: 50 MB in 0.2 s of 10 Gbit/s."""
SMALL_BYTES = 20_000
SMALL_FLOWS = 25
"""For each large one."""
PARETO_SHAPE = 2.0
MAX_SIZE = 10.0
"""Times the mean: bounds the time that a run takes."""


def rack_pairs(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which each host of the first rack sends a file to the host at its place in the last rack.

    All start together. At 10 Gbit/s and 0.05 s a file has the 50 MB of the paper.
    """
    need_scale(scale)
    _need_two_racks(tree, "rack-pairs")
    racks = list(tree.switches(Level.EDGE))
    pairs = zip(tree.hosts_of(racks[0]), tree.hosts_of(racks[-1]), strict=True)
    return Plan(tuple(Transfer(src, dst, scale.bytes_of(FILE_SHARE)) for src, dst in pairs), scale.seconds)


def rack_pair_failure(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with the first flow of `rack_pairs` alone, without a size; after a tenth of the run its rack loses an uplink."""
    need_scale(scale)
    _need_two_racks(tree, "rack-pair-failure")
    racks = list(tree.switches(Level.EDGE))
    src, dst = next(iter(tree.hosts_of(racks[0]))), next(iter(tree.hosts_of(racks[-1])))
    lost = tree.name(Link(racks[0], Switch(Level.AGGREGATION, racks[0].pod, 0)))
    failed, after = (lost,), FAILURE_SHARE * scale.seconds
    return Plan((Transfer(src, dst),), scale.seconds, failed=failed, fail_after=after)


def half_load(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with large and small flows between random hosts, which together load hosts' links by half.

    In 0.2 s of 10 Gbit/s they have the mean sizes of the paper, 50 MB and 20 KB. Sizes are drawn from two Pareto distributions, and
    gaps between flows of a kind from exponential ones. The paper does not give the shape, and not how many flows are small.
    """
    need_scale(scale)
    need_two_hosts(tree, "half-load")
    hosts = list(tree.hosts())
    found: list[Transfer] = []
    large = scale.bytes_of(LARGE)
    rates = LOAD * len(hosts) * scale.bytes_of() / (large + SMALL_FLOWS * SMALL_BYTES) / scale.seconds
    for kind, mean, rate in (("large", large, rates), ("small", SMALL_BYTES, SMALL_FLOWS * rates)):
        choose = random.Random(f"{seed} half-load {kind}")
        for start in poisson(choose, rate, scale.seconds):
            src, dst = choose.sample(hosts, 2)
            size = min(MAX_SIZE, choose.paretovariate(PARETO_SHAPE) * (PARETO_SHAPE - 1) / PARETO_SHAPE)
            found.append(Transfer(src, dst, max(1, round(size * mean)), start, kind=kind))
            need_transfers(len(found), "half-load", f"give {smaller(tree)}")
    return Plan(tuple(sorted(found, key=lambda one: one.start)), scale.seconds)


def _need_two_racks(tree: Clos, workload: str) -> None:
    if tree.pods * tree.edges < 2:
        raise WorkloadError(f"{workload} needs two racks, and a {tree.title} has one")


WORKLOADS = (
    Workload(
        "rack-pairs",
        "each host of the first rack sends a file to one of the last rack, 50 MB in 0.05 s of 10 Gbit/s (MCS paper, section VI.A)",
        rack_pairs,
        parameters={"flow_sizes": f"what a link carries in {FILE_SHARE:.0%} of the run"},
    ),
    Workload(
        "rack-pair-failure",
        "one flow from the first rack to the last, and an uplink fails after a tenth of the run (MCS paper, section VI.F)",
        rack_pair_failure,
        parameters={"flow_sizes": "none: the flow sends until the run is over", "failure": "e0_0-a0_0"},
    ),
    Workload(
        "half-load",
        "large and small flows between random hosts at half load, 50 MB and 20 KB in 0.2 s of 10 Gbit/s (MCS paper, section VI.A)",
        half_load,
        parameters={
            "flow_sizes": f"Pareto, shape {PARETO_SHAPE:g}, at most {MAX_SIZE:g} times the mean: what a link carries in "
            f"{LARGE:g} of the run, and {SMALL_BYTES} bytes",
            "load": LOAD,
            "small_flows_for_each_large_one": SMALL_FLOWS,
        },
    ),
)
