"""What happens in a lab's cluster while parts of it fail: who leads, and when agents have followed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from experiments.emulation.cluster_parts import ClusterParts
from experiments.emulation.host_agents import AgentsLog
from experiments.emulation.sopa_lab import SopaLab
from topologies import Clos, Host, Level, Link, Switch

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.01

T = TypeVar("T")


class NotSeenError(RuntimeError):
    """What was waited for has not happened; the text says what."""


def links_of_one_pod(tree: Clos, seed: int) -> tuple[Link, Link]:
    """Return two random links of the first pod to core switches, or of the first leaf to spines."""
    draw = random.Random(f"{seed} cluster")
    level = Level.AGGREGATION if tree.cores else Level.EDGE
    belows = [Switch(level, 0, index) for index in range(tree.group_size(level) if tree.cores else 1)]
    links = [link for below in belows for link in tree.links_above(below)]
    first, second = draw.sample(links, 2)
    return first, second


def streams(tree: Clos, failing: Link) -> tuple[tuple[Host, Host], tuple[Host, Host]]:
    """Return source and destination of a stream that does not use the links of a pod or rack, and of one that does.

    Raises `NotSeenError` if the fabric has too few pods, or racks, for that.
    """
    of: dict[int, list[Host]] = {}
    for host in tree.hosts():
        if host not in tree.no_label:
            of.setdefault(host.pod if tree.cores else host.edge, []).append(host)
    within = failing.lower.pod if tree.cores else 0
    others = [hosts for number, hosts in of.items() if number != within]
    if len(others) < 2:
        raise NotSeenError("this fabric has too few pods, or racks: a stream beside the links that fail needs two others")
    return (others[0][0], others[1][0]), (of[within][0], others[0][-1])


def in_force(lab: SopaLab, log: AgentsLog, link: str) -> float:
    """Wait until all agents have a version without a link that has failed, and return when the last of them had it."""
    assert lab.cluster is not None
    cluster, agents = lab.cluster, len(lab.labelling)

    def committed() -> dict[str, Any] | None:
        view = cluster.record("view")
        return view if view is not None and link in view["failures"] else None

    view = wait(committed, f"the failure of {link} was committed")
    return wait(lambda: log.all_at(view["version"], agents), f"version {view['version']} was in force at {agents} agents")


def next_leader(cluster: ClusterParts, old: str) -> tuple[str, float]:
    """Wait until another member than the old one leads; return its name, and the time."""
    name = wait(lambda: found if (found := cluster.leader()) != old else None, f"another member than {old} led")
    return name, time.time()


def wait(read: Callable[[], T | None], what: str) -> T:
    """Poll until there is something, and return it. Raises `NotSeenError` after a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = read()
        if found is not None:
            return found
        time.sleep(POLL_SECONDS)
    raise NotSeenError(f"waited {PATIENCE_SECONDS:g} s, and not yet: {what}")
