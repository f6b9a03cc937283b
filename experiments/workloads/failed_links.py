"""Links that have failed before the start, whatever the workload: a share of those between switches. Seeded, pure."""

from __future__ import annotations

import random
from dataclasses import replace

from experiments.workloads.plan import Plan, WorkloadError
from topologies import Clos, Failures, Level, Reason

_TRIES = 1000


def with_failed_links(plan: Plan, tree: Clos, seed: int, percent: float) -> Plan:
    """Return the plan with a share of the links between switches failed before the start.

    Controller, hosts and switches know of these failures when the first packet is sent.

    Args:
        seed: The same seed gives the same links.
        percent: Percent of the links between switches; at least one link fails.

    Raises:
        WorkloadError: If elements of the plan fail later, or no such number of links leaves a path between all racks.
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
    raise WorkloadError(
        f"without {count} links between switches, some racks of a {tree.title} have no path: give a smaller share"
    )


def _connected(failures: Failures) -> bool:
    """Return whether a candidate path is left between all racks."""
    return all(all(failures.choices_from(edge).values()) for edge in failures.tree.switches(Level.EDGE))
