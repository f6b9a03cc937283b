"""Workloads of the CFR paper (Li et al., 2015, section 5): many senders and one receiver, Poisson flows. Seeded, pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from experiments.workloads.checks import need_scale, need_transfers, need_two_hosts, smaller
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

SENDERS = 15
"""All hosts of a fat-tree with k=4 but the receiver."""
LOAD_PERCENT = 60
MAX_LOAD_PERCENT = 200
MIN_BYTES, MAX_BYTES = 2_000, 198_000
"""Sizes of flows (section 5.1): uniform between both."""


def incast(senders: int, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which hosts drawn from the seed send to one host until the run is over (sections 5.2 and 5.3).

    Raises `WorkloadError` if the fabric has fewer hosts.
    """
    need_scale(scale)
    hosts = list(tree.hosts())
    need_two_hosts(tree, "incast")
    if len(hosts) <= senders:
        larger = "a larger fabric" if tree.k is None else f"--k {_size_for(senders + 1)} or more"
        raise WorkloadError(
            f"incast of {senders} senders needs {senders + 1} hosts, and a {tree.title} has {len(hosts)}: write "
            f"incast+{len(hosts) - 1}, or give {larger}"
        )
    receiver, *others = random.Random(f"{seed} incast").sample(hosts, senders + 1)
    return Plan(tuple(Transfer(src, receiver) for src in others), scale.seconds)


def _size_for(hosts: int) -> int:
    """Return the size of the smallest fat-tree with so many hosts."""
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


def uniform_load(percent: int, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with flows of uniform sizes between random hosts, whose starts are a Poisson process (section 5.1).

    The flows together load hosts' links to so many percent.
    """
    need_scale(scale)
    need_two_hosts(tree, "uniform-load")
    hosts = list(tree.hosts())
    choose = random.Random(f"{seed} uniform-load")
    rate = percent / 100 * len(hosts) * scale.bytes_of() / ((MIN_BYTES + MAX_BYTES) / 2) / scale.seconds
    found: list[Transfer] = []
    start = choose.expovariate(rate)
    while start < scale.seconds:
        src, dst = choose.sample(hosts, 2)
        found.append(Transfer(src, dst, choose.randint(MIN_BYTES, MAX_BYTES), start))
        need_transfers(len(found), "uniform-load", f"give fewer --seconds, a lower --rate or {smaller(tree)}")
        start += choose.expovariate(rate)
    if not found:
        raise WorkloadError(f"no flow starts within {scale.seconds:g} s: give more --seconds")
    return Plan(tuple(found), scale.seconds)


def named(name: str) -> Workload | None:
    """Return ``incast+N`` of N senders, or ``uniform-load+N`` of N percent; None for any other name.

    Raises `WorkloadError` if N is out of range.
    """
    base, plus, text = name.partition("+")
    if base not in _VARIANTS or not plus:
        return None
    make, what, most = _VARIANTS[base]
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= number <= most or text != str(number):
        raise WorkloadError(f"{name}: {text!r} is no {what} from 1 to {most}: write {base}+8")
    return make(name, number)


def _incast(name: str, senders: int) -> Workload:
    return Workload(
        name,
        f"{senders} hosts send to one until the run is over; incast+N: N hosts (CFR paper, sections 5.2 and 5.3)",
        partial(incast, senders),
        parameters={"flow_sizes": "none: every flow sends until the run is over", "senders": senders},
    )


def _uniform_load(name: str, percent: int) -> Workload:
    return Workload(
        name,
        f"flows of 2 to 198 KB between random hosts, at {percent}% load; uniform-load+N: N% (CFR paper, section 5.1)",
        partial(uniform_load, percent),
        parameters={"flow_sizes": f"uniform, {MIN_BYTES} to {MAX_BYTES} bytes", "load_percent": percent},
    )


_VARIANTS: dict[str, tuple[Callable[[str, int], Workload], str, int]] = {
    "incast": (_incast, "number of senders", 65_000),
    "uniform-load": (_uniform_load, "load in percent", MAX_LOAD_PERCENT),
}

WORKLOADS = (_incast("incast", SENDERS), _uniform_load("uniform-load", LOAD_PERCENT))
