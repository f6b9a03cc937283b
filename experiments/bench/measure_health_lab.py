"""Grey links in the k=4 lab: one direction of a link loses packets, and the controller names it from what real agents report."""

from __future__ import annotations

import os
import random
import statistics
import time
from typing import Any

from experiments.bench.measuring import measured_in_lab, say
from experiments.emulation.bad_links import BadLinks
from experiments.emulation.sopa_lab import SopaLab
from topologies import FatTree

K, SEED = 4, 1
TRIALS = int(os.environ.get("SOPA_HEALTH_LAB_TRIALS", "50"))
LONG_TRIALS = max(1, TRIALS // 10)
FIRST_REPORTS_SECONDS = 5.0
"""The time in which all agents have their streams, and have reported."""
EVALUATION_SECONDS = 3.0
"""Longer than from one evaluation to the next."""
POLL_SECONDS = 0.25
CLEAR_SECONDS = 20.0


def ready(its: SopaLab) -> None:
    """Wait until agents probe and their reports are evaluated."""
    its.controller.wait_until(lambda: its.controller.get("/health").json()["running"], "the estimator ran", 60)
    time.sleep(FIRST_REPORTS_SECONDS)


def suspects(its: SopaLab) -> dict[str, str]:
    """Return the links that are suspect, each with the direction that loses more."""
    body = its.controller.get("/health", suspects="1").json()
    worse = {True: "up", False: "down"}
    return {
        link["name"]: worse[(link["loss"]["up"] or 0) > (link["loss"]["down"] or 0)]
        for link in body["links"]
        if link["suspect"]
    }


def trial(its: SopaLab, choose: random.Random, bad: int, share: float, seconds: float) -> dict[str, Any]:
    """Make links bad until they are named or the time is over, and healthy again; what was before is forgotten by a drain."""
    links = [its.tree.name(link) for link in its.tree.switch_links()]
    chosen = {name: choose.choice(("up", "down")) for name in choose.sample(links, bad)}
    wrong: set[tuple[str, str]] = set()
    with BadLinks(its.lab) as faults:
        for name, way in chosen.items():
            faults.set_loss(name, name.split("-")[way == "up"], share, seed=choose.randrange(1 << 30))
        began, named = time.monotonic(), None
        while time.monotonic() - began < seconds:
            found = suspects(its)
            wrong |= set(found.items()) - set(chosen.items())
            if found.keys() >= chosen.keys():
                named = time.monotonic() - began
                break
            time.sleep(POLL_SECONDS)
    for name in {*chosen, *(name for name, _ in wrong)}:
        its.controller.change("PUT", f"/drains/{name}").raise_for_status()
    time.sleep(EVALUATION_SECONDS)
    for name in {*chosen, *(name for name, _ in wrong)}:
        its.controller.change("DELETE", f"/drains/{name}").raise_for_status()
    its.controller.wait_until(lambda: not suspects(its), "no link was suspect any more", CLEAR_SECONDS)
    time.sleep(EVALUATION_SECONDS)
    return {"chosen": chosen, "named": named, "wrong": sorted(wrong)}


def trials(its: SopaLab, count: int, bad: int, share: float, seconds: float) -> dict[str, Any]:
    """Return how many of so many trials named what was bad, and nothing else."""
    choose = random.Random(f"{SEED} {bad} {share}")
    done: list[dict[str, Any]] = []
    for number in range(count):
        done.append(trial(its, choose, bad, share, seconds))
        say(f"{bad} of {100 * share:g}%, trial {number + 1} of {count}: {done[-1]}")
    times = sorted(one["named"] for one in done if one["named"] is not None)
    return {
        "right": f"{sum(one['named'] is not None and not one['wrong'] for one in done)} of {count}",
        "seconds (median, most)": (round(statistics.median(times), 1), round(times[-1], 1)) if times else None,
        "others": [one for one in done if one["wrong"] or one["named"] is None],
    }


def _measure() -> dict[str, Any]:
    with SopaLab(FatTree(K), None) as its:
        ready(its)
        return {
            "1% of one link": trials(its, TRIALS, 1, 0.01, 30),
            "1% of two links": trials(its, max(1, TRIALS // 5), 2, 0.01, 60),
            "0.1% of one link": trials(its, LONG_TRIALS, 1, 0.001, 300),
        }


def measure() -> dict[str, Any]:
    """Measure in a lab."""
    return measured_in_lab(_measure)
