"""Who sends what to whom: seeded workloads, pure. Each is in `WORKLOADS` by its name; a new one is added to its module's."""

from __future__ import annotations

import difflib

from . import failures, figures, pairs, production
from .matrix import from_csv
from .model import Plan, Scale, Transfer, Workload, WorkloadError
from .permutation import inter_pod_permutation

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
    for workload in (*pairs.WORKLOADS, *production.WORKLOADS, *failures.WORKLOADS, *figures.WORKLOADS)
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
