"""Workloads during which a switch fails (SOPA paper, section 4.5). Seeded, pure."""

from __future__ import annotations

from dataclasses import replace

from experiments.workloads.pairs import permutation
from experiments.workloads.plan import Plan, Scale, Workload, WorkloadError
from experiments.workloads.production import PARAMETERS, production
from topologies import Clos, Level, Switch

FAIL_AT = 1 / 3
"""Share of the run after which the switch fails; twice as much time remains."""


def failing(plan: Plan, tree: Clos) -> Plan:
    """Return the plan with "the leftmost aggregation switch in the first pod" failing after a third of the run.

    Raises:
        WorkloadError: If the pod has no other aggregation switch.
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
