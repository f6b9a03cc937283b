"""Workloads during which one direction of a link becomes bad: grey, slow or corrupting. Seeded, pure.

The traffic is `pairs.permutation`: every host sends all the time, so that its rate shows at any time what the link costs it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from experiments.workloads.pairs import permutation
from experiments.workloads.plan import BadLink, Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

BAD_AT = 1 / 3
"""Share of the run after which the link becomes bad, as in the workloads of failures."""
LOSS_PERCENT, CORRUPT_PERCENT = 1.0, 1.0
SLOW_PERCENT = 25.0
"""A link of four lanes of which one is left."""
SECONDS = 30.0


def crossed(tree: Clos, transfers: Iterable[Transfer]) -> dict[tuple[str, str], list[int]]:
    """Return the directions (link, switch that it leads to) on candidate paths of transfers' data, and the transfers' indices."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(transfers):
        its = {
            (sender, towards)
            for path in tree.candidate_paths(one.src, one.dst)
            for sender, towards in zip(path.hops, path.hops[1:], strict=False)
        }
        for sender, towards in sorted(its):
            name = tree.name(tree.link(tree.switch(sender), tree.switch(towards)))
            found.setdefault((name, towards), []).append(number)
    return dict(sorted(found.items()))


def with_bad_link(plan: Plan, tree: Clos, seed: int, loss: float = 0.0, corruption: float = 0.0, rate: float = 1.0) -> Plan:
    """Return the plan with one direction of a link between switches bad from a third of the run on.

    The seed decides which, of those that transfers' data may cross. ``loss`` and ``corruption`` are probabilities, ``rate`` is the
    share of the link's rate that is left. Raises `WorkloadError` if no transfer leaves its rack.
    """
    directions = crossed(tree, plan.transfers)
    if not directions:
        raise WorkloadError(f"no link between switches carries anything in a {tree.title}: give a fabric with two racks")
    choose = random.Random(f"{seed} bad link")
    link, towards = choose.choice(list(directions))
    bad = BadLink(link, towards, BAD_AT * plan.seconds, loss, corruption, rate, tuple(directions[link, towards]))
    return replace(plan, bad=(*plan.bad, bad))


def _build(kind: str, percent: float, tree: Clos, seed: int, scale: Scale) -> Plan:
    return with_bad_link(permutation(tree, seed, scale), tree, seed, **{kind: percent / 100})


def _workload(kind: str, parameter: str, what: str, name: str, percent: float) -> Workload:
    """Return a workload of one kind of bad link; ``what`` has the place of the percentage."""
    return Workload(
        name,
        f"permutation, and one direction of a link {what.format(f'{percent:g}%')} from a third of the run on",
        partial(_build, kind, percent),
        seconds=SECONDS,
        parameters={parameter: percent, "bad": "one direction of a link, at a third of the run"},
    )


def _grey(name: str = "grey-link", percent: float = LOSS_PERCENT) -> Workload:
    return _workload("loss", "loss_percent", "loses {} of packets (grey-link+loss=P: P%)", name, percent)


def _slow(name: str = "slow-link", percent: float = SLOW_PERCENT) -> Workload:
    return _workload("rate", "rate_percent", "has {} of its rate (slow-link+rate=P: P%)", name, percent)


def _corrupting(name: str = "corrupting-link", percent: float = CORRUPT_PERCENT) -> Workload:
    what = "flips a bit in {} of packets (corrupting-link+bits=P: P%)"
    return _workload("corruption", "corrupt_percent", what, name, percent)


WORKLOADS = (_grey(), _slow(), _corrupting())
_VARIANTS = {"grey-link": ("loss", _grey), "slow-link": ("rate", _slow), "corrupting-link": ("bits", _corrupting)}


def named(name: str) -> Workload | None:
    """Return ``grey-link+loss=0.1`` of that percentage, ``slow-link+rate=50``, ``corrupting-link+bits=10``; None for other names.

    ``grey-link+loss=0`` is the healthy fabric with the same records. Raises `WorkloadError` for an unknown setting, or a percentage
    that is not from 0 to 100; a rate is above 0.
    """
    base, plus, setting = name.partition("+")
    if base not in _VARIANTS or not plus:
        return None
    known, make = _VARIANTS[base]
    key, _, text = setting.partition("=")
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if key != known or not 0 <= percent <= 100 or (known == "rate" and percent == 0):
        least = "above 0 and at most 100" if known == "rate" else "from 0 to 100"
        raise WorkloadError(f"{name}: {setting!r} is not a setting: write {base}+{known}=PERCENT, {least}")
    return make(f"{base}+{known}={percent:g}", percent)
