"""A fabric in numbers: ports, capacities, oversubscription, bisection bandwidth, and the candidate paths between racks. Pure.

Everything follows from the structure and its exceptions: thousands of racks take no longer than a few.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import combinations
from typing import NamedTuple, TypeVar

from topologies.cabling import ABSENT
from topologies.identity import Level, Link, Switch
from topologies.structure import Clos

MAX_UNEVEN = 6
"""Pods or racks with uneven links of which every division into halves is tried."""
MAX_PAIRS = 500_000
"""Kinds of pairs of racks that are compared."""
Item = TypeVar("Item")


class Ratio(NamedTuple):
    """Capacity below a switch to the capacity above it; ``switch`` has the most."""

    least: float
    most: float
    switch: str


class Bisection(NamedTuple):
    """The least capacity between two halves of the pods, or racks of one pod.

    ``mbit`` is exact, or an upper bound; ``share`` is its share of what the hosts of the smaller half send.
    """

    mbit: float
    share: float
    exact: bool


class Fewer(NamedTuple):
    """Pairs of racks with fewer candidate paths than others, and one of them."""

    paths: int
    pairs: int
    example: tuple[str, str]


class Summary:
    """The numbers of a fabric."""

    def __init__(self, tree: Clos) -> None:
        self.tree = tree
        exceptions: dict[str, float | str] = tree.document().get("links", {})
        full = Clos(*tree.shape)
        self.exceptions: dict[Link, float] = {
            full.link_by_name(name): 0.0 if rate == ABSENT else float(rate) for name, rate in exceptions.items()
        }
        """The capacity of each link that has its own; 0 of an absent one."""
        self._below: dict[Switch, float] = {}
        self._above: dict[Switch, float] = {}
        for link, rate in self.exceptions.items():
            more = rate - self.rate(link)
            self._below[link.upper] = self.below(link.upper) + more
            if isinstance(link.lower, Switch):
                self._above[link.lower] = self.above(link.lower) + more

    # -- capacities ---------------------------------------------------------------------------------------------------

    def rate(self, link: Link) -> float:
        """Return the capacity of the links of the same level, without exceptions."""
        return self.tree.level_rate(self.tree.link_level(link))

    def link_count(self, level: str) -> int:
        """Return the number of links above a level, absent ones included."""
        tree = self.tree
        if level == "host":
            return tree.host_count
        return tree.pods * tree.aggregations * (tree.edges if level == "edge" else tree.cores_of_group)

    def below(self, switch: Switch) -> float:
        """Return the capacity of a switch's links down."""
        if switch in self._below:
            return self._below[switch]
        level = {Level.EDGE: "host", Level.AGGREGATION: "edge", Level.CORE: "aggregation"}[switch.level]
        return self.tree.downlink_count(switch.level) * self.tree.level_rate(level)

    def above(self, switch: Switch) -> float:
        """Return the capacity of a switch's uplinks."""
        if switch in self._above:
            return self._above[switch]
        return self.tree.uplink_count(switch.level) * self.tree.level_rate(switch.level.name.lower())

    def oversubscription(self, level: Level, unused: AbstractSet[Switch] = frozenset()) -> Ratio:
        """Return the ratio of the capacity below to that above, over the switches of a level; infinite without uplinks.

        Those that are ``unused``, and have exceptions, do not count.
        """
        tree = self.tree
        special = {switch for switch in (*self._below, *self._above) if switch.level is level}
        ratios = [(self._ratio(switch), tree.name(switch)) for switch in sorted(special - unused)]
        if len(special) < tree.groups(level) * tree.group_size(level):
            even = next(switch for switch in tree.switches(level) if switch not in special)
            ratios.append((self._ratio(even), tree.name(even)))
        most = max(ratios, key=lambda ratio: ratio[0])
        return Ratio(min(ratios)[0], *most)

    def _ratio(self, switch: Switch) -> float:
        above = self.above(switch)
        return self.below(switch) / above if above > 0 else float("inf")

    # -- bisection ----------------------------------------------------------------------------------------------------

    def bisection(self) -> Bisection | None:
        """Return the bisection bandwidth; None for a single rack.

        The halves are pods, or the racks of one pod. Between them a core switch, or spine, carries what the half that has less
        capacity to it brings, and an aggregation switch what its links below and above carry.
        """
        tree = self.tree
        count = tree.pods if tree.pods > 1 else tree.edges
        half = count // 2
        if not half:
            return None
        uneven = sorted({self._part(link) for link in self.exceptions if isinstance(link.lower, Switch)})
        exact = len(uneven) <= MAX_UNEVEN
        if exact:
            chosen = (set(some) for size in range(min(half, len(uneven)) + 1) for some in combinations(uneven, size))
            mbit = min(self._cut(some, half, count) for some in chosen if half - len(some) <= count - len(uneven))
        else:
            weakest = sorted(range(count), key=self._capacity)[:half]
            mbit = self._cut(set(weakest) & set(uneven), half, count)
        if tree.pods > 1 and uneven:
            pods = [Switch(Level.AGGREGATION, pod, j) for pod in uneven for j in range(tree.aggregations)]
            exact = exact and all(self.below(switch) >= self.above(switch) for switch in pods)
        hosts = tree.host_count * self.tree.level_rate("host") * half / count
        return Bisection(mbit, mbit / hosts, exact)

    def _part(self, link: Link) -> int:
        assert isinstance(link.lower, Switch)
        return link.lower.pod if self.tree.pods > 1 else link.lower.index

    def _capacity(self, part: int) -> float:
        if self.tree.pods == 1:
            return self.above(Switch(Level.EDGE, 0, part))
        return sum(self.above(Switch(Level.AGGREGATION, part, j)) for j in range(self.tree.aggregations))

    @cached_property
    def _columns(self) -> dict[int, dict[int, dict[int, float]]]:
        """By aggregation index and core index: the capacity of the parts whose link to it is an exception."""
        level = Level.AGGREGATION if self.tree.pods > 1 else Level.EDGE
        found: dict[int, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        for link, rate in self.exceptions.items():
            if isinstance(link.lower, Switch) and link.lower.level is level:
                j, i = (link.lower.index, link.upper.index) if self.tree.pods > 1 else (link.upper.index, 0)
                found[j][i][self._part(link)] = rate
        return found

    def _cut(self, some: set[int], half: int, count: int) -> float:
        """Return the capacity between ``half`` of the parts, of whose uneven ones it has ``some``, and the others."""
        tree, total = self.tree, 0.0
        several = tree.pods > 1
        rate = self.tree.level_rate("aggregation" if several else "edge")
        size = tree.cores_of_group if several else 1
        special = {self._part(link) for link in self.exceptions if isinstance(link.lower, Switch)} if several else set()
        for j in range(tree.aggregations):
            columns = self._columns.get(j, {})
            carried = (size - len(columns)) * half * rate
            for column in columns.values():
                first = sum(column[part] for part in column if part in some)
                second = sum(column[part] for part in column if part not in some)
                known = sum(part in some for part in column)
                carried += min((half - known) * rate + first, (count - half - len(column) + known) * rate + second)
            if several:
                even = min(tree.edges * self.tree.level_rate("edge"), size * rate)
                switches = {pod: Switch(Level.AGGREGATION, pod, j) for pod in special}
                limit = {pod: min(self.below(switch), self.above(switch)) for pod, switch in switches.items()}
                first = sum(limit[pod] for pod in limit if pod in some)
                second = sum(limit[pod] for pod in limit if pod not in some)
                carried = min(carried, (half - len(some)) * even + first, (count - half - len(special) + len(some)) * even + second)
            total += carried
        return total

    # -- candidate paths ----------------------------------------------------------------------------------------------

    def paths(self) -> dict[str, list[Fewer]] | None:
        """Return for each kind of pairs of racks how many candidate paths they have, fewest first; None if too irregular.

        Kinds are ``inter-rack`` and ``inter-pod``, as far as the fabric has such pairs. Racks that are `cut_off` are left out.
        """
        tree = self.tree
        pods: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for pod in range(tree.pods):
            above = tuple(tree.absent_uplinks.get(Switch(Level.AGGREGATION, pod, j)) for j in range(tree.aggregations))
            racks = Counter(tree.absent_uplinks.get(Switch(Level.EDGE, pod, e), frozenset()) for e in range(tree.edges))
            pods[(frozenset(racks.items()), above)].append(pod)
        kinds = {alike[0]: self._racks(alike[0]) for alike in pods.values()}
        sizes = [len(racks) for racks in kinds.values()]
        if sum(sizes) ** 2 > MAX_PAIRS:
            return None
        found: dict[str, dict[int, Fewer]] = {"inter-rack": {}, "inter-pod": {}}
        for alike in pods.values():
            self._within(found["inter-rack"], alike, kinds[alike[0]])
        if tree.cores:
            self._between(found["inter-pod"], list(pods.values()), kinds)
        return {kind: sorted(fewers.values()) for kind, fewers in found.items() if fewers}

    def _racks(self, pod: int) -> dict[frozenset[int], list[int]]:
        racks: dict[frozenset[int], list[int]] = defaultdict(list)
        for e in range(self.tree.edges):
            absent = self.tree.absent_uplinks.get(Switch(Level.EDGE, pod, e), frozenset())
            if len(absent) < self.tree.aggregations:
                racks[absent].append(e)
        return racks

    def _within(self, found: dict[int, Fewer], pods: list[int], racks: dict[frozenset[int], list[int]]) -> None:
        for (one, edges), (other, others) in _pairs(list(racks.items())):
            same = edges is others
            pairs = len(edges) * (len(edges) - 1) // 2 if same else len(edges) * len(others)
            if pairs:
                ends = (pods[0], edges[0]), (pods[0], others[1 if same else 0])
                self._count(found, self.tree.aggregations - len(one | other), pairs * len(pods), ends)

    def _between(self, found: dict[int, Fewer], alike: list[list[int]], kinds: dict[int, dict[frozenset[int], list[int]]]) -> None:
        tree = self.tree
        for first, second in _pairs(alike):
            same = first is second
            pod_pairs = len(first) * (len(first) - 1) // 2 if same else len(first) * len(second)
            if not pod_pairs:
                continue
            ends = first[0], second[1 if same else 0]
            left = [
                tree.cores_of_group
                - len(frozenset().union(*(tree.absent_uplinks.get(Switch(Level.AGGREGATION, pod, j), ()) for pod in ends)))
                for j in range(tree.aggregations)
            ]
            for one, edges in kinds[first[0]].items():
                for other, others in kinds[second[0]].items():
                    paths = sum(number for j, number in enumerate(left) if j not in one and j not in other)
                    racks = (ends[0], edges[0]), (ends[1], others[0])
                    self._count(found, paths, pod_pairs * len(edges) * len(others), racks)

    def _count(self, found: dict[int, Fewer], paths: int, pairs: int, ends: tuple[tuple[int, int], tuple[int, int]]) -> None:
        before = found.get(paths)
        first, second = (self.tree.name(Switch(Level.EDGE, *end)) for end in ends)
        found[paths] = Fewer(paths, pairs, (first, second)) if before is None else before._replace(pairs=before.pairs + pairs)

    def cut_off(self) -> Iterator[Switch]:
        """Yield the edge switches without any uplink, if there are other racks."""
        tree = self.tree
        if tree.pods * tree.edges == 1:
            return
        for edge, absent in sorted(tree.absent_uplinks.items()):
            if edge.level is Level.EDGE and len(absent) == tree.aggregations:
                yield edge


def _pairs(items: list[Item]) -> Iterator[tuple[Item, Item]]:
    """Yield every pair of items, each with itself, too."""
    for number, one in enumerate(items):
        for other in items[number:]:
            yield one, other
