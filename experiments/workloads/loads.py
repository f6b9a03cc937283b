"""Many senders and one receiver, and Poisson flows of published sizes, also both at once. Seeded, pure."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from experiments.workloads.checks import need_scale, need_transfers, need_two_hosts, poisson, smaller
from experiments.workloads.pairs import FILE_SHARE, with_files
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

SENDERS = 15
"""All hosts of a fat-tree with k=4 but the receiver."""
BESIDE_SENDERS = 7
MAX_SENDERS = 65_000
MAX_LOAD_PERCENT = 200
MIN_BYTES, MAX_BYTES = 2_000, 198_000
"""Sizes of flows of ``uniform-load`` (CFR paper, Li et al., 2015, section 5.1): uniform between both."""
INCAST_BYTES, INCAST_PERCENT = 500_000, 2
"""What each sender of an incast beside other flows sends, and the load of all these incasts. Both are ours."""
SMALL_BYTES, MEDIUM_BYTES = 100_000, 10_000_000
"""Largest small and medium flow, as of Alizadeh et al., pFabric, SIGCOMM 2013."""

Points = Sequence[tuple[int, float]]
"""Of a cumulative distribution: sizes in bytes, and the share of flows up to each; linear between them."""
# The papers have figures. These are the points that conf/DCTCP_CDF.txt and conf/VL2_CDF.txt of the widely used generator
# github.com/HKUST-SING/TrafficGenerator have, at its commits 28faaaad and 1c1bc657.
WEB_SEARCH: Points = (
    *((0, 0), (10_000, 0.15), (20_000, 0.2), (30_000, 0.3), (50_000, 0.4), (80_000, 0.53), (200_000, 0.6), (1_000_000, 0.7)),
    *((2_000_000, 0.8), (5_000_000, 0.9), (10_000_000, 0.97), (30_000_000, 1)),
)
"""Alizadeh et al., Data Center TCP, SIGCOMM 2010, section 2.2."""
DATA_MINING: Points = (
    *((0, 0), (180, 0.1), (216, 0.2), (560, 0.3), (900, 0.4), (1_100, 0.5), (1_870, 0.6), (3_160, 0.7), (10_000, 0.8)),
    *((400_000, 0.9), (3_160_000, 0.95), (100_000_000, 0.98), (1_000_000_000, 1)),
)
"""Greenberg et al., VL2, SIGCOMM 2009, section 3."""


def incast(senders: int, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which hosts drawn from the seed send to one host until the run is over (sections 5.2 and 5.3).

    Raises `WorkloadError` if the fabric has fewer hosts.
    """
    need_scale(scale)
    hosts = list(tree.hosts())
    need_two_hosts(tree, "incast")
    _need_senders(senders, "incast+", tree)
    receiver, *others = random.Random(f"{seed} incast").sample(hosts, senders + 1)
    return Plan(tuple(Transfer(src, receiver) for src in others), scale.seconds)


def incast_transfers(senders: int, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build the plan of `incast` in which each sends what a link carries in 80% of the run."""
    return with_files(incast(senders, tree, seed, scale), scale)


def incast_beside(senders: int, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which hosts send to one, and one more to another host of the same rack, until the run is over.

    All senders are in other racks. Raises `WorkloadError` if a rack has one host, or there are fewer senders.
    """
    need_scale(scale)
    choose = random.Random(f"{seed} incast beside")
    receiver = choose.choice(list(tree.hosts()))
    edge = tree.edge_of(receiver)
    rack = [host for host in tree.hosts_of(edge) if host != receiver]
    elsewhere = [host for host in tree.hosts() if tree.edge_of(host) != edge]
    if not rack or len(elsewhere) <= senders:
        raise WorkloadError(
            f"an incast of {senders} senders beside another flow needs two hosts a rack and {senders + 1} in other racks, which a "
            f"{tree.title} does not have: write incast-beside+N"
        )
    source, *others = choose.sample(elsewhere, senders + 1)
    flows = (Transfer(source, choose.choice(rack), kind="beside"), *(Transfer(src, receiver, kind="incast") for src in others))
    return Plan(flows, scale.seconds)


def _need_senders(senders: int, setting: str, tree: Clos) -> None:
    if tree.host_count <= senders:
        larger = "a larger fabric" if tree.k is None else f"--k {_size_for(senders + 1)} or more"
        raise WorkloadError(
            f"incast of {senders} senders needs {senders + 1} hosts, and a {tree.title} has {tree.host_count}: write "
            f"{setting}{tree.host_count - 1}, or give {larger}"
        )


def _size_for(hosts: int) -> int:
    """Return the size of the smallest fat-tree with so many hosts."""
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


class Sizes(NamedTuple):
    """Published sizes of flows: what they are and where, the default load and duration of a run, and the distribution."""

    text: str
    source: str
    percent: int
    seconds: float
    points: Points


_CUT = "at most what a link carries in the run"
SIZES = {
    "uniform-load": Sizes(
        f"uniform, {MIN_BYTES} to {MAX_BYTES} bytes", "CFR paper, section 5.1", 60, 10.0, ((MIN_BYTES, 0), (MAX_BYTES, 1))
    ),
    "web-search": Sizes(f"those of web search, {_CUT}", "DCTCP paper, section 2.2", 50, 100.0, WEB_SEARCH),
    "data-mining": Sizes(f"those of data mining, {_CUT}", "VL2 paper, section 3", 50, 100.0, DATA_MINING),
}


def mean_of(points: Points, most: int) -> float:
    """Return the mean of a distribution whose sizes are cut off at ``most``."""

    def below(size: int) -> float:
        return size**2 / 2 if size <= most else most * (size - most / 2)

    return sum(
        (share - before) * (below(size) - below(least)) / (size - least) for (least, before), (size, share) in pairwise(points)
    )


def draw_from(points: Points, most: int, choose: random.Random) -> int:
    """Return a size of a distribution, cut off at ``most``."""
    if len(points) == 2:
        return min(most, choose.randint(points[0][0], points[1][0]))
    place = choose.random()
    at = bisect(points, place, key=lambda point: point[1])
    (least, before), (size, share) = points[at - 1 : at + 1]
    return max(1, min(most, round(least + (size - least) * (place - before) / (share - before))))


def kind_of(size: int) -> str:
    """Return the class of a flow: ``small`` up to 100 KB, ``medium`` up to 10 MB, ``large``."""
    return "small" if size <= SMALL_BYTES else "medium" if size <= MEDIUM_BYTES else "large"


def load(base: str, percent: int, senders: int, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with flows of such sizes between random hosts, whose starts are a Poisson process.

    The flows together load hosts' links to so many percent. With ``senders``, incasts of so many hosts each, whose starts are
    another Poisson process, add `INCAST_PERCENT` to that.
    """
    need_scale(scale)
    need_two_hosts(tree, base)
    _need_senders(senders, "incast=", tree)
    hosts, points, most = list(tree.hosts()), SIZES[base].points, scale.bytes_of()
    found: list[Transfer] = []

    def add(kind: str, share: int, mean: float, new: Callable[[random.Random, float], Iterator[Transfer]]) -> None:
        choose = random.Random(f"{seed} {base}{kind}")
        for start in poisson(choose, share / 100 * len(hosts) * most / mean / scale.seconds, scale.seconds):
            found.extend(new(choose, start))
            need_transfers(len(found), base, f"give fewer --seconds, a lower --rate or {smaller(tree)}")

    def flow(choose: random.Random, start: float) -> Iterator[Transfer]:
        src, dst = choose.sample(hosts, 2)
        size = draw_from(points, most, choose)
        yield Transfer(src, dst, size, start, kind=kind_of(size) if len(points) > 2 else "")

    def burst(choose: random.Random, start: float) -> Iterator[Transfer]:
        receiver, *others = choose.sample(hosts, senders + 1)
        return (Transfer(src, receiver, INCAST_BYTES, start, kind="incast") for src in others)

    add("", percent, mean_of(points, most), flow)
    if senders:
        add(" incast", INCAST_PERCENT, senders * INCAST_BYTES, burst)
    if not found:
        raise WorkloadError(f"no flow starts within {scale.seconds:g} s: give more --seconds")
    return Plan(tuple(sorted(found, key=lambda one: one.start)), scale.seconds)


def named(name: str) -> Workload | None:
    """Return ``incast+N`` of N senders, or ``web-search+N`` of N percent; None for any other name.

    ``web-search+50+incast=15`` has incasts of 15 senders, too. Raises `WorkloadError` if a number is out of range.
    """
    base, plus, text = name.partition("+")
    if base not in (*_INCASTS, *SIZES) or not plus:
        return None
    percent, mixed, senders = text.partition("+incast=")
    what, most = ("number of senders", MAX_SENDERS) if base in _INCASTS else ("load in percent", MAX_LOAD_PERCENT)
    if not _is_number(percent, most):
        raise WorkloadError(f"{name}: {percent!r} is no {what} from 1 to {most}: write {base}+8")
    if mixed and (base in _INCASTS or not _is_number(senders, MAX_SENDERS)):
        raise WorkloadError(f"{name}: {senders!r} is no number of senders from 1 to {MAX_SENDERS}: write web-search+50+incast=8")
    return _incast(name, base, int(percent)) if base in _INCASTS else _load(name, base, int(percent), int(senders or 0))


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and text == str(int(text)) and 1 <= int(text) <= most


_ENDLESS = "none: every flow sends until the run is over"
_INCASTS: dict[str, tuple[Callable[[int, Clos, int, Scale], Plan], int, str, str]] = {
    "incast": (incast, SENDERS, "send to one until the run is over; incast+N: N hosts (CFR paper, sections 5.2 and 5.3)", _ENDLESS),
    "incast-transfers": (
        incast_transfers,
        SENDERS,
        "send a file each to one, as in the Ultra Ethernet reference simulator; incast-transfers+N: N hosts",
        f"what a link carries in {FILE_SHARE:.0%} of the run",
    ),
    "incast-beside": (
        incast_beside,
        BESIDE_SENDERS,
        "send to one, and another host to a neighbour of it; incast-beside+N: N hosts (MRC paper)",
        _ENDLESS,
    ),
}
"""By name: how it is built, with how many senders, what they do, and the sizes of their flows."""


def _incast(name: str, base: str, senders: int) -> Workload:
    build, _, what, sizes = _INCASTS[base]
    return Workload(name, f"{senders} hosts {what}", partial(build, senders), parameters={"flow_sizes": sizes, "senders": senders})


def _load(name: str, base: str, percent: int, senders: int = 0) -> Workload:
    sizes = SIZES[base]
    return Workload(
        name,
        f"flows between random hosts at {percent}% load ({base}+N: N%; +incast=N: and incasts of N hosts), sizes "
        f"{sizes.text} ({sizes.source})",
        partial(load, base, percent, senders),
        seconds=sizes.seconds,
        parameters={
            "flow_sizes": sizes.text,
            "load_percent": percent,
            **({"incast_bytes": INCAST_BYTES, "incast_percent": INCAST_PERCENT} if senders else {}),
        },
    )


WORKLOADS = (
    *(_incast(name, name, senders) for name, (_, senders, *_) in _INCASTS.items()),
    *(_load(base, base, sizes.percent) for base, sizes in SIZES.items()),
)
