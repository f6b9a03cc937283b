"""Placement of elephants on paths with room: Global First Fit (Hedera, NSDI 2010, section 5.1). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from topologies import Clos, Failures, Host, Switch

TOLERANCE = 1e-6
"""Rounding tolerance for demands that add up to the rate of a link."""

Up = tuple[int, ...]
Hop = tuple[Switch, Switch]
"""A link between switches in one direction."""


class Elephant(NamedTuple):
    """A flow to be placed: its ends, its natural demand as a share of a link, and its present path, if any."""

    src: Host
    dst: Host
    demand: float
    current: Up | None = None


Placement = Callable[[Failures, Sequence[Elephant]], list[Up | None]]
"""Maps failures and elephants to a path per elephant; None releases it to the hash of switches."""


@lru_cache(maxsize=1 << 16)
def links(tree: Clos, src: Host, dst: Host, up: Up) -> tuple[Hop, ...]:
    """Return the links between switches on a path, in the direction of the flow."""
    return tuple(pairwise(tree.hops(src, dst, up)))


def usable(failures: Failures, elephant: Elephant) -> list[Up]:
    """Return the paths that an elephant may use: none within a rack."""
    src, dst = elephant.src, elephant.dst
    choices = failures.tree.choices(failures.tree.kind(src, dst))
    return [up for up in choices if up and failures.on_way(src, dst, up) is None]


def global_first_fit(failures: Failures, elephants: Sequence[Elephant]) -> list[Up | None]:
    """Return the first path for each elephant all of whose links have room for its demand.

    Elephants with a path are placed first, in the given order, and keep their path while it fits. One that fits nowhere
    keeps a working path, because no other is better. A new one that fits nowhere is hashed.

    Args:
        failures: Paths that contain a failure are not used.

    Returns:
        Uplinks of each path, in the order of ``elephants``.
    """
    loads: defaultdict[Hop, float] = defaultdict(float)
    placed: list[Up | None] = [None] * len(elephants)
    for at in sorted(range(len(elephants)), key=lambda each: elephants[each].current is None):
        elephant = elephants[at]
        choices = usable(failures, elephant)
        current = elephant.current if elephant.current in choices else None
        tried = choices if current is None else [current, *choices]
        up = next((up for up in tried if _fits(failures.tree, loads, elephant, up)), current)
        if up is not None:
            placed[at] = up
            for hop in links(failures.tree, elephant.src, elephant.dst, up):
                loads[hop] += elephant.demand
    return placed


def _fits(tree: Clos, loads: Mapping[Hop, float], elephant: Elephant, up: Up) -> bool:
    return all(
        loads.get(hop, 0.0) + elephant.demand <= 1 + TOLERANCE for hop in links(tree, elephant.src, elephant.dst, up)
    )
