"""What has failed, and which candidate paths that costs: the one answer that controller, agents, rules and tests share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from topologies.fattree import FatTree, Host, Level, Link, Path, Switch


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
        From the name of a switch or link (``a0_0``, ``a0_0-c0_1``) to a reason, such as ``"down"`` or ``"drained"``.

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

    def choices_from(self, edge: Switch) -> dict[Switch, tuple[tuple[int, ...], ...]]:
        """The usable uplink choices from one rack to every other and to itself, in round-robin order.

        It says for racks what `split` says for hosts (whose own links it does not look at). Racks in pods that no failure touches
        share one tuple, so the cost is that of what is touched.

        Parameters
        ----------
        edge : Switch
            The edge switch of the source.

        Returns
        -------
        dict
            From each edge switch, in the order of `FatTree.switches`, to the choices; an empty tuple if none is left.
        """
        tree, alive = self.tree, self.alive
        lowest = alive(edge)
        above = [tree.uplink(edge, j) for j in range(tree.half)]
        rise = [lowest and alive(switch, Link(edge, switch)) for switch in above]
        core = [
            (j, i)
            for j, i in tree.choices("inter-pod")
            if rise[j] and (not self or alive(tree.uplink(above[j], i), Link(above[j], tree.uplink(above[j], i))))
        ]
        everywhere = tuple(core)
        choices: dict[Switch, tuple[tuple[int, ...], ...]] = {}
        for pod in range(tree.k):
            racks = [Switch(Level.EDGE, pod, index) for index in range(tree.half)]
            if pod != edge.pod and pod not in self.touched_pods:
                choices |= dict.fromkeys(racks, everywhere)
                continue
            over = [Switch(Level.AGGREGATION, pod, j) for j in range(tree.half)]
            into = [(j, i) for j, i in core if alive(over[j], Link(over[j], Switch(Level.CORE, j, i)))]
            for rack in racks:
                fall = [alive(rack, over[j], Link(rack, over[j])) for j in range(tree.half)]
                if pod != edge.pod:
                    choices[rack] = tuple((j, i) for j, i in into if fall[j])
                elif rack != edge:
                    choices[rack] = tuple((j,) for j in range(tree.half) if rise[j] and fall[j])
                else:
                    choices[rack] = ((),) if lowest else ()
        return choices

    def alive(self, *elements: Switch | Link) -> bool:
        """Whether none of ``elements`` has failed."""
        return self._elements.isdisjoint(elements)

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
    yield Link(src, hops[0])
    for here, there in pairwise(hops):
        yield here
        yield Link(here, there) if here.level < there.level else Link(there, here)
    yield hops[-1]
    yield Link(dst, hops[-1])
