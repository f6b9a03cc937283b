"""What several workloads ask of a fabric and a scale, and choose alike. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from experiments.workloads.plan import Scale, Transfer, WorkloadError
from topologies import FatTree

MAX_TRANSFERS = 500_000
"""In one plan, as each is a record that is kept."""


def need_scale(scale: Scale) -> None:
    """`WorkloadError` if nothing can be sent in that time or at that rate."""
    if not (math.isfinite(scale.seconds) and scale.seconds > 0):
        raise WorkloadError(f"nothing can be sent in {scale.seconds:g} s: give --seconds above 0")
    if not (math.isfinite(scale.rate_mbit) and scale.rate_mbit > 0):
        raise WorkloadError(f"nothing can be sent at {scale.rate_mbit:g} Mbit/s: give --rate above 0")


def need_figure(tree: FatTree, workload: str) -> None:
    """`WorkloadError` if the fabric lacks what figure 1 of the SOPA paper shows: four pods of two racks of two hosts."""
    if tree.k < 4:
        raise WorkloadError(
            f"{workload} is about hosts that several paths join, and k={tree.k} has one path and {tree.host_count} hosts: "
            "give --k 4 or more"
        )


def need_transfers(count: int, workload: str, instead: str) -> None:
    """`WorkloadError` if one run cannot tell that many transfers apart; ``instead`` says what to give."""
    if count > MAX_TRANSFERS:
        raise WorkloadError(f"{workload} takes more than {MAX_TRANSFERS} transfers, the most of one run: {instead}")


def first_between_pods(transfers: Iterable[Transfer]) -> tuple[int, ...]:
    """The first transfer that has all (k/2)² paths to take, worth recording for the figures of packets; none if none has."""
    for number, transfer in enumerate(transfers):
        if transfer.src.pod != transfer.dst.pod:
            return (number,)
    return ()
