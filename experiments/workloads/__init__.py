"""Seeded workloads by name: who sends what to whom. A new workload is added to ``WORKLOADS`` of its module. Pure."""

from __future__ import annotations

from experiments.suggestions import unknown
from experiments.workloads import bad_links, collectives, failures, many_to_one, pairs, production, racks, small_examples
from experiments.workloads.failures import with_failed_links
from experiments.workloads.matrix import from_csv
from experiments.workloads.pairs import inter_pod_permutation
from experiments.workloads.plan import BadLink, Plan, Scale, Transfer, Workload, WorkloadError

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
    for module in (pairs, production, failures, bad_links, small_examples, racks, many_to_one, collectives)
    for workload in module.WORKLOADS
}


def named(name: str) -> Workload:
    """Return ``permutation``, or a workload with a number or a percentage: ``all-to-all+8``, ``grey-link+loss=0.1``.

    Raises `WorkloadError` if the name is unknown. The message lists the workloads.
    """
    for module in (collectives, many_to_one, bad_links):
        found = module.named(name)
        if found is not None:
            return found
    if name not in WORKLOADS:
        raise WorkloadError(f"{unknown('workload', name, WORKLOADS)}, or FILE.csv")
    return WORKLOADS[name]
