"""The switches whose rules differ between two sets of failures, found from the structure and not by making all rules. Pure.

What a switch's rules take from the failures are the uplinks that it may use to each rack, and the slots of its hashes over them
(`flowrules.steering`); an edge switch's also the gateways in use. Both follow from few things: which uplinks the switch and the
switches above it have lost, which those of the rack's pod, and what all these uplinks can take. Only where one of these differs
are the answers compared, pod by pod, and switches that nothing distinguishes are compared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from flowrules.steering import allowed_uplinks, hash_slots
from topologies.failures import Failures
from topologies.structure import Host, Level, Link, Switch
from topologies.way_out import away, gateways_from
from topologies.weights import factors_of

MOST_ANSWERS = 2000
"""So many are compared at most, of one switch for one pod each: all take about as long as making some tens of switches' rules."""


def affected(before: Failures, after: Failures) -> frozenset[Switch] | None:
    """Return the switches whose rules may differ between two sets of failures of one fabric; None if it would take too long.

    The rules of all others are the same, and so are their `allowed_uplinks`.

    >>> from topologies import FatTree
    >>> tree = FatTree(32)
    >>> its = affected(Failures(tree), Failures(tree, {"a0_0-c0_1": "down"}))
    >>> len(its), sorted(map(tree.name, its))[:3]
    (32, ['a0_0', 'a10_0', 'a11_0'])
    """
    return _Comparison(before, after).affected()


class _Seen(NamedTuple):
    """What the answers of any switch take from one switch: is it there, which uplinks has it lost, and what can these take?

    Twice: by all failures, and by the hard ones alone.
    """

    alive: bool
    lost: frozenset[int]
    hard_alive: bool
    hard_lost: frozenset[int]
    capacities: tuple[float, ...]
    factors: tuple[float, ...]


class _Job(NamedTuple):
    """A switch whose answers for some pods stand for those of all members; ``out``: compare the gateways in use, too."""

    switch: Switch
    members: list[Switch]
    pods: list[int]
    out: bool = False


class _Comparison:
    """Two sets of failures.

    Every pod at which an element is failed, absent or of a rate of its own, or that has a gateway, stands for itself. One other pod
    stands for all others; a second one is what these have to answer for each other.
    """

    def __init__(self, before: Failures, after: Failures) -> None:
        self._tree = tree = before.tree
        self._sides = before, after
        elements = (*tree.absent, *tree.rated, *before.elements, *after.elements)
        special = {pod for element in elements for pod in _pods(element)} | {gateway.pod for gateway in tree.gateways}
        self._special = sorted(special)
        self._plain = [pod for pod in range(tree.pods) if pod not in special]
        self._shown = [*self._special, *self._plain[:2]]
        levels = (Level.EDGE, Level.AGGREGATION)
        shown = [switch for pod in self._shown for level in levels for switch in tree.switches_of(level, pod)]
        self._seen = dict(zip(shown, zip(_seen(before, shown), _seen(after, shown), strict=True), strict=True))

    def _differs(self, switch: Switch) -> bool:
        before, after = self._seen[switch]
        return before != after

    # -- what differs --------------------------------------------------------------------------------------------------

    @cached_property
    def _upper(self) -> dict[int, frozenset[int]]:
        """The aggregation switches of each shown pod at which something differs."""
        return {
            pod: frozenset(each.index for each in self._tree.switches_of(Level.AGGREGATION, pod) if self._differs(each))
            for pod in self._shown
        }

    @cached_property
    def _racks(self) -> dict[int, list[Switch]]:
        """The racks of each shown pod at which something differs."""
        return {pod: [each for each in self._tree.switches_of(Level.EDGE, pod) if self._differs(each)] for pod in self._shown}

    @cached_property
    def _for_aggregations(self) -> dict[int, frozenset[int]]:
        """The indices of the aggregation switches of other pods whose answers for each shown pod may differ."""
        return {pod: self._upper[pod].union(*map(self._falls, self._racks[pod])) for pod in self._shown}

    def _falls(self, rack: Switch) -> Iterable[int]:
        """Return the aggregation switches from which the way down to a rack differs."""
        before, after = self._seen[rack]
        if (before.alive, before.hard_alive) != (after.alive, after.hard_alive):
            return range(self._tree.aggregations)
        return (before.lost ^ after.lost) | (before.hard_lost ^ after.hard_lost)

    @cached_property
    def _gateways_differ(self) -> bool:
        """Whether a gateway has gone away or is back, wherever it is asked from."""
        before, after = (
            [away(failures, gateway) is None for failures in (side, side.hard) for gateway in self._tree.gateways]
            for side in self._sides
        )
        return before != after

    # -- comparison ----------------------------------------------------------------------------------------------------

    def affected(self) -> frozenset[Switch] | None:
        jobs = [*self._edges(), *self._aggregations()]
        gateway_pods = len({gateway.pod for gateway in self._tree.gateways})
        if sum(len(job.pods) + gateway_pods * job.out for job in jobs) > MOST_ANSWERS:
            return None
        return frozenset(switch for job in jobs if self._compare(job) for switch in job.members)

    def _edges(self) -> Iterator[_Job]:
        ends = {self._tree.edge_of(gateway) for gateway in self._tree.gateways}
        for pod in self._special:
            classes: dict[object, list[Switch]] = {}
            for edge in self._tree.switches_of(Level.EDGE, pod):
                # the gateways behind an edge switch have another meaning for it than for any other
                classes.setdefault(edge if edge in ends else self._seen[edge], []).append(edge)
            for members in classes.values():
                yield from self._edge_job(members[0], members, [*self._special, *self._plain[:1]])
        if self._plain:
            members = [edge for pod in self._plain for edge in self._tree.switches_of(Level.EDGE, pod)]
            yield from self._edge_job(members[0], members, self._shown)

    def _edge_job(self, edge: Switch, members: list[Switch], pods: list[int]) -> Iterator[_Job]:
        if not self._differs(edge) and not self._upper[edge.pod]:
            pods = [pod for pod in pods if self._upper[pod] or self._racks[pod]]
        gateway_pods = {gateway.pod for gateway in self._tree.gateways}
        out = self._gateways_differ or not gateway_pods.isdisjoint(pods)
        if pods or out:
            yield _Job(edge, members, pods, out)

    def _aggregations(self) -> Iterator[_Job]:
        tree = self._tree
        if not tree.uplink_count(Level.AGGREGATION):
            return
        for pod in self._special:
            for switch in tree.switches_of(Level.AGGREGATION, pod):
                yield from self._aggregation_job(switch, [switch], [*self._special, *self._plain[:1]])
        for index in range(tree.aggregations if self._plain else 0):
            members = [Switch(Level.AGGREGATION, pod, index) for pod in self._plain]
            yield from self._aggregation_job(members[0], members, self._shown)

    def _aggregation_job(self, switch: Switch, members: list[Switch], pods: list[int]) -> Iterator[_Job]:
        pods = [pod for pod in pods if pod != switch.pod]
        if not self._differs(switch):
            pods = [pod for pod in pods if switch.index in self._for_aggregations[pod]]
        if pods:
            yield _Job(switch, members, pods)

    def _compare(self, job: _Job) -> bool:
        """Return whether the answers of a switch differ."""
        before, after = self._sides
        if job.out and gateways_from(before, job.switch) != gateways_from(after, job.switch):
            return True
        if not job.pods:
            return False
        were = allowed_uplinks(self._tree, job.switch, before, job.pods)
        are = allowed_uplinks(self._tree, job.switch, after, job.pods)
        return were != are or hash_slots(job.switch, before, were) != hash_slots(job.switch, after, are)


def _seen(failures: Failures, switches: Iterable[Switch]) -> Iterator[_Seen]:
    hard, factors = failures.hard, factors_of(failures)
    for switch in switches:
        yield _Seen(
            failures.alive(switch),
            failures.lost_uplinks(switch),
            hard.alive(switch),
            hard.lost_uplinks(switch),
            *factors.above(switch),
        )


def _pods(element: Switch | Link) -> Iterator[int]:
    """Yield the pod of an element that rules to other destinations than itself can depend on."""
    lowest = element.lower if isinstance(element, Link) else element
    if not isinstance(lowest, Host) and lowest.level is not Level.CORE:
        yield lowest.pod
