"""Links that fail before the start of any workload, and a switch during its own (SOPA paper, section 4.5). Seeded, pure."""

from __future__ import annotations

import random
from dataclasses import replace

from experiments.workloads.pairs import permutation
from experiments.workloads.plan import Plan, Scale, Workload, WorkloadError
from experiments.workloads.production import PARAMETERS, production
from topologies import Clos, Failures, Level, Reason, Switch

_TRIES = 1000


def with_failed_links(plan: Plan, tree: Clos, seed: int, percent: float) -> Plan:
    """Return the plan with a share of the links between switches, at least one, failed before the start; the seed decides which.

    Controller, hosts and switches know of these failures when the first packet is sent. Raises `WorkloadError` if elements of the
    plan fail later, or no such number of links leaves a path between all racks.
    """
    if plan.fail_after is not None:
        raise WorkloadError(f"{', '.join(plan.failed)} fails during the run: failed links are for other workloads")
    before = Failures(tree, dict.fromkeys(plan.failed, Reason.DOWN))
    links = [
        tree.name(link)
        for switch in tree.switches()
        if before.alive(switch)
        for link in tree.links_above(switch)
        if link.upper.index not in before.lost_uplinks(switch)
    ]
    count = max(1, round(percent / 100 * tree.switch_link_count))
    choose = random.Random(f"{seed} failed links")
    for _ in range(_TRIES if count <= len(links) else 0):
        failed = (*plan.failed, *sorted(choose.sample(links, count)))
        if _connected(Failures(tree, dict.fromkeys(failed, Reason.DOWN))):
            return replace(plan, failed=failed)
    raise WorkloadError(f"without {count} links between switches, some racks of a {tree.title} have no path: give a smaller share")


def _connected(failures: Failures) -> bool:
    """Return whether a candidate path is left between all racks."""
    return all(all(failures.choices_from(edge).values()) for edge in failures.tree.switches(Level.EDGE))


FAIL_AT = 1 / 3
"""Share of the run after which the switch fails; twice as much time remains."""


def failing(plan: Plan, tree: Clos) -> Plan:
    """Return the plan with "the leftmost aggregation switch in the first pod" failing after a third of the run.

    Raises `WorkloadError` if the pod has no other aggregation switch.
    """
    leftmost = tree.name(Switch(Level.AGGREGATION, 0, 0))
    if tree.aggregations < 2:
        instead = "a fabric with another aggregation switch" if tree.k is None else "--k 4 or more"
        raise WorkloadError(f"without {leftmost}, no host of a {tree.title} reaches another pod: give {instead}")
    return replace(plan, failed=(leftmost,), fail_after=FAIL_AT * plan.seconds)


def failure(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build the plan of `production` for the same seed, with a failing switch."""
    return failing(production(tree, seed, scale), tree)


def failure_permutation(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build the plan of `permutation`, with a failing switch. The rate of each flow shows the failure and the recovery."""
    return failing(permutation(tree, seed, scale), tree)


WORKLOADS = (
    Workload(
        "failure",
        "production, and an aggregation switch fails at a third of the run (SOPA paper, section 4.5)",
        failure,
        seconds=30.0,
        parameters={**PARAMETERS, "failure": "a0_0, at a third of the run"},
    ),
    Workload(
        "failure-permutation",
        "permutation, and an aggregation switch fails at a third of the run (SOPA paper, sections 4.3 and 4.5)",
        failure_permutation,
        seconds=15.0,
        parameters={"failure": "a0_0, at a third of the run"},
    ),
)
