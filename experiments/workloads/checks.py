"""Checks and choices that several workloads share. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from experiments.workloads.plan import Scale, Transfer, WorkloadError
from topologies import Clos

MAX_TRANSFERS = 500_000
"""Limit for one plan: each transfer becomes a record."""


def need_scale(scale: Scale) -> None:
    """Raise `WorkloadError` unless the time and the rate are positive and finite."""
    if not (math.isfinite(scale.seconds) and scale.seconds > 0):
        raise WorkloadError(f"a run of {scale.seconds:g} s is impossible: give --seconds above 0")
    if not (math.isfinite(scale.rate_mbit) and scale.rate_mbit > 0):
        raise WorkloadError(f"links of {scale.rate_mbit:g} Mbit/s are impossible: give --rate above 0")


def need_figure(tree: Clos, workload: str) -> None:
    """Raise `WorkloadError` unless the fabric contains figure 1 of the SOPA paper: four pods of two racks of two hosts."""
    if tree.k is None or tree.k < 4:
        raise WorkloadError(
            f"{workload} needs the fat-tree of figure 1, and this is a {tree.title}: give --k 4 or more"
        )


def need_transfers(count: int, workload: str, instead: str) -> None:
    """Raise `WorkloadError` if a plan has too many transfers. ``instead`` says what to change."""
    if count > MAX_TRANSFERS:
        raise WorkloadError(f"{workload} has more than {MAX_TRANSFERS} transfers, the limit of one run: {instead}")


def first_between_pods(transfers: Iterable[Transfer]) -> tuple[int, ...]:
    """Return the index of the first transfer between pods, which has all (k/2)² candidate paths; empty if there is none."""
    for number, transfer in enumerate(transfers):
        if transfer.src.pod != transfer.dst.pod:
            return (number,)
    return ()
