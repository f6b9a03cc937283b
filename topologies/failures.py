"""What has failed, and which candidate paths that costs: the one answer that controller, agents, rules and tests share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from topologies.structure import FatTree, Host, Level, Link, Path, Switch

DRAINED = "drained"
"""The reason of what is taken out of the candidate paths but still carries packets; every other one is a hard failure."""

_NONE: frozenset[int] = frozenset()


class Excluded(NamedTuple):
    """A candidate path that a failure costs: its uplink choices, and the first failed element on it."""

    up: tuple[int, ...]
    reason: str


class Failures(Mapping[str, str]):
    """An immutable set of failed switches and links, each with the reason why packets must not take it.

    Parameters
    ----------
    tree : FatTree
        The fabric that they belong to.
    reasons : mapping of str to str
        From the name of a switch or link (``a0_0``, ``a0_0-c0_1``) to a reason, such as ``"down"`` or `DRAINED`.

    Raises
    ------
    TopologyError
        If a name is no switch or link of the fabric.
    """

    def __init__(self, tree: FatTree, reasons: Mapping[str, str] | None = None) -> None:
        self.tree = tree
        self._reasons = dict(sorted((reasons or {}).items()))
        self._elements = frozenset(tree.element(name) for name in self._reasons)

    def __getitem__(self, name: str) -> str:
        return self._reasons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def __repr__(self) -> str:
        return f"Failures({self.tree}, {self._reasons})"

    def with_failed(self, name: str, reason: str = "down") -> Failures:
        """These failures and one more."""
        return Failures(self.tree, {**self._reasons, name: reason})

    def without(self, name: str) -> Failures:
        """These failures but one, which has healed."""
        return Failures(self.tree, {other: reason for other, reason in self._reasons.items() if other != name})

    def hit(self, elements: Iterable[Switch | Link]) -> str | None:
        """The first failed one of ``elements`` in words, or None."""
        for element in elements:
            if element in self._elements:
                name = self.tree.name(element)
                return f"{'link' if isinstance(element, Link) else 'switch'} {name} {self._reasons[name]}"
        return None

    def on_way(self, src: Host, dst: Host, up: tuple[int, ...]) -> str | None:
        """The first failed element on the way that takes those uplinks, host links included, or None."""
        if not self._reasons:
            return None
        return self.hit(_elements(self.tree, src, dst, up))

    def split(self, src: Host, dst: Host) -> tuple[list[Path], list[Excluded]]:
        """Sort the candidate paths between two hosts into usable and excluded ones, both in round-robin order.

        A path is excluded if any switch or link on it has failed: the uplinks of the source's side and the downlinks of the
        destination's (SOPA paper, section 3.4).
        """
        usable: list[Path] = []
        excluded: list[Excluded] = []
        for path in self.tree.candidate_paths(src, dst):
            reason = self.on_way(src, dst, path.up)
            if reason is None:
                usable.append(path)
            else:
                excluded.append(Excluded(path.up, reason))
        return usable, excluded

    def choices_from(
        self, edge: Switch, pods: Iterable[int] | None = None
    ) -> dict[Switch, tuple[tuple[int, ...], ...]]:
        """The usable uplink choices from one rack to every other and to itself, in round-robin order.

        It says for racks what `split` says for hosts (whose own links it does not look at). Racks that no failure sets apart
        share one tuple, so the cost is that of what is touched.

        Parameters
        ----------
        edge : Switch
            The edge switch of the source.
        pods : iterable of int, optional
            Answer for the racks of these pods only, such as `pods_affected` names after a change.

        Returns
        -------
        dict
            From each edge switch, in the order of `FatTree.switches`, to the choices; an empty tuple if none is left.
        """
        tree, lost = self.tree, self.lost_uplinks
        lowest = self.alive(edge)
        rise = frozenset(range(tree.half)) - lost(edge) if lowest else _NONE
        above = [lost(Switch(Level.AGGREGATION, edge.pod, j)) for j in range(tree.half)]
        everywhere: tuple[tuple[int, ...], ...] = tuple(
            (j, i) for j, i in tree.choices("inter-pod") if j in rise and i not in above[j]
        )
        choices: dict[Switch, tuple[tuple[int, ...], ...]] = {}
        for pod in range(tree.k) if pods is None else sorted(set(pods)):
            racks = [Switch(Level.EDGE, pod, index) for index in range(tree.half)]
            if pod != edge.pod and pod not in self.touched_pods:
                choices |= dict.fromkeys(racks, everywhere)
                continue
            if pod == edge.pod:
                into = tuple(up for up in tree.choices("inter-rack") if up[0] in rise)
            else:
                over = [lost(Switch(Level.AGGREGATION, pod, j)) for j in range(tree.half)]
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
        """The pods to whose racks the candidate paths from ``edge`` may change when some elements fail or heal.

        Parameters
        ----------
        edge : Switch
            The edge switch of the source.
        changed : iterable of str
            The names of those switches and links, failed now or not.

        Returns
        -------
        frozenset of int
            To the racks of every other pod, `choices_from` says the same before and after.

        Raises
        ------
        TopologyError
            If a name is no switch or link of the fabric.
        """
        every = frozenset(range(self.tree.k))
        own = frozenset({edge.pod})
        affected: set[int] = set()
        for name in changed:
            element = self.tree.element(name)
            lowest = element.lower if isinstance(element, Link) else element
            if isinstance(lowest, Host):
                continue
            if lowest.level is Level.CORE:
                affected |= every - own  # no way within the pod rises that high
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
        """The uplinks of a switch that lead nowhere: the cable or the switch above it has failed."""
        return self._lost.get(switch, _NONE)

    def alive(self, *elements: Switch | Link) -> bool:
        """Whether none of ``elements`` has failed."""
        return self._elements.isdisjoint(elements)

    @cached_property
    def hard(self) -> Failures:
        """These failures without what is only drained."""
        if DRAINED not in self._reasons.values():
            return self
        return Failures(self.tree, {name: reason for name, reason in self._reasons.items() if reason != DRAINED})

    @cached_property
    def _lost(self) -> dict[Switch, frozenset[int]]:
        """`lost_uplinks` of every switch that has any."""
        lost: defaultdict[Switch, set[int]] = defaultdict(set)
        for element in self._elements:
            if isinstance(element, Link):
                if isinstance(element.lower, Switch):
                    lost[element.lower].add(element.upper.index)
            elif element.level is Level.AGGREGATION:
                for index in range(self.tree.half):
                    lost[Switch(Level.EDGE, element.pod, index)].add(element.index)
            elif element.level is Level.CORE:
                for pod in range(self.tree.k):
                    lost[Switch(Level.AGGREGATION, pod, element.pod)].add(element.index)
        return {switch: frozenset(uplinks) for switch, uplinks in lost.items()}

    @cached_property
    def touched_pods(self) -> frozenset[int]:
        """The pods on whose way down something has failed; to every other pod all failures are upward ones."""
        return frozenset(pod for element in self._elements for pod in _pods(element))


def _pods(element: Switch | Link) -> Iterator[int]:
    """The pods in which a failed element is on the way down."""
    for node in element if isinstance(element, Link) else (element,):
        if isinstance(node, Host) or node.level is not Level.CORE:
            yield node.pod


def _elements(tree: FatTree, src: Host, dst: Host, up: tuple[int, ...]) -> Iterator[Switch | Link]:
    hops = tree.hops(src, dst, up)
    yield tree.link(src, hops[0])
    for here, there in pairwise(hops):
        yield here
        yield tree.link(here, there)
    yield hops[-1]
    yield tree.link(dst, hops[-1])
