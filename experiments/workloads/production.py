"""The production workload of the SOPA paper (section 4.4): many small flows, few large ones, one after the other. Seeded, pure."""

from __future__ import annotations

import random
from typing import NamedTuple

from experiments.workloads.checks import need_scale, need_transfers
from experiments.workloads.plan import Plan, Scale, Transfer, Workload
from topologies import FatTree, Host

MEGABYTE = 1_000_000
PAPERS_RATE_MBIT = 1000.0
MIN_FACTOR = 0.1


class Sizes(NamedTuple):
    """Part of the flows: their share of all, and the bytes between which the logarithm of their sizes is uniform."""

    share: float
    least: int
    most: int


SIZES = (
    Sizes(0.95, 1_000, MEGABYTE),
    Sizes(0.035, MEGABYTE, 10 * MEGABYTE),
    Sizes(0.015, 10 * MEGABYTE, 100 * MEGABYTE),
)
"""The paper gives two points: 95% of flows are below 1 MB, and less than 2% above 10 MB. Its source (Greenberg et al., VL2, SIGCOMM
2009, section 3) has most flows small, and files in chunks of 100 MB. Within a part, each decade is as likely as the next."""


def draw_size(choose: random.Random) -> int:
    """Bytes of one flow, before they are scaled."""
    part, place = choose.random(), choose.random()
    for sizes in SIZES[:-1]:
        if part < sizes.share:
            break
        part -= sizes.share
    else:
        sizes = SIZES[-1]
    return min(int(sizes.least * (sizes.most / sizes.least) ** place), sizes.most - 1)


def kind_of(size: int) -> str:
    """``mouse`` below 1 MB, ``elephant`` above 10 MB, ``medium`` between them: the paper's two points, before scaling."""
    if size < MEGABYTE:
        return "mouse"
    return "elephant" if size > 10 * MEGABYTE else "medium"


def size_factor(scale: Scale) -> float:
    """What sizes are multiplied by: the links' rate as a share of the paper's 1 Gbit/s, from 0.1 to 1.

    In proportion to the rate, a flow takes as long as in the paper: 10 MB take 80 ms. Below a tenth there would be nothing left to
    reorder, as 10 MB were 27 packets at 4 Mbit/s; a tenth leaves 690, and they take 2 s.
    """
    return min(1.0, max(MIN_FACTOR, scale.rate_mbit / PAPERS_RATE_MBIT))


def production(tree: FatTree, seed: int, scale: Scale) -> Plan:
    """Every host sends flow after flow, each to a host drawn at random, all beginning at once (SOPA paper, section 4.4).

    Each host has so many flows that they would last for the run even if its link were full all the time. A host's flows depend on
    the seed alone: in a longer run it has the same ones first.
    """
    need_scale(scale)
    hosts = list(tree.hosts())
    transfers: list[Transfer] = []
    for place in range(len(hosts)):
        _add_flows(transfers, hosts, place, seed, scale)
    return Plan(tuple(transfers), scale.seconds)


def _add_flows(transfers: list[Transfer], hosts: list[Host], place: int, seed: int, scale: Scale) -> None:
    """Flows of one host, to the end of a plan's."""
    choose = random.Random(f"{seed} production {FatTree.name(hosts[place])}")
    factor, left = size_factor(scale), scale.bytes_of()
    before: int | None = None
    while left > 0:
        size = draw_size(choose)
        other = choose.randrange(len(hosts) - 1)
        scaled = max(1, round(size * factor))
        transfer = Transfer(hosts[place], hosts[other + (other >= place)], scaled, after=before, kind=kind_of(size))
        before = len(transfers)
        transfers.append(transfer)
        left -= scaled
        need_transfers(len(transfers), "production", "give fewer --seconds, a lower --rate or a smaller --k")


PARAMETERS = {
    "flow_sizes": "95% 1 KB to 1 MB, 3.5% 1 to 10 MB, 1.5% 10 to 100 MB, log-uniform in each, times the size factor",
    "size_factor": "link rate / 1 Gbit/s, at least 0.1, at most 1",
}

WORKLOADS = (
    Workload(
        "production",
        "every host sends flow after flow, 95% below 1 MB, to random hosts (SOPA paper, section 4.4)",
        production,
        seconds=30.0,
        parameters=PARAMETERS,
    ),
)
