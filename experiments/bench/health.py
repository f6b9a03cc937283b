"""How well and how fast bad links are named, and at what cost: from counts drawn at random, by agents in the lab, and by traces."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from experiments.bench.frame import Results, in_lab, median_ms, say, times
from experiments.emulation.bad_links import BadLinks
from experiments.emulation.sopa_lab import SopaLab
from flowrules.hashed_way import FiveTuple, hashed_way
from flowrules.label import UNUSED
from sopa_ryu.channel.messages import BACK, LOST_BACK, LOST_OUT, MAX_PROBES, MOMENTS
from sopa_ryu.channel.trace_desk import Asked, Found, Trace
from sopa_ryu.fabric.suspects import Caretaker, Suspected, SuspectPolicy
from sopa_ryu.health.elements import Elements
from sopa_ryu.health.filling import RATE, demand
from sopa_ryu.health.observer import EVALUATION_SECONDS, Health, Observer, Told
from sopa_ryu.health.plan import Lanes, digests, lanes, summary
from sopa_ryu.health.records import RECORD
from sopa_ryu.rest.trace_answer import LinkGroup, Traced, differences, links_of, tell
from topologies import Failures, FatTree, Host

# -- counts drawn at random -----------------------------------------------------------------------------------------------

PROBE_BYTES = 102
HEALTHY = 1e-7
"""The share that a healthy link loses, of which 10,000 are as many losses as one of 0.1%."""
BASE_US, LINK_US = 20, 12
TRIALS = times(200)
"""Of each kind."""


def health() -> Results:
    """Plan probes, name bad links and count false alarms, with counts drawn at random, by the size of the fat-tree."""
    day = 86_400 if TRIALS >= 200 else 40 * TRIALS
    parts: dict[str, Callable[[], object]] = {f"plan k={k}": partial(planned, k) for k in (4, 24, 48)}
    parts["k=4, 1% in 30 s"] = partial(grey, 4, 1, 0.01, 30, TRIALS)
    parts["k=4, two of 1% in 30 s"] = partial(grey, 4, 2, 0.01, 30, TRIALS)
    parts["k=4, 0.1% in 300 s"] = partial(grey, 4, 1, 0.001, 300, max(times(10), TRIALS // 4))
    for k, part in ((24, 1), (48, 10)):
        parts[f"k={k}, 0.5% in 30 s"] = partial(grey, k, 1, 0.005, 30, max(times(10), TRIALS // part))
        parts[f"k={k}, two of 0.5% in 30 s"] = partial(grey, k, 2, 0.005, 30, max(times(10), TRIALS // part // 4))
    for k in (4, 8):
        for share in (1.0, 0.1, 0.05, 0.02, 0.01):
            for self_probes in (True, False):
                name = f"k={k}, {share:.0%} at once, {'self-probes' if self_probes else 'streams between racks only'}"
                parts[name] = partial(soon, k, share, share == 1, max(10, TRIALS // (k // 2)), 30, self_probes)
        parts[f"k={k}, an hour with bursts"] = partial(loaded, k, 18 * TRIALS, 1e-4, self_probes=True)
    for k, share in ((4, 1), (24, 10), (48, 200)):
        parts[f"k={k}, nothing bad"] = partial(quiet, k, max(10, day // share))
    results: Results = {}
    for name, measured in parts.items():
        results[name] = measured()
        say(f"{name}: {results[name]}")
    return results


class World:
    """A fabric whose links lose packets, and its agents' reports; a share of hosts drops one in fifty, as loaded ones do."""

    def __init__(self, k: int, seed: int, bad_hosts: float = 0.01, self_probes: bool = False) -> None:
        self.elements, self.self_probes = Elements(FatTree(k)), self_probes
        every = np.ones(self.elements.hosts, bool)
        self.needs = demand(self.elements, Failures(self.elements.tree), {}, PROBE_BYTES, self_probes=self_probes)
        self.lanes: Lanes = lanes(self.elements, Failures(self.elements.tree), every, self.needs)
        self.random = np.random.default_rng(seed)
        self.shares = np.full(self.elements.total + 1, HEALTHY)
        self.shares[self.elements.total] = 0.0
        bad = self.random.random(self.elements.hosts) < bad_hosts
        self.shares[self.elements.receives : self.elements.total][bad] = 0.02
        self._ways()

    def _ways(self) -> None:
        e, tree, way_of = self.elements, self.elements.tree, self.lanes
        none, size, hosts = e.total, e.links, tree.hosts_per_edge
        racks = way_of.src // hosts, way_of.dst // hosts
        pods = racks[0] // tree.edges, racks[1] // tree.edges
        within, self.own = way_of.up2 == UNUSED, way_of.src == way_of.dst
        core = np.where(within, 0, way_of.up2)
        first, last = (rack * tree.aggregations + way_of.up1 for rack in racks)
        rise, fall = (e.lower + (pod * tree.aggregations + way_of.up1) * tree.cores_of_group + core for pod in pods)
        core_ways = [np.where(within, none, way) for way in (rise, fall + size, fall, rise + size)]
        out = [e.sends + way_of.src, first, *core_ways[:2], last + size, e.receives + way_of.dst]
        back = [e.sends + way_of.dst, last, *core_ways[2:], first + size, e.receives + way_of.src]
        self.out, self.back = np.stack(out), np.where(self.own, none, np.stack(back))
        record = np.zeros(len(way_of.src), RECORD)
        record["pod"], record["edge"], record["host"] = pods[1], racks[1] % tree.edges, way_of.dst % hosts + 2
        record["up1"], record["up2"] = way_of.up1, way_of.up2
        record["mean"] = BASE_US + LINK_US * np.where(within, 2, 4)
        self._record = record  # of what does not change
        self._ends = np.searchsorted(way_of.src, np.arange(e.hosts + 1))

    def second(self) -> list[Told]:
        """Return the reports of one second."""
        record = self._record.copy()
        probes = np.full(len(record), round(RATE))
        out = self.random.binomial(probes, np.minimum(1.0, self.shares[self.out].sum(axis=0)))
        back = self.random.binomial(probes - out, np.minimum(1.0, self.shares[self.back].sum(axis=0)))
        record["probes"], record["back"] = probes, back
        record["out"], record["lost"] = np.where(self.own, 0, out), np.where(self.own, out, 0)
        whole, ends = record.tobytes(), (self._ends * RECORD.itemsize).tolist()
        return [Told(host, whole[ends[host] : ends[host + 1]]) for host in range(self.elements.hosts)]

    def record(self) -> np.ndarray:
        """Return the records of all lanes, of no probes."""
        return self._record.copy()

    def grey(self, count: int, share: float) -> set[tuple[int, bool]]:
        """Let so many links, each in one direction, lose a share; return them."""
        links = self.elements.links
        drawn = self.random.choice(self.elements.directed, count, replace=False)
        directions = {(int(number % links), bool(number >= links)) for number in drawn}
        for link, down in directions:
            self.shares[link + down * links] = share
        return directions


TICKS, OLDEST = 8, 1 << MOMENTS - 1
"""Of a second; the bit of the oldest moment."""


class Moments:
    """The same by eighths of a second: when agents decide that probes are lost, and when they report."""

    def __init__(self, world: World) -> None:
        self.world, self.now = world, 0
        lanes, random = len(world.own), world.random
        self._phase, self._last = random.integers(0, TICKS // 2, lanes), -random.integers(0, TICKS, world.elements.hosts)
        self._record = world.record()
        self._out, self._back = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)  # undecided losses: a bit by their age

    def tick(self) -> list[Told]:
        """Let an eighth of a second pass; return the reports that come in it."""
        world, record, own = self.world, self._record, self.world.own
        self.now += 1
        self._out, self._back = self._out << 1 & (1 << 60) - 1, self._back << 1 & (1 << 60) - 1
        record["moments"] = record["moments"] << 1 | record["moments"] & OLDEST
        sent = self._phase == self.now % (TICKS // 2)
        lost_out = sent & (world.random.random(len(sent)) < world.shares[world.out].sum(axis=0))
        lost_back = sent & ~lost_out & (world.random.random(len(sent)) < world.shares[world.back].sum(axis=0))
        self._out, self._back = self._out | lost_out, self._back | lost_back
        came = sent & ~lost_out & ~lost_back
        record["probes"] += came
        for field, bits, decided in (
            ("lost", self._out, np.where(own, self._out & ~3, 0)),
            ("out", self._out, np.where(came & ~own, self._out, 0)),
            ("back", self._back, np.where(came, self._back, 0)),
        ):
            self._decide(field, bits, decided)
        both = self._out | self._back
        late = both & ~((1 << TICKS) - 1)  # after a second, if the next one is lost, too
        late = np.where(both & ((1 << TICKS) - 1), late, 0)
        self._decide("lost", self._out, self._out & late)
        self._decide("lost", self._back, self._back & late)
        return self._reports()

    def _decide(self, field: str, bits: np.ndarray, decided: np.ndarray) -> None:
        count = np.bitwise_count(decided)
        self._record[field] += count
        self._record["probes"] += count
        ages = decided >> 2 | decided & 3
        self._record["moments"] |= (np.where(ages >= OLDEST, OLDEST, 0) | ages & OLDEST - 1).astype(np.uint16)
        bits &= ~decided

    def _reports(self) -> list[Told]:
        src, record = self.world.lanes.src, self._record
        since = self.now - self._last
        lost = record["out"] + record["back"] + record["lost"]
        news = self.world.self_probes & (np.bincount(src, lost, len(since)) > 0)
        told = []
        for host in np.flatnonzero((since >= TICKS) | ((since >= TICKS // 2) & news)).tolist():
            its = slice(*np.searchsorted(src, (host, host + 1)).tolist())
            told.append(Told(host, record[its][record["probes"][its] > 0].tobytes()))
            for field in ("probes", "out", "back", "lost", "moments"):
                record[field][its] = 0
            self._last[host] = self.now
        return told


def watched(world: World, seconds: float, change: Callable[[float], object]) -> tuple[dict[str, float], float]:
    """Return when each link was named, and the share of a processor that it took; `change` comes before each eighth of a second."""
    elements, tree = world.elements, world.elements.tree
    observer, caretaker = Observer(elements, self_probes=world.self_probes), Caretaker(tree, SuspectPolicy.WARN)
    observer.answers(np.ones(elements.hosts, bool))
    moments, named, told, spent = Moments(world), dict[str, float](), list[Told](), 0.0
    while moments.now < TICKS * seconds:
        change(moments.now / TICKS)
        told += moments.tick()
        if moments.now % 2:  # the controller hands reports on each quarter of a second
            continue
        now, began = moments.now / TICKS, time.process_time()
        observer.take(told, now)
        whole = now % EVALUATION_SECONDS == 0
        suspects = observer.conclude().suspects if whole else observer.at_once()
        spent += time.process_time() - began
        told = []
        if whole or suspects:
            found = [Suspected(tree.name(elements.link(one.link)), *one[1:]) for one in suspects]
            caretaker.decide(found, Failures(tree), whole)
        for one in caretaker.confirmed():
            named.setdefault(one.name, now)
    return named, spent / seconds


def soon(k: int, share: float, dead: bool, trials: int, seconds: float, self_probes: bool, seed: int = 1) -> dict[str, object]:
    """Return how soon a link was named that loses a share in one direction, or all in both, and which were named wrongly."""
    world, after, wrong = World(k, seed, self_probes=self_probes), list[float](), Counter[str]()
    healthy, size = world.shares.copy(), world.elements.links
    for _ in range(trials):
        world.shares = healthy.copy()
        link = int(world.random.integers(size))
        ways = [link, link + size] if dead else [link + size * int(world.random.integers(2))]
        begins = 4 + int(world.random.integers(2 * TICKS)) / TICKS

        def fail(now: float, ways: Sequence[int] = ways, begins: float = begins) -> None:
            if now == begins:
                world.shares[ways] = share

        named, _ = watched(world, begins + seconds, fail)
        name = world.elements.tree.name(world.elements.link(link))
        after += [named.pop(name) - begins] if name in named else []
        wrong.update(named)
    after.sort()
    times = (statistics.median(after), after[int(0.9 * len(after))], after[-1]) if after else None
    return {"named": f"{len(after)} of {trials}", "seconds (median, 90%, most)": times, "named wrongly": dict(wrong)}


def loaded(k: int, seconds: int, noise: float, self_probes: bool, seed: int = 1) -> dict[str, object]:
    """Return which links were named while all lose a little, and each once half for an eighth of a second, in each direction."""
    world = World(k, seed, self_probes=self_probes)
    links, order = world.shares[: world.elements.directed], world.random.permutation(world.elements.directed).tolist()

    def burst(now: float) -> None:
        links[:] = noise
        number, rest = divmod(round(now * TICKS), max(1, seconds * TICKS // len(order)))
        if not rest and number < len(order):
            links[order[number]] = 0.5

    named, share = watched(world, seconds, burst)
    return {"simulated seconds": seconds, "false names": named, "share of a processor": round(share, 4)}


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
    plan = lanes(elements, Failures(tree), every, needs)
    took = 1000 * (time.process_time() - began)
    failed = Failures(tree, {"a0_0-c0_1" if k > 2 else "a0_0-c0_0": "down"})
    other = lanes(elements, failed, every, demand(elements, failed, {}, PROBE_BYTES))
    changed = int((digests(elements, plan) != digests(elements, other)).sum())
    return {"ms": round(took, 1), "lists changed by a failure": changed, **summary(elements, plan, needs)}


# -- in the lab -----------------------------------------------------------------------------------------------------------

LAB_K, SEED = 4, 1
LAB_TRIALS = times(50)
LONG_TRIALS = max(1, LAB_TRIALS // 10)
FIRST_REPORTS_SECONDS = 5.0
"""The time in which all agents have their streams, and have reported."""
EVALUATED_SECONDS = 3.0
"""Longer than from one evaluation to the next."""
POLL_SECONDS = 0.25
CLEAR_SECONDS = 20.0


@in_lab
def health_lab() -> Results:
    """Make links grey in the k=4 lab, in one direction each, until the controller names them from what real agents report."""
    with SopaLab(FatTree(LAB_K), None) as lab:
        lab.controller.wait_until(lambda: lab.controller.get("/health").json()["running"], "the estimator ran", 60)
        time.sleep(FIRST_REPORTS_SECONDS)
        return {
            "1% of one link": _lab_trials(lab, LAB_TRIALS, 1, 0.01, 30),
            "1% of two links": _lab_trials(lab, max(1, LAB_TRIALS // 5), 2, 0.01, 60),
            "0.1% of one link": _lab_trials(lab, LONG_TRIALS, 1, 0.001, 300),
        }


def _suspects(lab: SopaLab) -> dict[str, str]:
    """Return the links that are suspect, each with the direction that loses more."""
    body = lab.controller.get("/health", suspects="1").json()
    worse = {True: "up", False: "down"}
    return {
        link["name"]: worse[(link["loss"]["up"] or 0) > (link["loss"]["down"] or 0)] for link in body["links"] if link["suspect"]
    }


def _lab_trial(lab: SopaLab, choose: random.Random, bad: int, share: float, seconds: float) -> dict[str, Any]:
    """Make links bad until they are named or the time is over, and healthy again; what was before is forgotten by a drain."""
    links = [lab.tree.name(link) for link in lab.tree.switch_links()]
    chosen = {name: choose.choice(("up", "down")) for name in choose.sample(links, bad)}
    wrong: set[tuple[str, str]] = set()
    with BadLinks(lab.lab) as faults:
        for name, way in chosen.items():
            faults.set_loss(name, name.split("-")[way == "up"], share, seed=choose.randrange(1 << 30))
        began, named = time.monotonic(), None
        while time.monotonic() - began < seconds:
            named_now = _suspects(lab)
            wrong |= set(named_now.items()) - set(chosen.items())
            if named_now.keys() >= chosen.keys():
                named = time.monotonic() - began
                break
            time.sleep(POLL_SECONDS)
    for name in {*chosen, *(name for name, _ in wrong)}:
        lab.controller.change("PUT", f"/drains/{name}").raise_for_status()
    time.sleep(EVALUATED_SECONDS)
    for name in {*chosen, *(name for name, _ in wrong)}:
        lab.controller.change("DELETE", f"/drains/{name}").raise_for_status()
    lab.controller.wait_until(lambda: not _suspects(lab), "no link was suspect any more", CLEAR_SECONDS)
    time.sleep(EVALUATED_SECONDS)
    return {"chosen": chosen, "named": named, "wrong": sorted(wrong)}


def _lab_trials(lab: SopaLab, count: int, bad: int, share: float, seconds: float) -> dict[str, Any]:
    """Return how many of so many trials named what was bad, and nothing else."""
    choose = random.Random(f"{SEED} {bad} {share}")
    done: list[dict[str, Any]] = []
    for number in range(count):
        done.append(_lab_trial(lab, choose, bad, share, seconds))
        say(f"{bad} of {100 * share:g}%, trial {number + 1} of {count}: {done[-1]}")
    times = sorted(one["named"] for one in done if one["named"] is not None)
    return {
        "right": f"{sum(one['named'] is not None and not one['wrong'] for one in done)} of {count}",
        "seconds (median, most)": (round(statistics.median(times), 1), round(times[-1], 1)) if times else None,
        "others": [one for one in done if one["wrong"] or one["named"] is None],
    }


# -- traces ---------------------------------------------------------------------------------------------------------------

TRACE_K = 48
TRACE_ROUNDS = 20
TRACE_TRIALS = 200
LOSSES = (0.01, 0.05, 0.1, 0.3, 1.0)
COUNTS = (20, 100, 1000)


def trace() -> Results:
    """Measure the answer about the longest trace, the way of a hashed flow, and links named by difference at k=6.

    ``answer_ms`` is the controller's time for a trace of `MAX_PROBES` probes at k=48, ``hashed_ms`` that of a flow while a link has
    failed. ``named``, by the loss and the probes of each of nine paths: how often exactly the right group was named, ``wrong`` how
    often another one, ``false`` how often one was named while all paths lost 4% alike; all out of `TRACE_TRIALS`.
    """
    tree = FatTree(TRACE_K)
    src, dst = Host(0, 0, 2), Host(TRACE_K - 1, TRACE_K // 2 - 1, 2)
    healthy, failed = Failures(tree), Failures(tree, {"a1_0-c0_1": "down"})
    longest = _longest(tree, src, dst)
    flow = FiveTuple(tree.ip(src), tree.ip(dst), 6, 40000, 5201)
    named, wrong = _named()
    return {
        "k": TRACE_K,
        "probes": sum(result.sent for result in longest.found),
        "answer_ms": round(median_ms(lambda: tell(longest, healthy, ()), TRACE_ROUNDS), 3),
        "hashed_ms": round(median_ms(lambda: hashed_way(failed, src, dst, flow), TRACE_ROUNDS), 3),
        "trials": TRACE_TRIALS,
        "named": named,
        "wrong": wrong,
        "false": sum(any(group.loss for group in _groups({"h0_0_2-e0_0": 0.02}, 50, seed)[1:]) for seed in range(TRACE_TRIALS)),
    }


def _longest(tree: FatTree, src: Host, dst: Host) -> Trace:
    draw, ups = random.Random(1), tree.choices_between(src, dst)
    probes = MAX_PROBES // len(ups)
    longest = Trace(1, src, dst, Asked(ups, probes, 5.0), 1, 0.0, 0.0)
    longest.found = [Found() for _ in ups]
    for result in longest.found:
        for _ in range(probes):
            lost = draw.random() < 0.01
            result.fates[draw.choice((LOST_OUT, LOST_BACK)) if lost else BACK] += 1
            if not lost:
                result.delays.append(draw.randrange(50_000, 500_000))
    return longest


def _named() -> tuple[dict[str, int], int]:
    named: dict[str, int] = {}
    wrong = 0
    for loss in LOSSES:
        for count in COUNTS:
            right = 0
            for seed in range(TRACE_TRIALS):
                bad = [group for group in _groups({"a0_1-c1_1": loss}, count, seed) if group.loss]
                right += len(bad) == 1 and "a0_1-c1_1" in bad[0].links
                wrong += any("a0_1-c1_1" not in group.links for group in bad)
            named[f"{loss:.0%} loss, {count} probes"] = right
    return named, wrong


def _groups(lossy: dict[str, float], probes: int, seed: int) -> Sequence[LinkGroup]:
    """Return the groups that probes on the nine paths of a pair at k=6 give."""
    tree, draw = FatTree(6), random.Random(seed)
    src, dst = Host(0, 0, 2), Host(1, 1, 2)
    paths = []
    for up in tree.choices_between(src, dst):
        links = links_of(tree, src, dst, up)
        arrives = 1.0
        for link in links:
            arrives *= (1 - lossy.get(link, 0.0)) ** 2  # there and back
        paths.append(Traced(links, probes, sum(draw.random() >= arrives for _ in range(probes))))
    return differences(paths).groups
