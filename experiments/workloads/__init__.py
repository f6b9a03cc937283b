"""Seeded workloads by name: who sends what to whom. A new workload is added to ``WORKLOADS`` of its module. Pure."""

from __future__ import annotations

from experiments.suggestions import unknown
from experiments.workloads import pairs, production, small_examples, switch_failure
from experiments.workloads.matrix import from_csv
from experiments.workloads.pairs import inter_pod_permutation
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError

__all__ = [
    "WORKLOADS",
    "Plan",
    "Scale",
    "Transfer",
    "Workload",
    "WorkloadError",
    "from_csv",
    "inter_pod_permutation",
    "named",
]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (*pairs.WORKLOADS, *production.WORKLOADS, *switch_failure.WORKLOADS, *small_examples.WORKLOADS)
}


def named(name: str) -> Workload:
    """Return the workload with a name.

    Raises
    ------
    WorkloadError
        If the name is unknown. The message lists the workloads.
    """
    if name not in WORKLOADS:
        raise WorkloadError(f"{unknown('workload', name, WORKLOADS)}, or FILE.csv")
    return WORKLOADS[name]
