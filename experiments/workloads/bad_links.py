"""Workloads in which one direction of links is bad: grey, slow or corrupting. Seeded, pure.

The traffic is `pairs.permutation`: every host sends all the time, so that its rate shows at any time what the link costs it. Any
other workload can have links that lose a share of packets, and slow links into a switch, as the Ultra Ethernet reference simulator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from experiments.workloads.pairs import permutation
from experiments.workloads.plan import BadLink, Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos

BAD_AT = 1 / 3
"""Share of the run after which the link becomes bad, as in the workloads of failures."""
SECONDS = 30.0


def crossed(tree: Clos, transfers: Iterable[Transfer]) -> dict[tuple[str, str], list[int]]:
    """Return the directions (link, switch that it leads to) on candidate paths of transfers' data, and the transfers' indices."""

    @cache
    def link(sender: str, towards: str) -> str:
        return tree.name(tree.link(tree.switch(sender), tree.switch(towards)))

    numbers: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(transfers):
        for hop in {hop for path in tree.candidate_paths(one.src, one.dst) for hop in pairwise(path.hops)}:
            numbers.setdefault((link(*hop), hop[1]), []).append(number)
    return dict(sorted(numbers.items()))


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


class _Kind(NamedTuple):
    """A kind of bad link: its setting, argument of `with_bad_link`, parameter in results, default, and what such a link does."""

    setting: str
    argument: str
    parameter: str
    percent: float
    what: str


_KINDS = {
    "grey-link": _Kind("loss", "loss", "loss_percent", 1.0, "loses {} of packets"),
    "slow-link": _Kind("rate", "rate", "rate_percent", 25.0, "has {} of its rate"),  # one of four lanes is left
    "corrupting-link": _Kind("bits", "corruption", "corrupt_percent", 1.0, "flips a bit in {} of packets"),
}


def _workload(name: str, base: str, percent: float) -> Workload:
    kind = _KINDS[base]
    what = f"{kind.what.format(f'{percent:g}%')} ({base}+{kind.setting}=P: P%)"
    return Workload(
        name,
        f"permutation, and one direction of a link {what} from a third of the run on",
        partial(_build, kind.argument, percent),
        seconds=SECONDS,
        parameters={kind.parameter: percent, "bad": "one direction of a link, at a third of the run"},
    )


def lossy(its: Workload, text: str) -> Workload:
    """Return a workload in which both directions of all links between switches lose a percentage of packets from the start.

    Raises `WorkloadError` for a percentage that is not from 0 to 100, or if the workload has other bad links.
    """
    name = f"{its.name}+lossy={text}"
    percent = _percent(text)
    if not 0 <= percent <= 100:
        raise WorkloadError(f"{name}: {text!r} is no percentage: write {its.name}+lossy=PERCENT, from 0 to 100")

    def bad(tree: Clos, _plan: Plan) -> Iterator[BadLink]:
        for link in tree.switch_links():
            yield from (BadLink(tree.name(link), tree.name(end), 0.0, percent / 100) for end in link)

    parameters: dict[str, float | str] = {"loss_percent": percent, "bad": "all links between switches, from the start"}
    return _with_bad(its, name, f"all links lose {percent:g}%", bad, parameters)


def slow(its: Workload, text: str) -> Workload:
    """Return a workload in which the core links towards the first aggregation switch have a percentage of their rate.

    Raises `WorkloadError` for a percentage that is not above 0 and at most 100, if the workload has other bad links, or if no core
    link carries anything.
    """
    percent = _percent(text)
    name = f"{its.name}+slow={text if percent <= 0 else f'{percent:g}'}"
    if not 0 < percent <= 100:
        raise WorkloadError(f"{name}: {text!r} is no percentage: write {its.name}+slow=PERCENT, above 0 and at most 100")

    def bad(tree: Clos, plan: Plan) -> Iterator[BadLink]:
        found = [(link, to, its) for (link, to), its in crossed(tree, plan.transfers).items() if link.startswith(f"{to}-c")]
        if not found:
            raise WorkloadError(f"no core link carries anything in a {tree.title}: give a fabric with core switches")
        first = found[0][1]
        yield from (BadLink(link, to, 0.0, rate=percent / 100, transfers=tuple(its)) for link, to, its in found if to == first)

    parameters: dict[str, float | str] = {
        "rate_percent": percent,
        "bad": "all core links towards the first aggregation switch, from the start",
    }
    return _with_bad(its, name, f"core links into one aggregation switch have {percent:g}% of their rate", bad, parameters)


def _with_bad(
    its: Workload, name: str, what: str, bad: Callable[[Clos, Plan], Iterator[BadLink]], parameters: dict[str, float | str]
) -> Workload:
    def build(tree: Clos, seed: int, scale: Scale) -> Plan:
        plan = its.build(tree, seed, scale)
        if plan.bad:
            raise WorkloadError(f"{name}: {its.name} has bad links of its own: leave out {name.removeprefix(its.name)}")
        return replace(plan, bad=tuple(bad(tree, plan)))

    return replace(its, name=name, summary=f"{its.summary}, and {what}", build=build, parameters={**its.parameters, **parameters})


WORKLOADS = tuple(_workload(name, name, kind.percent) for name, kind in _KINDS.items())


def _percent(text: str) -> float:
    """Return a percentage; -1 for anything else."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def named(name: str) -> Workload | None:
    """Return ``grey-link+loss=0.1`` of that percentage, ``slow-link+rate=50``, ``corrupting-link+bits=10``; None for other names.

    ``grey-link+loss=0`` is the healthy fabric with the same records. Raises `WorkloadError` for an unknown setting, or a percentage
    that is not from 0 to 100; a rate is above 0.
    """
    base, plus, setting = name.partition("+")
    if base not in _KINDS or not plus:
        return None
    known = _KINDS[base].setting
    key, _, text = setting.partition("=")
    percent = _percent(text)
    if key != known or not 0 <= percent <= 100 or (known == "rate" and percent == 0):
        least = "above 0 and at most 100" if known == "rate" else "from 0 to 100"
        raise WorkloadError(f"{name}: {setting!r} is not a setting: write {base}+{known}=PERCENT, {least}")
    return _workload(f"{base}+{known}={percent:g}", base, percent)
