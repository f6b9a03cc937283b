"""How often links shall be crossed, and lanes one by one for those that the regular ones cross too rarely. Pure.

The latter are slow, absent and failed links, and their neighbours.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flowrules.label import UNUSED
from sopa_ryu.channel.messages import MAX_PROBE_RATE
from sopa_ryu.health.elements import Elements
from sopa_ryu.health.records import Bools, Ints
from topologies import Clos, Failures, Switch
from topologies.structure import BFD_INTERVAL_MS

CROSSINGS = 100.0
"""How often each link is crossed in each direction, a second."""
SHARE = 0.01
"""The most that probes, answers, traces and BFD together take of a link's rate, in each direction."""
ASSIGNED = 0.5
"""What the streams of lists take of that; the rest is for racks that hosts use, and for traces."""
LISTED = 2 / 3
"""What a host's list takes of its own rate at most: the rest is for the paths that it uses, and those that it has left."""
BFD_BITS = 66 * 8 * 1000 / BFD_INTERVAL_MS
"""Bits per second of BFD in each direction of a link: frames of 66 bytes."""
RATE = 2.0
"""Probes of a stream, a second; fewer where all links of a level are slow."""
WITHIN = 4
"""Lanes within its pod that cross a link above an edge switch, at least: without any, all links below an aggregation switch could
not be told from all above it."""
SELF, SELF_SHORT = 25, 5
"""Self-probe lanes that cross a link above an edge switch, and those of them that turn at the aggregation switch."""
SELF_HOSTS = 3
"""So many cross a link above an aggregation switch at least."""
NUMBERED_FROM = 1 << 20
"""Numbers of these lanes, beyond those of the others."""


class LaneDemand(NamedTuple):
    """How many lanes shall cross each link, and may, by the links' numbers; probes a second of a lane, and of a host in all.

    ``own`` is how many self-probe lanes may besides.
    """

    wanted: Ints
    most: Ints
    rate: float
    host_rate: float
    own: Ints


def demand(
    elements: Elements,
    failures: Failures,
    bits: Mapping[int, float],
    probe_bytes: int,
    host_bits: float = math.inf,
    self_probes: bool = False,
) -> LaneDemand:
    """Return what probes may take of each link: nothing where it is absent or has failed.

    A host's rate is half of its share of what the scarcest uplinks bear in one direction, as others' probes cross them, too. Its
    probes are spread over paths by their weights, which follow the rates of links.

    ``bits`` are bits per second of links, by number, as far as they are known: others bear what is wanted. ``probe_bytes`` is the
    size of a probe's frame, ``host_bits`` the bits per second of the slowest link to a host. ``self_probes`` tells whether hosts
    send self-probes, each of which is one frame in each direction of a link, as a probe and its answer are.
    """
    tree, full = elements.tree, round(CROSSINGS / RATE)
    selfs = SELF_SHORT + cores_lanes(tree) if self_probes else 0
    bears = np.zeros(elements.links)
    for number, link in elements.present:
        assert isinstance(link.lower, Switch)
        if failures and failures.hit((link, link.lower, link.upper)):
            continue
        bears[number] = max(0.0, (SHARE * bits.get(number, math.inf) - BFD_BITS) / (8 * probe_bytes))
    levels = bears[: elements.lower], bears[elements.lower :]
    fastest = min((float(level.max()) for level in levels if level.any()), default=math.inf)
    rate = min(RATE, ASSIGNED * fastest / (full + WITHIN + selfs))
    most = np.minimum(4 * full, ASSIGNED * bears / rate + 1e-6).astype(np.int64)
    own = np.minimum(selfs, most * selfs // (full + WITHIN + selfs))
    most -= own
    of_racks = _share(levels[0].reshape(-1, tree.aggregations), tree.hosts_per_edge)
    of_pods = _share(levels[1].reshape(tree.pods, -1), tree.edges * tree.hosts_per_edge)
    host_rate = min(2 * MAX_PROBE_RATE, SHARE * host_bits / (8 * probe_bytes), of_racks, of_pods) / 2
    return LaneDemand(np.minimum(full, most), most, rate, host_rate, own)


def cores_lanes(tree: Clos) -> int:
    """Return how many self-probe lanes of a rack go by each of its aggregation switches to core switches."""
    if tree.pods < 2 or not tree.cores_of_group:
        return 0
    return max(SELF - SELF_SHORT, -(-SELF_HOSTS * tree.cores_of_group // tree.edges))


def _share(bears: npt.NDArray[np.float64], hosts: int) -> float:
    """Return what each of so many hosts may put on the uplinks of its row, in the row that bears least."""
    rows = bears.sum(axis=1)
    return float(rows[rows > 0].min(initial=math.inf)) / hosts


def crossed(elements: Elements, made: Ints) -> Ints:
    """Return the numbers of the links that each lane crosses, four columns; the number of links for none.

    A self-probe, whose ends are the same rack, crosses those of its near end.
    """
    tree, none = elements.tree, elements.links
    p, e, q, f, j, i, _ = made
    first = (p * tree.edges + e) * tree.aggregations + j
    last = (q * tree.edges + f) * tree.aggregations + j
    within, own = i == UNUSED, (p == q) & (e == f)
    rise = elements.lower + (p * tree.aggregations + j) * tree.cores_of_group + i
    fall = elements.lower + (q * tree.aggregations + j) * tree.cores_of_group + i
    return np.stack((first, np.where(within, none, rise), np.where(within | own, none, fall), np.where(own, none, last)))


def counted(elements: Elements, made: Ints) -> Ints:
    """Return how many lanes cross each link."""
    links: Ints = np.bincount(crossed(elements, made).ravel(), minlength=elements.links + 1)[: elements.links]
    return links


class _Filler:
    """Adds lanes while there are links that need and bear some.

    All numbers are lists: numpy's are slow one by one.
    """

    def __init__(self, elements: Elements, made: Ints, low: Bools, high: Bools, needs: LaneDemand) -> None:
        tree = elements.tree
        self.tree, self.elements = tree, elements
        self.count = counted(elements, made).tolist()
        self.wanted, self.most = needs.wanted.tolist(), needs.most.tolist()
        self.racks = [[np.flatnonzero(low[p, j]).tolist() for j in range(tree.aggregations)] for p in range(tree.pods)]
        self.pods = [[np.flatnonzero(high[:, j, i]).tolist() for i in range(tree.cores_of_group)] for j in range(tree.aggregations)]
        self.added: list[tuple[int, ...]] = []

    def rack_link(self, pod: int, edge: int, j: int) -> int:
        return (pod * self.tree.edges + edge) * self.tree.aggregations + j

    def core_link(self, pod: int, j: int, i: int) -> int:
        return self.elements.lower + (pod * self.tree.aggregations + j) * self.tree.cores_of_group + i

    def lacks(self, link: int) -> int:
        return int(self.wanted[link] - self.count[link])

    def bears(self, link: int) -> bool:
        return bool(self.count[link] < self.most[link])

    def rack(self, pod: int, j: int) -> int | None:
        """Return the rack of a pod that is crossed least over an aggregation switch; of several the next in turn."""
        turn = len(self.added)
        left = [edge for edge in self.racks[pod][j] if self.bears(self.rack_link(pod, edge, j))]
        return min(
            left, key=lambda edge: (-self.lacks(self.rack_link(pod, edge, j)), (edge - turn) % self.tree.edges), default=None
        )  # fmt: skip

    def add(self, p: int, e: int, q: int, f: int, j: int, i: int) -> None:
        links = [self.rack_link(p, e, j), self.rack_link(q, f, j)]
        if i != UNUSED:
            links += [self.core_link(p, j, i), self.core_link(q, j, i)]
        for link in links:
            self.count[link] += 1
        self.added.append((p, e, q, f, j, i, NUMBERED_FROM + len(self.added)))

    def at_core(self, j: int, i: int) -> None:
        """Fill the links of one core switch: always the pod that lacks most, and the one after it."""
        heap = [(-self.lacks(self.core_link(p, j, i)), p) for p in self.pods[j][i]]
        heapq.heapify(heap)
        while heap and heap[0][0] < 0:
            lack, p = heapq.heappop(heap)
            e = self.rack(p, j)
            if e is None:
                continue
            skipped = []
            while heap:
                other, q = heapq.heappop(heap)
                skipped.append((other, q))
                f = self.rack(q, j) if self.bears(self.core_link(q, j, i)) else None
                if f is not None:
                    self.add(p, e, q, f, j, i)
                    skipped[-1] = other + 1, q
                    heapq.heappush(heap, (lack + 1, p))
                    break
            for item in skipped:
                heapq.heappush(heap, item)

    def at_aggregation(self, p: int, j: int) -> None:
        """Fill the links below one aggregation switch, within the pod if another rack can take part."""
        racks = self.racks[p][j]
        heap = [(-self.lacks(self.rack_link(p, e, j)), e) for e in racks]
        heapq.heapify(heap)
        while heap and heap[0][0] < 0:
            lack, e = heapq.heappop(heap)
            partners = [(other, f) for other, f in heap if self.bears(self.rack_link(p, f, j))]
            if partners:
                turn = len(self.added)
                other, f = min(partners, key=lambda item: (item[0], (item[1] - turn) % self.tree.edges))
                self.add(p, e, p, f, j, UNUSED)
                heap.remove((other, f))
                heapq.heapify(heap)
                heapq.heappush(heap, (other + 1, f))
            elif not self.outwards(p, e, j):
                continue
            heapq.heappush(heap, (lack + 1, e))

    def outwards(self, p: int, e: int, j: int) -> bool:
        """Add a lane from a rack to another pod, over links that bear one more; return False if there is none."""
        for i, q in self.ways(p, j):
            f = self.rack(q, j)
            if f is not None:
                self.add(p, e, q, f, j, i)
                return True
        return False

    def ways(self, p: int, j: int) -> Iterator[tuple[int, int]]:
        cores, turn = self.tree.cores_of_group, len(self.added)
        for i in sorted(range(cores), key=lambda i: (self.count[self.core_link(p, j, i)], (i - turn) % cores)):
            if p in self.pods[j][i] and self.bears(self.core_link(p, j, i)):
                others = [q for q in self.pods[j][i] if q != p and self.bears(self.core_link(q, j, i))]
                yield from ((i, q) for q in sorted(others, key=lambda q: self.count[self.core_link(q, j, i)])[:2])


def filled(elements: Elements, made: Ints, low: Bools, high: Bools, needs: LaneDemand) -> Ints:
    """Return these lanes and those that fill up what links lack, as far as others bear it."""
    filler, tree = _Filler(elements, made, low, high, needs), elements.tree
    for j in range(tree.aggregations):
        for i in range(tree.cores_of_group if tree.pods > 1 else 0):
            filler.at_core(j, i)
    for p in range(tree.pods):
        for j in range(tree.aggregations):
            filler.at_aggregation(p, j)
    if not filler.added:
        return made
    return np.concatenate((made, np.array(filler.added, np.int64).T), axis=1)
