"""Failures and the candidate paths that they exclude: shared by controller, agents, rules, simulator and tests. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from topologies.structure import Clos, Host, Level, Link, Path, Switch


class Reason(StrEnum):
    """The reason why packets must not take a switch or link, as REST, metrics and the push protocol name it.

    The set is open: an agent accepts any text as a reason, so that a newer controller can add one.
    """

    DOWN = "down"
    """The port is down; of a switch: its channel is closed, and its neighbours see its links down or silent."""
    SILENT = "silent"
    """The port is up, but BFD receives nothing from the other end, or the other end nothing from this one."""
    NOT_CONNECTED = "not connected"
    """The switch has not connected since the controller started, and nothing says that it forwards."""
    NO_RULES = "without its rules"
    """The switch refused rules, did not confirm them, or has none."""
    MISWIRED = "miswired"
    """Link discovery found another neighbour than the planned one."""
    DRAINED = "drained"
    """An operator excluded it from the candidate paths. It still carries packets."""
    NO_CHANNEL = "no channel"
    """A switch at one end cannot be given the rules that follow labels onto it. It still carries packets."""


DEAD = frozenset({Reason.DOWN, Reason.SILENT})
"""Reasons of what carries no packet."""
SOFT = frozenset({Reason.DRAINED, Reason.NO_CHANNEL})
"""Reasons of what still carries packets, where no other path is left. Every other reason is a hard failure."""


_NONE: frozenset[int] = frozenset()


class Excluded(NamedTuple):
    """An excluded candidate path: its uplink indices, and the first failed element on it with its reason."""

    up: tuple[int, ...]
    reason: str


class Failures(Mapping[str, str]):
    """An immutable set of failed switches and links, each with the reason why packets must not take it.

    Reasons, by names of switches and links (``a0_0``, ``a0_0-c0_1``), are `Reason` or any other text; `TopologyError` if the fabric
    has none of that name. ``elements`` are the failed ones in the order of their names.

    >>> from topologies import FatTree, Host
    >>> failures = Failures(FatTree(4), {"a0_0-c0_1": Reason.DOWN})
    >>> usable, excluded = failures.split(Host(0, 0, 2), Host(2, 0, 2))
    >>> [path.up for path in usable]
    [(0, 0), (1, 0), (1, 1)]
    >>> excluded
    [Excluded(up=(0, 1), reason='link a0_0-c0_1 down')]
    """

    def __init__(self, tree: Clos, reasons: Mapping[str, str] | None = None) -> None:
        self.tree = tree
        self._reasons = dict(sorted((reasons or {}).items()))
        self.elements: Mapping[Switch | Link, str] = {tree.element(name): name for name in self._reasons}

    def __getitem__(self, name: str) -> str:
        return self._reasons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def __repr__(self) -> str:
        return f"Failures({self.tree}, { {name: str(reason) for name, reason in self._reasons.items()} })"

    def with_failed(self, name: str, reason: str = Reason.DOWN) -> Failures:
        """Return these failures and one more."""
        return Failures(self.tree, {**self._reasons, name: reason})

    def without(self, name: str) -> Failures:
        """Return these failures except one, which has healed."""
        return Failures(self.tree, {other: reason for other, reason in self._reasons.items() if other != name})

    def hit(self, elements: Iterable[Switch | Link]) -> str | None:
        """Describe the first failed one of ``elements``, as in "link a0_0-c0_1 down"; None if none has failed."""
        for element in elements:
            name = self.elements.get(element)
            if name is not None:
                return f"{'link' if isinstance(element, Link) else 'switch'} {name} {self._reasons[name]}"
        return None

    def on_way(self, src: Host, dst: Host, up: tuple[int, ...]) -> str | None:
        """Describe the first failed element on the path by uplinks ``up``, host links included; None if none has failed."""
        if not self._reasons:
            return None
        return self.hit(_elements(self.tree, src, dst, up))

    def split(self, src: Host, dst: Host) -> tuple[list[Path], list[Excluded]]:
        """Sort the candidate paths between two hosts into usable and excluded ones, both in round-robin order.

        A path is excluded if any switch or link on it has failed, on the way up from the source or down to the destination
        (SOPA paper, section 3.4). Raises `TopologyError` if one of them is no host of the fabric.
        """
        paths = self.tree.candidate_paths(src, dst)
        if not self._reasons:
            return paths, []
        left = self._left(src, dst)
        usable: list[Path] = []
        excluded: list[Excluded] = []
        for path in paths:
            if path.up in left:
                usable.append(path)
            else:
                reason = self.on_way(src, dst, path.up)
                assert reason is not None
                excluded.append(Excluded(path.up, reason))
        return usable, excluded

    def _left(self, src: Host, dst: Host) -> frozenset[tuple[int, ...]]:
        """Return the uplink indices of the candidate paths between two hosts on which nothing has failed."""
        tree = self.tree
        first, last = tree.edge_of(src), tree.edge_of(dst)
        if not self.alive(Link(src, first), Link(dst, last)):
            return frozenset()
        return frozenset(self.choices_from(first, (last.pod,))[last])

    def choices_from(self, edge: Switch, pods: Iterable[int] | None = None) -> dict[Switch, tuple[tuple[int, ...], ...]]:
        """Compute the path sets from one rack to every rack, or those of some pods, in round-robin order, itself included.

        The answer equals that of `split` for hosts whose own links have not failed, and is in the order of `Clos.switches`. Racks
        that no failure distinguishes share one tuple, so that the cost depends on the failures and not on the size of the fabric.
        """
        tree, lost = self.tree, self.lost_uplinks
        lowest = self.alive(edge)
        rise = frozenset(range(tree.aggregations)) - lost(edge) if lowest else _NONE
        above = [lost(switch) for switch in tree.switches_of(Level.AGGREGATION, edge.pod)]
        everywhere: tuple[tuple[int, ...], ...] = tuple(
            (j, i) for j, i in tree.choices("inter-pod") if j in rise and i not in above[j]
        )
        choices: dict[Switch, tuple[tuple[int, ...], ...]] = {}
        for pod in range(tree.pods) if pods is None else sorted(set(pods)):
            racks = list(tree.switches_of(Level.EDGE, pod))
            if pod != edge.pod and pod not in self.touched_pods:
                choices |= dict.fromkeys(racks, everywhere)
                continue
            if pod == edge.pod:
                into = tuple(up for up in tree.choices("inter-rack") if up[0] in rise)
            else:
                over = [lost(switch) for switch in tree.switches_of(Level.AGGREGATION, pod)]
                into = tuple((j, i) for j, i in everywhere if i not in over[j])
            for rack in racks:
                if rack == edge:
                    choices[rack] = ((),) if lowest else ()
                elif not self.alive(rack):
                    choices[rack] = ()
                else:
                    fall = lost(rack)
                    choices[rack] = tuple(up for up in into if up[0] not in fall) if fall else into
        return choices

    def pods_affected(self, edge: Switch, changed: Iterable[str]) -> frozenset[int]:
        """Return the pods to whose racks the candidate paths from ``edge`` may change when elements of these names fail or heal.

        For the racks of every other pod, `choices_from` returns the same before and after. `TopologyError` for an unknown name.
        """
        every = frozenset(range(self.tree.pods))
        own = frozenset({edge.pod})
        affected: set[int] = set()
        for name in changed:
            element = self.tree.element(name)
            lowest = element.lower if isinstance(element, Link) else element
            if isinstance(lowest, Host):
                continue
            if lowest.level is Level.CORE:
                affected |= every - own  # no path within the pod reaches a core switch
            elif lowest.pod != edge.pod:
                affected.add(lowest.pod)
            elif lowest == edge:
                affected |= every
            elif lowest.level is Level.EDGE:
                affected |= own
            else:
                affected |= every - own if isinstance(element, Link) else every
        return frozenset(affected)

    def lost_uplinks(self, switch: Switch) -> frozenset[int]:
        """Return the uplink indices of a switch whose cable is absent or has failed, or the switch above has failed."""
        return self._lost.get(switch, _NONE)

    def alive(self, *elements: Switch | Link) -> bool:
        """Return whether none of ``elements`` has failed."""
        return self.elements.keys().isdisjoint(elements)

    @cached_property
    def hard(self) -> Failures:
        """These failures without what still carries packets."""
        if SOFT.isdisjoint(self._reasons.values()):
            return self
        return Failures(self.tree, {name: reason for name, reason in self._reasons.items() if reason not in SOFT})

    @cached_property
    def _lost(self) -> dict[Switch, frozenset[int]]:
        """`lost_uplinks` of every switch that has any."""
        absent = self.tree.absent_uplinks
        if not self.elements:
            return dict(absent)
        lost: defaultdict[Switch, set[int]] = defaultdict(set, {switch: set(gone) for switch, gone in absent.items()})
        for element in self.elements:
            if isinstance(element, Link):
                if isinstance(element.lower, Switch):
                    lost[element.lower].add(element.upper.index)
            elif element.level is Level.AGGREGATION:
                for edge in self.tree.switches_of(Level.EDGE, element.pod):
                    lost[edge].add(element.index)
            elif element.level is Level.CORE:
                for pod in range(self.tree.pods):
                    lost[Switch(Level.AGGREGATION, pod, element.pod)].add(element.index)
        return {switch: frozenset(uplinks) for switch, uplinks in lost.items()}

    @cached_property
    def touched_pods(self) -> frozenset[int]:
        """The pods with a failure or an absent link on the way down to them; every other pod is affected on the way up only."""
        failed = frozenset(pod for element in self.elements for pod in _pods(element))
        return failed | {switch.pod for switch in self.tree.absent_uplinks}


def _pods(element: Switch | Link) -> Iterator[int]:
    """Yield the pods in which a failed element is on the way down."""
    for node in element if isinstance(element, Link) else (element,):
        if isinstance(node, Host) or node.level is not Level.CORE:
            yield node.pod


def _elements(tree: Clos, src: Host, dst: Host, up: tuple[int, ...]) -> Iterator[Switch | Link]:
    hops = tree.hops(src, dst, up)
    yield tree.link(src, hops[0])
    for here, there in pairwise(hops):
        yield here
        yield tree.link(here, there)
    yield hops[-1]
    yield tree.link(dst, hops[-1])
