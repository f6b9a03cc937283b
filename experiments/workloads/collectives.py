"""Collective operations of N hosts, of one job or of several at once. Seeded, pure.

Every transfer of a step is a TCP connection of its own, from slow start on. A host starts to send in a step when all that it has
sent and received in the step before has arrived, as MPI_Sendrecv has it. Hosts have their ranks at random, as from a scheduler that
does not know the fabric: in the order of addresses a ring would hardly leave the racks. Jobs share no host, only links.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from experiments.workloads.checks import fair_share, first_across, need_scale, need_transfers
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

SHARE = 0.25
"""Of what a host's link carries in the run, and of its share of the fabric: what every host sends in all steps together.

Of experts, the most popular one receives half of that, and sends the other half back.
"""
ZIPF = 1.0
MAX_ZIPF = 10
MAX_EXPERTS = 128
"""Every combining transfer waits for all that its host has sent and received: N^3 indices in all."""

Step = tuple[str, list[tuple[int, int, float]]]
"""Kind of the transfers, and for each one the ranks of sender and receiver, and its share of the host's payload."""
Steps = Callable[[int], Iterator[Step]]


def all_to_all(count: int) -> Iterator[Step]:
    """Yield the steps in which every host sends to each other one another block: in step s to the one s ranks further."""
    for step in range(1, count):
        yield "", [(rank, (rank + step) % count, 1 / (count - 1)) for rank in range(count)]


def ring(kinds: Sequence[str], count: int) -> Iterator[Step]:
    """Yield the steps of a ring, in which every host passes a block of 1/N on, N-1 times for each kind."""
    for kind in kinds:
        for _ in range(count - 1):
            yield kind, [(rank, (rank + 1) % count, 1 / (len(kinds) * (count - 1))) for rank in range(count)]


def halving(count: int) -> Iterator[Step]:
    """Yield the steps of an all-reduce by recursive halving, then doubling: pairs exchange 1/2, 1/4, ... of the vector, and back.

    Rabenseifner's algorithm (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH. 2005,
    section 4.5). Raises `WorkloadError` unless the number of hosts is a power of two.
    """
    if count & (count - 1):
        raise WorkloadError(
            f"all-reduce-halving needs a power of two hosts, not {count}: give all-reduce-halving+{1 << count.bit_length() - 1}"
        )
    distances = [1 << bit for bit in reversed(range(count.bit_length() - 1))]
    for kind, order in (("reduce-scatter", distances), ("all-gather", distances[::-1])):
        for distance in order:
            yield kind, [(rank, rank ^ distance, distance / (2 * (count - 1))) for rank in range(count)]


def experts(zipf: float, count: int) -> Iterator[Step]:
    """Yield the two steps of a mixture-of-experts layer with an expert per host: tokens to their experts, and the results back.

    All transfers of a step start together. The expert of rank r receives r^-zipf of what the most popular one does. Raises
    `WorkloadError` for too many hosts.
    """
    if count > MAX_EXPERTS:
        raise WorkloadError(f"mixture-of-experts has at most {MAX_EXPERTS} hosts in a job, not {count}: give fewer, or more jobs")
    dispatch = [(src, dst, (dst + 1) ** -zipf / (2 * (count - 1))) for src in range(count) for dst in range(count) if src != dst]
    yield "dispatch", dispatch
    yield "combine", [(dst, src, share) for src, dst, share in dispatch]


def collective(operations: Sequence[str], jobs: int, wanted: int | None, zipf: float, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build the plan of jobs that each perform one of the operations in turn, on so many hosts a job.

    None is for all hosts that a job can have; with halving for the greatest power of two.
    """
    need_scale(scale)
    name, most = ",".join(operations), tree.host_count // jobs
    count = wanted or (1 << most.bit_length() - 1 if most and "all-reduce-halving" in operations else most)
    if not 2 <= count <= most:
        each = f" for each of {jobs} jobs" if jobs > 1 else ""
        raise WorkloadError(f"{name} needs 2 or more hosts, and a {tree.title} has {most}{each}, not {count}")
    hosts = random.Random(f"{seed} {name}").sample(list(tree.hosts()), jobs * count)
    payload = scale.bytes_of(SHARE * fair_share(tree))
    transfers: list[Transfer] = []
    for job in range(jobs):
        ranks, operation = hosts[job * count : (job + 1) * count], operations[job % len(operations)]
        after: list[tuple[int, ...]] = [()] * count
        for kind, blocks in partial(experts, zipf)(count) if operation == EXPERTS else STEPS[operation][0](count):
            need_transfers(len(transfers) + len(blocks), name, f"give fewer hosts, as in {name}+64")
            ends: list[list[int]] = [[] for _ in ranks]
            for src, dst, share in blocks:
                ends[src].append(len(transfers))
                ends[dst].append(len(transfers))
                size = max(1, round(share * payload))
                transfers.append(Transfer(ranks[src], ranks[dst], size, after=after[src], kind=kind, job=job))
            after = [tuple(own) for own in ends]
    return Plan(tuple(transfers), scale.seconds, traced=first_across(tree, transfers), collective=True)


EXPERTS = "mixture-of-experts"
STEPS: dict[str, tuple[Steps, str]] = {
    "all-to-all": (all_to_all, "every host sends another block to each other one, a permutation at a time"),
    "all-reduce-ring": (
        partial(ring, ("reduce-scatter", "all-gather")),
        "every host passes blocks of a vector on around a ring, to sum it",
    ),
    "all-reduce-halving": (halving, "pairs of 2, 4, 8, ... hosts exchange halves of a vector, to sum it"),
    "all-gather": (partial(ring, ("all-gather",)), "every host passes the others' blocks on around a ring, once"),
    EXPERTS: (
        partial(experts, ZIPF),
        f"every host sends tokens to all others at once, and gets them back; expert r is as popular as r^-Z (+zipf=Z, {ZIPF:g})",
    ),
}


def named(name: str) -> Workload | None:
    """Return the collective operation of N hosts a job by a name with ``+N``; None for any other name.

    ``all-reduce-ring+jobs=4`` is of four jobs at once, ``all-reduce-ring,all-gather`` of a job of each, and
    ``mixture-of-experts+zipf=1.5`` of that skew. Raises `WorkloadError` if a number is out of range.
    """
    base, *settings = name.split("+")
    operations = base.split(",")
    if not set(operations) <= set(STEPS) or not (settings or operations[1:]):
        return None
    values = {"": 0.0, "jobs": float(len(operations)), "zipf": ZIPF}
    for setting in settings:
        key, equals, text = setting.rpartition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        whole = math.isfinite(number) and text == f"{number:.0f}"
        if not equals and not (whole and number >= 2):
            raise WorkloadError(f"{name}: {text!r} is no number of hosts: write {base}+8")
        valid = {"": not equals, "jobs": whole and number >= 1, "zipf": EXPERTS in operations and 0 <= number <= MAX_ZIPF}
        if not valid.get(key, False):
            more = f", or {base}+zipf=1.5, from 0 to {MAX_ZIPF}" if EXPERTS in operations else ""
            raise WorkloadError(f"{name}: {setting!r} is not a setting: write {base}+jobs=4{more}")
        values[key] = number
    return _workload(name, operations, int(values["jobs"]), int(values[""]) or None, values["zipf"])


def _workload(name: str, operations: Sequence[str], jobs: int = 1, hosts: int | None = None, zipf: float = ZIPF) -> Workload:
    summary = STEPS[operations[0]][1]
    return Workload(
        name,
        f"{summary}; {name}+N: N hosts" if name in STEPS else f"{jobs} jobs of {', '.join(operations)} on other hosts each",
        partial(collective, operations, jobs, hosts, zipf),
        seconds=20.0,
        parameters={
            "flow_sizes": f"together {SHARE:g} of what a host's link and its share of the fabric carry in the run",
            "hosts": "all" if hosts is None else str(hosts),
            **({"zipf": zipf} if EXPERTS in operations else {}),
        },
    )


WORKLOADS = tuple(_workload(name, [name]) for name in STEPS)
