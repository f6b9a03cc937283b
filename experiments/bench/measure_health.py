"""The plan of probes, and how well and how fast bad links are named from counts that are drawn at random (no packets)."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.bench.measuring import say
from sopa_ryu.health.elements import Elements
from sopa_ryu.health.observer import EVALUATION_SECONDS, Health, Observer, Told
from sopa_ryu.health.plan import RATE, Lanes, demand, digests, lanes, summary
from sopa_ryu.health.records import RECORD
from topologies import Failures, FatTree

PROBE_BYTES = 102
HEALTHY = 1e-7
"""The share that a healthy link loses, of which 10,000 are as many losses as one of 0.1%."""
BASE_US, LINK_US = 20, 12
TRIALS = int(os.environ.get("SOPA_HEALTH_TRIALS", "200"))
"""Of each kind."""


class World:
    """A fabric whose links and hosts lose what is said, and the reports that its agents then send.

    Args:
        bad_hosts: The share of hosts that drop one in fifty of what they receive, as loaded ones do.
    """

    def __init__(self, k: int, seed: int, bad_hosts: float = 0.01) -> None:
        self.elements = Elements(FatTree(k))
        every = np.ones(self.elements.hosts, bool)
        self.needs = demand(self.elements, Failures(self.elements.tree), {}, PROBE_BYTES)
        self.lanes: Lanes = lanes(self.elements, Failures(self.elements.tree), every, self.needs)
        self.random = np.random.default_rng(seed)
        self.shares = np.full(self.elements.total + 1, HEALTHY)
        self.shares[self.elements.total] = 0.0
        bad = self.random.random(self.elements.hosts) < bad_hosts
        self.shares[self.elements.receives : self.elements.total][bad] = 0.02
        self._ways()

    def _ways(self) -> None:
        e, tree, its = self.elements, self.elements.tree, self.lanes
        none, size, hosts = e.total, e.links, tree.hosts_per_edge
        racks = its.src // hosts, its.dst // hosts
        pods = racks[0] // tree.edges, racks[1] // tree.edges
        within = pods[0] == pods[1]
        core = np.where(within, 0, its.up2)
        first, last = (rack * tree.aggregations + its.up1 for rack in racks)
        rise, fall = (e.lower + (pod * tree.aggregations + its.up1) * tree.cores_of_group + core for pod in pods)
        core_ways = [np.where(within, none, way) for way in (rise, fall + size, fall, rise + size)]
        out = [e.sends + its.src, first, *core_ways[:2], last + size, e.receives + its.dst]
        back = [e.sends + its.dst, last, *core_ways[2:], first + size, e.receives + its.src]
        self.out, self.back = np.stack(out), np.stack(back)
        record = np.zeros(len(its.src), RECORD)
        record["pod"], record["edge"], record["host"] = pods[1], racks[1] % tree.edges, its.dst % hosts + 2
        record["up1"], record["up2"] = its.up1, its.up2
        record["mean"] = BASE_US + LINK_US * np.where(within, 2, 4)
        self._record = record
        self._ends = np.searchsorted(its.src, np.arange(e.hosts + 1))

    def second(self) -> list[Told]:
        """Return the reports of one second."""
        record = self._record.copy()
        probes = np.full(len(record), round(RATE))
        out = self.random.binomial(probes, np.minimum(1.0, self.shares[self.out].sum(axis=0)))
        back = self.random.binomial(probes - out, np.minimum(1.0, self.shares[self.back].sum(axis=0)))
        record["probes"], record["out"], record["back"] = probes, out, back
        whole, ends = record.tobytes(), (self._ends * RECORD.itemsize).tolist()
        return [Told(host, whole[ends[host] : ends[host + 1]]) for host in range(self.elements.hosts)]

    def grey(self, count: int, share: float) -> set[tuple[int, bool]]:
        """Let so many links, each in one direction, lose a share; return them."""
        found = {(int(d % self.elements.links), bool(d >= self.elements.links))
                 for d in self.random.choice(self.elements.directed, count, replace=False)}  # fmt: skip
        for link, down in found:
            self.shares[link + down * self.elements.links] = share
        return found


class Trial(NamedTuple):
    """How a trial went: when all were named, in seconds, or None; and what was named wrongly."""

    named_after: int | None
    wrong: int


def trial(world: World, bad: set[tuple[int, bool]], seconds: int) -> Trial:
    """Observe for so many seconds, or until exactly the bad links are named."""
    observer = Observer(world.elements)
    observer.answers(np.ones(world.elements.hosts, bool))
    wrong: set[tuple[int, bool | None]] = set()
    before: set[tuple[int, bool | None]] = set()
    for second in range(1, seconds + 1):
        observer.take(world.second(), second)
        if second % EVALUATION_SECONDS:
            continue
        now = {(one.link, one.down) for one in observer.conclude().suspects}
        before, named = now, now & before  # the controller names what two evaluations agree on
        wrong |= named - bad
        if bad and named >= bad:
            return Trial(second, len(wrong))
    return Trial(None, len(wrong))


def grey(k: int, count: int, share: float, seconds: int, trials: int, seed: int = 1) -> dict[str, object]:
    """Return how many trials named exactly what was bad, and when."""
    world, done = World(k, seed), []
    healthy = world.shares.copy()
    for _ in range(trials):
        world.shares = healthy.copy()
        done.append(trial(world, world.grey(count, share), seconds))
    right = [one for one in done if one.named_after is not None and not one.wrong]
    after = sorted(one.named_after for one in right if one.named_after is not None)
    return {
        "named": f"{len(right)} of {trials}",
        "share": round(len(right) / trials, 4),
        "seconds (median, most)": (statistics.median(after), after[-1]) if after else None,
        "named wrongly": sum(one.wrong for one in done),
    }


def quiet(k: int, seconds: int, seed: int = 1) -> dict[str, object]:
    """Return how many links were named while none was bad, and the time of one second of data."""
    world = World(k, seed)
    observer = Observer(world.elements)
    observer.answers(np.ones(world.elements.hosts, bool))
    named: set[tuple[int, bool | None]] = set()
    took, before = [], frozenset[tuple[int, bool | None]]()
    events = 0
    for second in range(1, seconds + 1):
        reports = world.second()
        began = time.process_time()
        observer.take(reports, second)
        if second % EVALUATION_SECONDS == 0:
            health: Health = observer.conclude()
            now = frozenset((one.link, one.down) for one in health.suspects)
            events += len(now - before)
            named |= now
            before = now
        took.append(1000 * (time.process_time() - began))
    return {
        "simulated seconds": seconds,
        "false alarms": events,
        "links": sorted(named, key=str)[:4],
        "ms a second of data (mean, most)": (round(statistics.mean(took), 1), round(max(took), 1)),
    }


def planned(k: int) -> dict[str, object]:
    """Return time and evenness of the plan, and how many lists a failure changes."""
    tree = FatTree(k)
    elements, every = Elements(tree), np.ones(tree.host_count, bool)
    began = time.process_time()
    needs = demand(elements, Failures(tree), {}, PROBE_BYTES)
    its = lanes(elements, Failures(tree), every, needs)
    took = 1000 * (time.process_time() - began)
    failed = Failures(tree, {"a0_0-c0_1" if k > 2 else "a0_0-c0_0": "down"})
    other = lanes(elements, failed, every, demand(elements, failed, {}, PROBE_BYTES))
    changed = int((digests(elements, its) != digests(elements, other)).sum())
    return {"ms": round(took, 1), "lists changed by a failure": changed, **summary(elements, its, needs)}


def measure() -> Mapping[str, object]:
    """Plan probes, name bad links and count false alarms, with counts drawn at random, by the size of the fat-tree."""
    day = 86_400 if TRIALS >= 200 else 40 * TRIALS
    parts: dict[str, Callable[[], object]] = {f"plan k={k}": partial(planned, k) for k in (4, 24, 48)}
    parts["k=4, 1% in 30 s"] = partial(grey, 4, 1, 0.01, 30, TRIALS)
    parts["k=4, two of 1% in 30 s"] = partial(grey, 4, 2, 0.01, 30, TRIALS)
    parts["k=4, 0.1% in 300 s"] = partial(grey, 4, 1, 0.001, 300, max(10, TRIALS // 4))
    for k, part in ((24, 1), (48, 10)):
        parts[f"k={k}, 0.5% in 30 s"] = partial(grey, k, 1, 0.005, 30, max(10, TRIALS // part))
        parts[f"k={k}, two of 0.5% in 30 s"] = partial(grey, k, 2, 0.005, 30, max(10, TRIALS // part // 4))
    for k, share in ((4, 1), (24, 10), (48, 200)):
        parts[f"k={k}, nothing bad"] = partial(quiet, k, day // share)
    found: dict[str, object] = {}
    for name, measured in parts.items():
        found[name] = measured()
        say(f"{name}: {found[name]}")
    return found
