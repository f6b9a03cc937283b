"""What traces cost the controller at k=48, and how well differences between paths name a lossy link (probes drawn at random)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from flowrules.hashed_way import FiveTuple, hashed_way
from sopa_ryu.channel.messages import BACK, LOST_BACK, LOST_OUT, MAX_PROBES
from sopa_ryu.channel.trace_desk import Asked, Found, Trace
from sopa_ryu.rest.trace_answer import Traced, differences, links_of, tell
from topologies import Failures, FatTree, Host

K = 48
ROUNDS = 20
TRIALS = 200
LOSSES = (0.01, 0.05, 0.1, 0.3, 1.0)
COUNTS = (20, 100, 1000)


def measure() -> dict[str, Any]:
    """Measure the answer about the longest trace, the way of a hashed flow, and links named by difference at k=6.

    Returns:
        ``answer_ms``, the controller's time for one answer about a trace of `MAX_PROBES` probes at k=48; ``hashed_ms`` that of
        a flow while a link has failed; ``named`` by the loss and the probes of each of nine paths: how often exactly the right
        group was named, and ``wrong`` how often another one; ``false`` how often one was named while all paths lost 4% alike;
        all out of `TRIALS`.
    """
    tree = FatTree(K)
    src, dst = Host(0, 0, 2), Host(K - 1, K // 2 - 1, 2)
    healthy, failed = Failures(tree), Failures(tree, {"a1_0-c0_1": "down"})
    trace = _longest(tree, src, dst)
    flow = FiveTuple(tree.ip(src), tree.ip(dst), 6, 40000, 5201)
    named, wrong = _named()
    return {
        "k": K,
        "probes": sum(found.sent for found in trace.found),
        "answer_ms": _milliseconds(lambda: tell(trace, healthy, ())),
        "hashed_ms": _milliseconds(lambda: hashed_way(failed, src, dst, flow)),
        "trials": TRIALS,
        "named": named,
        "wrong": wrong,
        "false": sum(
            any(group.loss for group in _found({"h0_0_2-e0_0": 0.02}, 50, seed)[1:]) for seed in range(TRIALS)
        ),
    }


def _longest(tree: FatTree, src: Host, dst: Host) -> Trace:
    draw, ups = random.Random(1), tree.choices_between(src, dst)
    probes = MAX_PROBES // len(ups)
    trace = Trace(1, src, dst, Asked(ups, probes, 5.0), 1, 0.0, 0.0)
    trace.found = [Found() for _ in ups]
    for found in trace.found:
        for _ in range(probes):
            lost = draw.random() < 0.01
            found.fates[draw.choice((LOST_OUT, LOST_BACK)) if lost else BACK] += 1
            if not lost:
                found.delays.append(draw.randrange(50_000, 500_000))
    return trace


def _named() -> tuple[dict[str, int], int]:
    named: dict[str, int] = {}
    wrong = 0
    for loss in LOSSES:
        for count in COUNTS:
            right = 0
            for seed in range(TRIALS):
                bad = [group for group in _found({"a0_1-c1_1": loss}, count, seed) if group.loss]
                right += len(bad) == 1 and "a0_1-c1_1" in bad[0].links
                wrong += any("a0_1-c1_1" not in group.links for group in bad)
            named[f"{loss:.0%} loss, {count} probes"] = right
    return named, wrong


def _found(lossy: dict[str, float], probes: int, seed: int) -> Any:
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


def _milliseconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return round(1000 * median(seconds), 3)
