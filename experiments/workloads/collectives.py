"""Collective operations of N hosts: all-to-all, and all-reduce by a ring or by halving and doubling. Seeded, pure.

Each step is a permutation of the hosts, and every transfer of it a TCP connection of its own, from slow start on. A host starts to
send in a step when all that it has sent and received in the step before has arrived, as MPI_Sendrecv has it. Hosts have their ranks
at random, as from a scheduler that does not know the fabric: in the order of addresses a ring would hardly leave the racks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from experiments.workloads.checks import fair_share, first_across, need_scale, need_transfers
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

SHARE = 0.25
"""Of what a host's link carries in the run, and of its share of the fabric: what every host sends in all steps together."""

Step = tuple[float, Callable[[int], int], str]
"""Share of the host's payload, receiver of each rank, and kind of the transfers."""
Steps = Callable[[int], Iterator[Step]]


def all_to_all(count: int) -> Iterator[Step]:
    """Yield the steps in which every host sends to each other one another block: in step s to the one s ranks further."""
    for step in range(1, count):
        yield 1 / (count - 1), partial(_further, count, step), ""


def ring(count: int) -> Iterator[Step]:
    """Yield the steps of an all-reduce by a ring: every host passes a block of 1/N on, N-1 times reduced and N-1 times copied."""
    for kind in ("reduce-scatter", "all-gather"):
        for _ in range(count - 1):
            yield 1 / (2 * (count - 1)), partial(_further, count, 1), kind


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
            yield distance / (2 * (count - 1)), partial(_exchanged, distance), kind


def _further(count: int, distance: int, rank: int) -> int:
    return (rank + distance) % count


def _exchanged(distance: int, rank: int) -> int:
    return rank ^ distance


def collective(name: str, steps: Steps, wanted: int | None, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build the plan of a collective operation of so many hosts; None for all, or of halving for the greatest power of two.

    ``name`` is that of the workload without the number of hosts, for messages and the seed.
    """
    need_scale(scale)
    count = wanted or (1 << tree.host_count.bit_length() - 1 if steps is halving else tree.host_count)
    if not 2 <= count <= tree.host_count:
        raise WorkloadError(f"{name} needs 2 or more hosts, and a {tree.title} has {tree.host_count}, not {count}")
    ranks = random.Random(f"{seed} {name}").sample(list(tree.hosts()), count)
    payload = scale.bytes_of(SHARE * fair_share(tree))
    transfers: list[Transfer] = []
    sent: Sequence[int] = ()
    received: Sequence[int] = ()
    for share, receiver, kind in steps(count):
        first = len(transfers)
        need_transfers(first + count, name, f"give fewer hosts, as in {name}+64")
        size = max(1, round(share * payload))
        for rank, host in enumerate(ranks):
            after = tuple(sorted({sent[rank], received[rank]})) if sent else ()
            transfers.append(Transfer(host, ranks[receiver(rank)], size, after=after, kind=kind))
        sent = range(first, first + count)
        received = [0] * count
        for rank in range(count):
            received[receiver(rank)] = first + rank
    return Plan(tuple(transfers), scale.seconds, traced=first_across(tree, transfers), collective=True)


STEPS: dict[str, tuple[Steps, str]] = {
    "all-to-all": (all_to_all, "every host sends another block to each other one, a permutation at a time"),
    "all-reduce-ring": (ring, "every host passes blocks of a vector on around a ring, to sum it"),
    "all-reduce-halving": (halving, "pairs of 2, 4, 8, ... hosts exchange halves of a vector, to sum it"),
}


def named(name: str) -> Workload | None:
    """Return the collective operation of N hosts, by a name with ``+N``; None for any other name.

    Raises `WorkloadError` if N is no number of hosts.
    """
    base, plus, hosts = name.partition("+")
    if base not in STEPS or not plus:
        return None
    if not (hosts.isascii() and hosts.isdigit() and hosts == str(int(hosts)) and int(hosts) >= 2):
        raise WorkloadError(f"{name}: {hosts!r} is no number of hosts: write {base}+8")
    return _workload(name, base, int(hosts))


def _workload(name: str, base: str, hosts: int | None) -> Workload:
    steps, summary = STEPS[base]
    return Workload(
        name,
        f"{summary}; {base}+N: N hosts" if hosts is None else summary,
        partial(collective, base, steps, hosts),
        seconds=20.0,
        parameters={
            "flow_sizes": f"together {SHARE:g} of what a host's link and its share of the fabric carry in the run",
            "hosts": "all" if hosts is None else str(hosts),
        },
    )


WORKLOADS = tuple(_workload(name, name, None) for name in STEPS)
