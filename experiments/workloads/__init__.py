"""Who sends what to whom: seeded workloads, pure. Each is in `WORKLOADS` by its name; a new one is added to its module's."""

from __future__ import annotations

import difflib

from experiments.workloads import pairs, production, small_examples, switch_failure
from experiments.workloads.matrix import from_csv
from experiments.workloads.permutation import inter_pod_permutation
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
    """The workload of that name.

    Raises
    ------
    WorkloadError
        If there is none; the text lists them.
    """
    if name not in WORKLOADS:
        near = difflib.get_close_matches(name, WORKLOADS, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise WorkloadError(f"there is no workload {name!r}: {meant}there are {', '.join(WORKLOADS)}, and any FILE.csv")
    return WORKLOADS[name]
