"""Who probes what, so that every link between switches is crossed in each direction as often as wanted. Pure.

A probe between pods crosses four links, each once up and once down, since its answer comes back over the same switches. So all
links of a group, the aggregation switches of one index with their core switches, can be crossed equally often: at each core switch
the pods form circles, of another step each time (`_between_pods`), and the racks of both ends take turns. What that leaves, since
there are more racks than core switches, or links are absent, failed or slow, is filled up within pods and one by one.

Self-probes, which lead from a host to a switch and back to the same host, cross the links above its own rack and pod; the hosts of
a rack and the racks of a pod take turns here, too (`_to_itself`).

Each of these *lanes*, a stream of some probes a second, follows from the structure alone, and so does the host that has it:
a failure, or a host that begins or ceases to answer, changes the lanes concerned and no other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowrules.label import UNUSED
from sopa_ryu.channel.messages import MAX_LISTED_MS, Assignment, Stream, Turn
from sopa_ryu.health import filling
from sopa_ryu.health.elements import Elements
from sopa_ryu.health.filling import CROSSINGS, LISTED, RATE, SELF_SHORT, WITHIN, LaneDemand, counted, crossed
from sopa_ryu.health.records import Bools, Ints
from topologies import Clos, Failures, Level, Switch

MAX_OF_HOST = 90
"""Streams of one host at most: a rack with too few agents for its links is probed less."""
BUCKETS = 16
"""The lanes of a host that does not answer go to so many others of its rack, at most."""


class Lanes(NamedTuple):
    """The streams of all hosts, in the order of the hosts' numbers; `UNUSED` for a hop that is not taken."""

    src: Ints
    dst: Ints
    up1: Ints
    up2: Ints


def lanes(elements: Elements, failures: Failures, answering: Bools, needs: LaneDemand) -> Lanes:
    """Return all lanes; ``answering`` tells whether the host of each number has an agent that probes and answers."""
    tree = elements.tree
    racks = answering.reshape(tree.pods, tree.edges, tree.hosts_per_edge)
    for element in failures.elements:
        if isinstance(element, Switch) and element.level is Level.EDGE:
            racks = racks.copy()
            racks[element.pod, element.index] = False
    usable = needs.most > 0
    low: Bools = usable[: elements.lower].reshape(tree.pods, tree.edges, tree.aggregations).transpose(0, 2, 1)
    low = low & np.asarray(racks.any(axis=2))[:, None, :]
    high: Bools = usable[elements.lower :].reshape(tree.pods, tree.aggregations, tree.cores_of_group)
    high = high & np.asarray(low.any(axis=2))[:, :, None]
    made = np.concatenate((_between_pods(tree, low, high), _within_pods(tree, low)), axis=1)
    if not _is_exact(elements, made, needs, low, high):
        made = _thinned(elements, made, needs)
        made = filling.filled(elements, made, low, high, needs)
    made = np.concatenate((made, _to_itself(elements, low, high, needs)), axis=1)
    return _given_out(tree, made, racks, min(MAX_OF_HOST, math.floor(needs.host_rate / needs.rate)))


def _between_pods(tree: Clos, low: Bools, high: Bools) -> Ints:
    """Return lanes between pods: columns of pod, edge, pod, edge, up1, up2 and a number of each lane that stays."""
    pods, edges, groups, cores = tree.pods, tree.edges, tree.aggregations, tree.cores_of_group
    if pods < 2 or not cores:
        return np.zeros((7, 0), np.int64)
    turns = -(-round(CROSSINGS / RATE) // 2)  # a lane ends at two of the links
    p, j, i, t = (axis.ravel() for axis in np.indices((pods, groups, cores, turns), dtype=np.int64))
    x = i * turns + t
    step = 1 + (x + x // math.lcm(edges, pods - 1) + j) % (pods - 1)
    q = (p + step) % pods
    for _ in range(pods):  # a pod that cannot be reached is left out of its circle
        skipped = ~high[q, j, i]
        if not skipped.any():
            break
        q[skipped] = (q + step)[skipped] % pods
    kept = high[p, j, i] & high[q, j, i] & (q != p)
    p, q, j, i, x = p[kept], q[kept], j[kept], i[kept], x[kept]
    shifted = x // edges
    e = _rack(low, p, j, (x + p) % edges, shifted)
    f = _rack(low, q, j, (x + shifted + q) % edges, shifted)
    return np.stack((p, e, q, f, j, i, x))


def _within_pods(tree: Clos, low: Bools) -> Ints:
    """Return lanes within pods: `WITHIN`, and what links need where there are fewer core switches than racks."""
    pods, edges, groups = tree.pods, tree.edges, tree.aggregations
    full = round(CROSSINGS / RATE)
    turns = -(-full // 2)
    left = max(WITHIN, full - (2 * turns * tree.cores_of_group // edges if pods > 1 else 0))
    if edges < 2:
        return np.zeros((7, 0), np.int64)
    turns = -(-left // 2)
    p, j, e, t = (axis.ravel() for axis in np.indices((pods, groups, edges, turns), dtype=np.int64))
    step = 1 + (t + j) % (edges - 1)
    f = (e + step) % edges
    for _ in range(edges):
        skipped = ~low[p, j, f]
        if not skipped.any():
            break
        f[skipped] = (f + step)[skipped] % edges
    kept = low[p, j, e] & low[p, j, f] & (e != f)
    x = t * edges + e
    return np.stack((p, e, p, f, j, np.full_like(p, UNUSED), x))[:, kept]


def _to_itself(elements: Elements, low: Bools, high: Bools, needs: LaneDemand) -> Ints:
    """Return the lanes of self-probes: from each rack some by each aggregation switch, most of which turn at core switches."""
    tree = elements.tree
    if not needs.own.any():
        return np.zeros((7, 0), np.int64)
    long, cores = filling.cores_lanes(tree), max(1, tree.cores_of_group)
    t, p, j, e = (
        axis.ravel() for axis in np.indices((SELF_SHORT + long, tree.pods, tree.aggregations, tree.edges), dtype=np.int64)
    )
    turns_low, number = t < SELF_SHORT, t - SELF_SHORT
    i = np.where(turns_low, 0, (number + e) % cores)
    kept = low[p, j, e] & (turns_low | (high[p, j, i] if tree.cores_of_group else False))
    i = np.where(turns_low, UNUSED, i)
    x = np.where(turns_low, t, number + number // cores) * tree.edges + e
    made: Ints = np.stack((p, e, p, e, j, i, x))[:, kept]
    for row in crossed(elements, made)[:2]:  # links that bear fewer
        by_link = np.argsort(row, kind="stable")
        of = row[by_link]
        rank = np.arange(len(of)) - np.searchsorted(of, of)
        made[0, by_link[rank >= np.append(needs.own, made.shape[1])[of]]] = -1
    return made[:, made[0] >= 0]


def _rack(low: Bools, p: Ints, j: Ints, first: Ints, other: Ints) -> Ints:
    """Return a rack of each lane's end: the first choice, or one of those that are left."""
    if low.all():
        return first
    order = np.argsort(~low, axis=2, kind="stable")
    count = np.maximum(low.sum(axis=2), 1)
    return np.where(low[p, j, first], first, order[p, j, other % count[p, j]])


def _is_exact(elements: Elements, made: Ints, needs: LaneDemand, low: Bools, high: Bools) -> bool:
    """Return whether every link that can be crossed is crossed often enough and not too often."""
    count = counted(elements, made)
    can = np.concatenate((low.transpose(0, 2, 1).ravel(), high.ravel()))
    return bool(np.all((count >= needs.wanted) | ~can) and np.all(count <= needs.most))


def _thinned(elements: Elements, made: Ints, needs: LaneDemand) -> Ints:
    links = crossed(elements, made)
    kept = np.ones(made.shape[1], bool)
    order = np.argsort(mixed(*made), kind="stable")
    for column, row in enumerate(links):
        turn = row[order]
        real = (turn < elements.links) & kept[order]
        where = order[real]
        by_link = np.argsort(row[where], kind="stable")
        where = where[by_link]
        of = row[where]
        rank = np.arange(len(of)) - np.searchsorted(of, of)
        # each link is in two of the columns, that of the near ends first: half of what it bears in each
        kept[where[rank >= (needs.most[of] + (column < 2)) // 2]] = False
    return made[:, kept]


def mixed(*columns: Ints) -> npt.NDArray[np.uint64]:
    """Return a number for each row of the columns that looks random (the finalizer of splitmix64)."""
    value = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        value = (value ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
    return value


# -- hosts ------------------------------------------------------------------------------------------------------------


def _given_out(tree: Clos, made: Ints, racks: Bools, most: int) -> Lanes:
    """Give each lane a host at both ends, and leave out what is more than ``most`` of one."""
    p, e, q, f, j, i, x = made
    hosts = tree.hosts_per_edge
    where = mixed(*made)
    turn = x // tree.edges
    bucket = (where % np.uint64(BUCKETS)).astype(np.int64)
    n = _host(racks, p, e, (turn + j) % hosts, bucket)
    m = np.where((p == q) & (e == f), n, _host(racks, q, f, (turn + 2 * j + (q - p) % tree.pods) % hosts, bucket))
    src, dst = (p * tree.edges + e) * hosts + n, (q * tree.edges + f) * hosts + m
    order = np.lexsort((where, src))
    ordered = src[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    order = order[rank < most]
    return Lanes(src[order], dst[order], j[order], i[order])


def _host(racks: Bools, pod: Ints, edge: Ints, first: Ints, bucket: Ints) -> Ints:
    """Return the host of each lane's end: the planned one, or by rendezvous hashing one of the rack that answers."""
    hosts = racks.shape[2]
    found = first.copy()
    away = ~racks[pod, edge, first]
    if not away.any():
        return found
    slot, turn, host = (axis.ravel() for axis in np.indices((hosts, BUCKETS, hosts), dtype=np.int64))
    score = mixed(slot, turn, host).reshape(hosts, BUCKETS, hosts) >> np.uint64(1)
    rack = pod * racks.shape[1] + edge
    flat = racks.reshape(-1, hosts)
    where = np.flatnonzero(away)
    where = where[np.argsort(rack[where], kind="stable")]
    ends = np.flatnonzero(np.diff(rack[where])) + 1
    for of in np.split(where, ends):
        best = np.where(flat[rack[of[0]]], score, np.uint64(0)).argmax(axis=2)
        found[of] = best[first[of], bucket[of]]
    return found


# -- lists ------------------------------------------------------------------------------------------------------------


def digests(elements: Elements, lanes: Lanes) -> npt.NDArray[np.uint64]:
    """Return a number for each host that tells its lists apart."""
    lists = np.zeros(elements.hosts, np.uint64)
    np.add.at(lists, lanes.src, mixed(lanes.dst, lanes.up1, lanes.up2))
    return lists


def assignment(elements: Elements, lanes: Lanes, host: int, number: int, needs: LaneDemand) -> Assignment:
    """Return what a host has to probe, its uplinks by turns; a stream that is there twice is probed twice as often."""
    first, last = np.searchsorted(lanes.src, (host, host + 1))
    tree = elements.tree
    its = list(zip(*(column[first:last].tolist() for column in lanes[1:]), strict=True))
    streams = [
        Stream(IPv4Address(tree.ip(elements.host(dst))), up1, up2)
        for dst, up1, up2 in _by_turns([lane for lane in its if lane[0] != host], host)
    ]
    turns = []
    for _, up1, up2 in _by_turns([lane for lane in its if lane[0] == host], host):
        port2 = UNUSED if up2 == UNUSED else tree.uplink_port(Level.AGGREGATION, up2)
        turns.append(Turn(up1, up2, tree.uplink_port(Level.EDGE, up1), port2))
    listed = min(needs.rate * max(1, len(streams) + len(turns)), LISTED * needs.host_rate)
    interval = min(MAX_LISTED_MS, 1000.0 / max(listed, 1e-3))
    return Assignment(number, round(interval, 3), tuple(streams), round(needs.host_rate, 3), tuple(turns))


def _by_turns(lanes: Sequence[tuple[int, ...]], first: int) -> list[tuple[int, ...]]:
    """Return lanes of equal ends so that their uplinks take turns: however far a host has got, it has probed all alike.

    A lane is a destination and its uplinks. Hosts with another ``first`` begin with other uplinks.

    >>> _by_turns([(9, 0, 0), (8, 0, 0), (9, 0, 1), (8, 0, 1)], 1)
    [(9, 0, 1), (9, 0, 0), (8, 0, 1), (8, 0, 0)]
    """
    counts, seen = Counter(lane[1:] for lane in lanes), Counter[tuple[int, ...]]()
    place = {uplinks: (number + first) % len(counts) for number, uplinks in enumerate(sorted(counts))}
    at = []
    for _, *hops in lanes:
        uplinks = tuple(hops)
        at.append((seen[uplinks] + (place[uplinks] + 0.5) / len(counts)) / counts[uplinks])
        seen[uplinks] += 1
    return [lanes[number] for number in sorted(range(len(lanes)), key=at.__getitem__)]


def summary(elements: Elements, lanes: Lanes, needs: LaneDemand) -> dict[str, Any]:
    """Return how evenly the links are crossed by lanes between racks, and the hosts loaded by all."""
    tree, hosts = elements.tree, elements.tree.hosts_per_edge
    ends = [np.divmod(end // hosts, tree.edges) for end in (lanes.src, lanes.dst)]
    made = np.stack((*ends[0], *ends[1], lanes.up1, lanes.up2, np.zeros_like(lanes.src)))
    count = counted(elements, made[:, lanes.src != lanes.dst])
    wanted = needs.wanted > 0
    ratio = count[wanted] / needs.wanted[wanted]
    load = np.bincount(lanes.src, minlength=elements.hosts)
    asked = np.bincount(lanes.dst, minlength=elements.hosts)
    return {
        "links": int(wanted.sum()),
        "streams": len(lanes.src),
        "least": float(ratio.min(initial=np.inf)),
        "most": float(ratio.max(initial=0.0)),
        "per_host": (int(load.min()), int(load.max())),
        "answers_per_host": (int(asked.min()), int(asked.max())),
    }
