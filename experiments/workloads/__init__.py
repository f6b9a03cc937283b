"""Seeded workloads by name: who sends what to whom. A new workload is added to ``WORKLOADS`` of its module. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.suggestions import unknown
from experiments.workloads import bad_links, collectives, failures, loads, pairs, production, racks, small_examples
from experiments.workloads.failures import with_failed_links
from experiments.workloads.matrix import from_csv
from experiments.workloads.pairs import inter_pod_permutation
from experiments.workloads.plan import BadLink, Build, Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

__all__ = [
    "WORKLOADS",
    "BadLink",
    "Plan",
    "Scale",
    "Transfer",
    "Workload",
    "WorkloadError",
    "from_csv",
    "inter_pod_permutation",
    "named",
    "with_failed_links",
]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (pairs, production, failures, bad_links, small_examples, racks, loads, collectives)
    for workload in module.WORKLOADS
}


def named(name: str) -> Workload:
    """Return ``permutation``, or a workload with a number or a percentage: ``all-to-all+8``, ``grey-link+loss=0.1``.

    With ``+lossy=0.1`` behind it all links lose that percentage, with ``+slow=25`` core links into one aggregation switch have that
    share of their rate, with ``+family=6`` behind that it is by IPv6, without records of single packets.

    Raises `WorkloadError` if the name is unknown. The message lists the workloads.
    """
    base, plus, family = name.rpartition("+family=")
    if plus:
        if family != "6":
            raise WorkloadError(f"{name}: write +family=6; IPv4 is what workloads use without it")
        its = named(base)
        build = partial(_by_ipv6, its.build)
        return replace(its, name=f"{its.name}{plus}6", build=build, family=6, parameters={**its.parameters, "family": 6})
    for suffix, its_links in (("+lossy=", bad_links.lossy), ("+slow=", bad_links.slow)):
        base, plus, percent = name.rpartition(suffix)
        if plus:
            return its_links(named(base), percent)
    for module in (collectives, loads, bad_links):
        found = module.named(name)
        if found is not None:
            return found
    if name not in WORKLOADS:
        raise WorkloadError(f"{unknown('workload', name, WORKLOADS)}, or FILE.csv")
    return WORKLOADS[name]


def _by_ipv6(build: Build, tree: Clos, seed: int, scale: Scale) -> Plan:
    return replace(build(tree, seed, scale), family=6, traced=())
