"""The production workload of the SOPA paper (section 4.4): many small and few large flows, one after the other. Seeded, pure."""

from __future__ import annotations

import random
from typing import NamedTuple

from experiments.workloads.checks import need_scale, need_transfers, need_two_hosts, smaller
from experiments.workloads.plan import Plan, Scale, Transfer, Workload
from topologies import Clos, Host

MEGABYTE = 1_000_000
PAPERS_RATE_MBIT = 1000.0
MIN_FACTOR = 0.1


class Sizes(NamedTuple):
    """A class of flows: its share of all flows, and the sizes in bytes between which the logarithm is uniform."""

    share: float
    smallest: int
    largest: int


SIZES = (Sizes(0.95, 1_000, MEGABYTE), Sizes(0.035, MEGABYTE, 10 * MEGABYTE), Sizes(0.015, 10 * MEGABYTE, 100 * MEGABYTE))
"""The paper gives two points: 95% of flows are below 1 MB, and less than 2% above 10 MB. According to its source
(Greenberg et al., VL2, SIGCOMM 2009, section 3) most flows are small, and files are transferred in chunks of 100 MB.
Within a class every decade is equally likely."""


def draw_size(choose: random.Random) -> int:
    """Return the size of one flow in bytes, before scaling."""
    part, place = choose.random(), choose.random()
    for sizes in SIZES[:-1]:
        if part < sizes.share:
            break
        part -= sizes.share
    else:
        sizes = SIZES[-1]
    return min(int(sizes.smallest * (sizes.largest / sizes.smallest) ** place), sizes.largest - 1)


def kind_of(size: int) -> str:
    """Return ``mouse`` below 1 MB, ``elephant`` above 10 MB, else ``medium``: the two points of the paper, before scaling."""
    if size < MEGABYTE:
        return "mouse"
    return "elephant" if size > 10 * MEGABYTE else "medium"


def size_factor(scale: Scale) -> float:
    """Return the factor that scales flow sizes: the link rate as a share of the 1 Gbit/s of the paper, from 0.1 to 1.

    With sizes proportional to the rate, a flow takes as long as in the paper: 80 ms for 10 MB. Below a tenth nothing
    would be left to reorder: 10 MB would be 27 packets at 4 Mbit/s. A tenth leaves 690 packets, which take 2 s.
    """
    return min(1.0, max(MIN_FACTOR, scale.rate_mbit / PAPERS_RATE_MBIT))


def production(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which every host sends flow after flow to random hosts, starting simultaneously (SOPA paper, section 4.4).

    The flows of each host fill its link for the whole run. They depend on the seed alone: a longer run begins with the same flows.
    """
    need_scale(scale)
    need_two_hosts(tree, "production")
    hosts = list(tree.hosts())
    transfers: list[Transfer] = []
    for place in range(len(hosts)):
        _add_flows(transfers, tree, hosts, place, seed, scale)
    return Plan(tuple(transfers), scale.seconds)


def _add_flows(transfers: list[Transfer], tree: Clos, hosts: list[Host], place: int, seed: int, scale: Scale) -> None:
    """Append the flows of one host to those of a plan."""
    choose = random.Random(f"{seed} production {tree.name(hosts[place])}")
    factor, left = size_factor(scale), scale.bytes_of()
    before: tuple[int, ...] = ()
    while left > 0:
        size = draw_size(choose)
        other = choose.randrange(len(hosts) - 1)
        scaled = max(1, round(size * factor))
        transfer = Transfer(hosts[place], hosts[other + (other >= place)], scaled, after=before, kind=kind_of(size))
        before = (len(transfers),)
        transfers.append(transfer)
        left -= scaled
        need_transfers(len(transfers), "production", f"give fewer --seconds, a lower --rate or {smaller(tree)}")


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
