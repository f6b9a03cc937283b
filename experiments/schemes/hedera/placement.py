"""Placement of elephants on paths: Global First Fit and Simulated Annealing (Hedera, NSDI 2010, sections 5.1 and 5.2). Pure."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Return the first working path for each elephant all of whose links have room for its demand.

    Elephants with a path are placed first, in the given order, and keep their path while it fits. One that fits nowhere keeps a
    working path, because no other is better. A new one that fits nowhere is hashed.
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
    return all(loads.get(hop, 0.0) + elephant.demand <= 1 + TOLERANCE for hop in links(tree, elephant.src, elephant.dst, up))


FIRST_TEMPERATURE = 1000
"""Initial temperature, and number of steps: it decreases by one per step."""
SMALL_HOSTS = 16
SMALL_COOLING, LARGE_COOLING = 0.5 * FIRST_TEMPERATURE, 1000.0 * FIRST_TEMPERATURE
"""Factor c of the paper: for its testbed of 16 hosts, and for larger fabrics."""
LONGEST = 4  # links between switches on a path
ENOUGH = 1e-9


class Annealing:
    """Searches for core switches without overload, each time from the last result, by random steps.

    A state assigns a core switch to every destination host. All elephants to a host pass its core switch; those from within its pod
    pass the aggregation switch below that core switch. In each pod every core switch serves one host. A step swaps the core
    switches of two hosts of a pod, of an edge switch, or of the hosts of a pod behind the same aggregation switch, with equal
    probability. The energy is the load above the capacity, summed over all links.
    """

    def __init__(self, tree: Clos, seed: int) -> None:
        self.tree = tree
        self._random = random.Random(f"{seed} annealing")
        self._pods: list[list[Host]] = [[] for _ in range(tree.pods)]
        for host in tree.hosts():
            self._pods[host.pod].append(host)
        self.cores: dict[Host, Up] = {}
        for hosts in self._pods:
            cores = list(tree.choices("inter-pod"))
            self._random.shuffle(cores)
            self.cores.update(zip(hosts, cores, strict=True))
        self._cooling = SMALL_COOLING if tree.host_count <= SMALL_HOSTS else LARGE_COOLING

    def place(self, failures: Failures, elephants: Sequence[Elephant]) -> list[Up | None]:
        """Return the path of each elephant through the core switch of its destination, or None if it contains a failed link."""
        loads = _Loads(failures, elephants, self.cores)
        # only swaps of destinations of elephants have an effect
        busy = sorted({elephant.dst for elephant in elephants})
        best, best_energy = dict(self.cores), loads.energy
        for temperature in range(FIRST_TEMPERATURE, 0, -1):
            if best_energy <= ENOUGH or not busy:
                break
            one, other = self._pair(self._random.choice(busy), loads.cores)
            before = loads.energy
            loads.swap(one, other)
            worse = loads.energy - before
            if worse > 0 and self._random.random() >= math.exp(-self._cooling * worse / temperature):
                loads.swap(one, other)
            elif loads.energy < best_energy - ENOUGH:
                best, best_energy = dict(loads.cores), loads.energy
        self.cores = best
        return [_path(failures, elephant, best[elephant.dst]) for elephant in elephants]

    def _pair(self, one: Host, cores: dict[Host, Up]) -> tuple[Host, Host]:
        """Return two hosts to swap: of one pod, of one edge switch, or behind one aggregation switch."""
        kind = self._random.randrange(3)
        others = [
            other
            for other in self._pods[one.pod]
            if other != one and (kind != 1 or other.edge == one.edge) and (kind != 2 or cores[other][0] == cores[one][0])
        ]
        return one, self._random.choice(others or [one])


class _Loads:
    """The load of every link and the energy of a state, updated with each swap."""

    def __init__(self, failures: Failures, elephants: Iterable[Elephant], cores: dict[Host, Up]) -> None:
        self.cores = dict(cores)
        self.energy = 0.0
        self._failures = failures
        self._loads: defaultdict[Hop, float] = defaultdict(float)
        self._to: defaultdict[Host, list[Elephant]] = defaultdict(list)
        self._hops: dict[tuple[Elephant, Up], tuple[Hop, ...] | None] = {}
        for elephant in elephants:
            self._to[elephant.dst].append(elephant)
        for host in list(self._to):
            self._carry(host, 1)

    def swap(self, one: Host, other: Host) -> None:
        """Swap the core switches of two hosts."""
        for host in {one, other}:
            self._carry(host, -1)
        self.cores[one], self.cores[other] = self.cores[other], self.cores[one]
        for host in {one, other}:
            self._carry(host, 1)

    def _carry(self, host: Host, sign: int) -> None:
        for elephant in self._to.get(host, ()):
            hops = self._hops_of(elephant)
            if hops is None:
                self.energy += sign * LONGEST * elephant.demand  # a failed path has no capacity
                continue
            for hop in hops:
                before = self._loads[hop]
                after = self._loads[hop] = before + sign * elephant.demand
                self.energy += max(0.0, after - 1) - max(0.0, before - 1)

    def _hops_of(self, elephant: Elephant) -> tuple[Hop, ...] | None:
        key = elephant, self.cores[elephant.dst]
        if key not in self._hops:
            up = _path(self._failures, *key)
            within_rack = self._failures.tree.kind(elephant.src, elephant.dst) == "intra-rack"
            hops = () if up is None else links(self._failures.tree, elephant.src, elephant.dst, up)
            self._hops[key] = None if up is None and not within_rack else hops
        return self._hops[key]


def _path(failures: Failures, elephant: Elephant, core: Up) -> Up | None:
    """Return the path of an elephant through a core switch; None within a rack, or if the path contains a failed link."""
    kind = failures.tree.kind(elephant.src, elephant.dst)
    up = core if kind == "inter-pod" else core[:1]
    if kind == "intra-rack" or failures.on_way(elephant.src, elephant.dst, up) is not None:
        return None
    return up
