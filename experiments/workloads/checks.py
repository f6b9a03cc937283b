"""Checks and choices that several workloads share. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator

from experiments.workloads.plan import Scale, Transfer, WorkloadError
from topologies import Clos, Host, Level, Link, Switch

MAX_TRANSFERS = 500_000
MIN_SHARE = 0.01
"""Limit for one plan: each transfer becomes a record."""


def need_scale(scale: Scale) -> None:
    """Raise `WorkloadError` unless the time and the rate are positive and finite."""
    if not (math.isfinite(scale.seconds) and scale.seconds > 0):
        raise WorkloadError(f"a run of {scale.seconds:g} s is impossible: give --seconds above 0")
    if not (math.isfinite(scale.rate_mbit) and scale.rate_mbit > 0):
        raise WorkloadError(f"links of {scale.rate_mbit:g} Mbit/s are impossible: give --rate above 0")


def need_two_hosts(tree: Clos, workload: str) -> None:
    """Raise `WorkloadError` unless the fabric has a pair of hosts."""
    if tree.host_count < 2:
        raise WorkloadError(f"{workload} needs two hosts, and a {tree.title} has one")


def need_figure(tree: Clos, workload: str) -> None:
    """Raise `WorkloadError` unless the fabric contains figure 1 of the SOPA paper: four pods of two racks of two hosts."""
    if tree.k is None or tree.k < 4:
        raise WorkloadError(f"{workload} needs the fat-tree of figure 1, and this is a {tree.title}: give --k 4 or more")


def need_transfers(count: int, workload: str, instead: str) -> None:
    """Raise `WorkloadError` if a plan has too many transfers. ``instead`` says what to change."""
    if count > MAX_TRANSFERS:
        raise WorkloadError(f"{workload} has more than {MAX_TRANSFERS} transfers, the limit of one run: {instead}")


def poisson(choose: random.Random, rate: float, seconds: float) -> Iterator[float]:
    """Yield the times of a Poisson process of so many events a second, drawn one by one as they are asked for."""
    start = choose.expovariate(rate)
    while start < seconds:
        yield start
        start += choose.expovariate(rate)


def smaller(tree: Clos) -> str:
    """Return the advice to take a smaller fabric."""
    return "a smaller fabric" if tree.k is None else "a smaller --k"


def fair_share(tree: Clos) -> float:
    """Return the share of a host's link that each host has of the fabric when all send out of their racks or pods, at most 1.

    1 for a fat-tree, and 1/3 where the uplinks of a rack together carry a third of its hosts' links. It is a bound by the sums of
    capacities above each rack and each pod, so it is above what is reached where paths are uneven.
    """
    shares = [1.0]
    for pod in range(tree.pods):
        demand, above = 0.0, 0.0
        for edge in tree.switches_of(Level.EDGE, pod):
            wanted = sum(tree.capacity(Link(host, edge)) for host in tree.hosts_of(edge))
            demand += wanted
            if tree.pods * tree.edges > 1:
                shares.append(_above(tree, edge) / wanted)
        for aggregation in tree.switches_of(Level.AGGREGATION, pod):
            above += _above(tree, aggregation)
        if tree.pods > 1:
            shares.append(above / demand)
    return max(min(shares), MIN_SHARE)


def _above(tree: Clos, switch: Switch) -> float:
    return sum(tree.capacity(link) for link in tree.links_above(switch))


def across(tree: Clos, src: Host, dst: Host) -> bool:
    """Return True for hosts of different pods; in a fabric of one pod, of different racks."""
    return src.pod != dst.pod if tree.pods > 1 else src.edge != dst.edge


def first_across(tree: Clos, transfers: Iterable[Transfer]) -> tuple[int, ...]:
    """Return the index of the first transfer that is `across` the fabric, and so has most paths; empty if there is none."""
    for number, transfer in enumerate(transfers):
        if across(tree, transfer.src, transfer.dst):
            return (number,)
    return ()
