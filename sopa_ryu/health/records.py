"""Reports as arrays: what the probes of each record have crossed, and the counts of the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flowrules.label import UNUSED
from sopa_ryu.channel.messages import EACH_MOMENT_MS, FIRST_MOMENT_MS, MOMENTS, RECORD_BYTES
from sopa_ryu.health.elements import Elements
from topologies.identity import FIRST_HOST

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RECORD = np.dtype(
    {
        "names": ["pod", "edge", "host", "up1", "up2", "moments", "probes", "out", "back", "lost", "smallest", "mean"],
        "formats": ["u1"] * 5 + ["<u2"] * 5 + ["<u4"] * 2,
        "offsets": [0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20],
        "itemsize": RECORD_BYTES,
    }
)
Floats = npt.NDArray[np.float64]
MAX_ROWS = 8192
"""Ways with losses that one slot keeps; of more, a part stands for all."""
COLUMNS = 12
"""What a probe and its answer cross: eight directions of links and two hosts, each of them out and in."""


class Records(NamedTuple):
    """Valid records as columns."""

    src: Ints
    dst: Ints
    """Hosts' numbers; the same of a self-probe."""
    links: Ints
    """Four rows: the links out of the source's rack, its pod, into the destination's pod and rack; `Elements.links` for none."""
    probes: Ints
    out: Ints
    back: Ints
    lost: Ints
    mean: Ints
    moments: Ints
    """When losses were: `moments` of `sopa_ryu.channel.messages.Counts`."""


def read(
    elements: Elements, present: Bools, answering: Bools, src: Ints, records: bytes, self_probes: bool = False
) -> tuple[Records, Bools]:
    """Return the valid ones of these records, and which of all those are.

    A record is forged if its destination is no host that answers probes, or is another one in the rack of the reporting host, if
    its hops are no candidate path, or if it has lost more probes than there were.

    Args:
        present: Whether the fabric has the link of each number.
        answering: Whether each host answers probes, or did lately.
        src: The reporting host of each record.
        self_probes: Whether hosts send self-probes: to themselves, by way of an aggregation or a core switch.
    """
    tree, none = elements.tree, elements.links
    its = np.frombuffer(records, RECORD)
    columns = (its[name].astype(np.int64) for name in ("pod", "edge", "host", "up1", "up2"))
    q, f, number, j, i = columns
    rack, _ = np.divmod(src, tree.hosts_per_edge)
    p, e = np.divmod(rack, tree.edges)
    n = number - FIRST_HOST
    within = p == q
    own = within & (e == f) & (n == src % tree.hosts_per_edge) if self_probes else np.zeros(len(src), bool)
    right = (q < tree.pods) & (f < tree.edges) & (n >= 0) & (n < tree.hosts_per_edge) & (j < tree.aggregations)
    right &= np.where(within, (i == UNUSED) & (own | (e != f)), i < tree.cores_of_group) | (own & (i < tree.cores_of_group))
    own &= right
    q, f, n, j, i = (np.where(right, column, 0) for column in (q, f, n, j, i))
    dst = (q * tree.edges + f) * tree.hosts_per_edge + n
    first = (p * tree.edges + e) * tree.aggregations + j
    last = (q * tree.edges + f) * tree.aggregations + j
    inner = (within & ~(own & (i != UNUSED))) | ~right
    core = np.where(inner, 0, i)
    rise = elements.lower + (p * tree.aggregations + j) * tree.cores_of_group + core
    fall = elements.lower + (q * tree.aggregations + j) * tree.cores_of_group + core
    links = np.stack((first, np.where(inner, none, rise), np.where(inner | own, none, fall), np.where(own, none, last)))
    counts = [its[name].astype(np.int64) for name in ("probes", "out", "back", "lost")]
    right &= answering[dst] & np.append(present, True)[links].all(axis=0)
    right &= counts[1] + counts[2] + counts[3] <= counts[0]
    mean, moments = its["mean"].astype(np.int64), its["moments"].astype(np.int64)
    kept = Records(src, dst, links, counts[0], counts[1], counts[2], counts[3], mean, moments)
    if not right.all():
        kept = Records(*(column[..., right] for column in kept))
    return kept, right


class Losses(NamedTuple):
    """Lost probes by the way on which they were lost."""

    ways: Ints
    """A row of `COLUMNS` elements for each; `Elements.total` for none."""
    counts: Floats
    """Lost probes."""
    hosts: Ints
    """Who has reported them."""
    slots: Ints
    """When: the number of the slot, or moments as of `Records`."""


def nothing() -> Losses:
    """Return no losses."""
    return Losses(np.zeros((0, COLUMNS), np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def losses(elements: Elements, records: Records) -> Losses:
    """Return what was lost by these records, with its moments.

    Lost on the way out is what the source sent and the destination did not receive; on the way back it is the reverse. Where
    nothing tells, both ways are in the row. A self-probe has one way, there and back.
    """
    none, size = elements.total, elements.links
    found = []
    for lost, is_out, is_back in ((records.out, True, False), (records.back, False, True), (records.lost, True, True)):
        at = np.flatnonzero(lost)
        if not len(at):
            continue
        first, rise, fall, last = records.links[:, at]
        up = [np.where(link < size, link, none) for link in (first, rise, fall, last)]
        down = [np.where(link < size, link + size, none) for link in (first, rise, fall, last)]
        empty = np.full(len(at), none)
        src, dst = records.src[at], records.dst[at]
        own = src == dst
        out = [elements.sends + src, up[0], up[1], down[2], down[3], elements.receives + dst]
        answers, taken = (np.where(own, none, end) for end in (elements.sends + dst, elements.receives + src))
        back = [answers, up[3], up[2], down[1], down[0], taken]
        ways = np.stack((out if is_out else [empty] * 6) + (back if is_back else [empty] * 6), axis=1)
        found.append(Losses(ways, lost[at].astype(float), src, records.moments[at]))
    return merged(found)


def by_moment(lost: Losses, told_ms: int, slot_ms: int) -> Losses:
    """Return these losses with the time slots that they fell into.

    Args:
        told_ms: When they were reported.
        slot_ms: The length of a slot.
    """
    bits = lost.slots[:, None] >> np.arange(MOMENTS) & 1
    bits[lost.slots == 0, 0] = 1
    row, age = np.nonzero(bits)
    slots = (told_ms - FIRST_MOMENT_MS - EACH_MOMENT_MS * age) // slot_ms
    return _picked(lost, row)._replace(counts=(lost.counts / bits.sum(axis=1))[row], slots=slots)


def merged(parts: list[Losses]) -> Losses:
    """Return several as one."""
    return Losses(*map(np.concatenate, zip(*parts, strict=True))) if parts else nothing()


class Window:
    """The counts of so many slots of some seconds; ``crossings`` is how often each element was crossed in all of them."""

    def __init__(self, elements: Elements, slots: int, seconds: int) -> None:
        self.elements, self.slots, self.seconds = elements, slots, seconds
        self.crossings = np.zeros(elements.total + 1)
        self._ring: deque[tuple[int, npt.NDArray[np.float32], list[Losses]]] = deque()

    def take(self, second: int, crossings: npt.NDArray[np.float32], lost: Losses) -> None:
        """Add what was reported in a second, by a clock that never goes back."""
        slot = second // self.seconds
        if not self._ring or self._ring[-1][0] != slot:
            self._ring.append((slot, np.zeros_like(crossings), []))
        _, sums, parts = self._ring[-1]
        sums += crossings
        self.crossings += crossings
        rows = sum(len(part.counts) for part in parts)
        if len(lost.counts):
            parts.append(_part(lost, MAX_ROWS - rows))
        while self._ring[0][0] <= slot - self.slots:
            _, old, _ = self._ring.popleft()
            self.crossings -= old
        np.maximum(self.crossings, 0.0, out=self.crossings)

    def lost(self) -> Losses:
        """Return what was lost in all slots."""
        return merged([part for _, _, parts in self._ring for part in parts])

    def forget(self, gone: Bools) -> None:
        """Forget all about these elements: they have failed, or come back, and what was before says nothing of now."""
        self.crossings[gone] = 0.0
        for _, sums, parts in self._ring:
            sums[gone] = 0.0
            parts[:] = [without(part, gone) for part in parts]


def _picked(lost: Losses, rows: Bools | Ints | slice) -> Losses:
    return Losses(lost.ways[rows], lost.counts[rows], lost.hosts[rows], lost.slots[rows])


def without(lost: Losses, gone: Bools) -> Losses:
    """Return what was lost on ways without these elements."""
    kept = ~gone[lost.ways].any(axis=1)
    return lost if kept.all() else _picked(lost, np.asarray(kept))


def crossings(elements: Elements, records: Records) -> npt.NDArray[np.float32]:
    """Return how often these records' probes have crossed each element: each link and host once in each direction."""
    size, weights = elements.links, records.probes.astype(float)
    count = np.zeros(elements.total + 1, np.float32)
    links = np.zeros(size + 1)
    for row in records.links:
        links += np.bincount(row, weights, size + 1)
    count[:size] = count[size : 2 * size] = links[:size]
    answered = np.where(records.src == records.dst, 0.0, weights)
    hosts = np.bincount(records.src, weights, elements.hosts) + np.bincount(records.dst, answered, elements.hosts)
    count[elements.sends : elements.receives] = count[elements.receives : elements.total] = hosts
    return count


def _part(lost: Losses, room: int) -> Losses:
    """Return as many rows as there is room for, which stand for all."""
    if len(lost.counts) <= max(room, 1):
        return lost
    step = -(-len(lost.counts) // max(room, 1))
    kept = _picked(lost, slice(None, None, step))
    scale = lost.counts.sum() / kept.counts.sum()
    return kept._replace(counts=kept.counts * scale)
