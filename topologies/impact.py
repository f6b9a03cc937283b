"""What a fabric is left with when links and switches are taken out: pairs without a path, capacity, oversubscription. Pure.

Everything follows from `Summary`, of a fabric in which what has failed is absent: a large fabric takes no longer than a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from topologies.cabling import ABSENT
from topologies.fabric_summary import Summary
from topologies.failures import Failures
from topologies.identity import Host, Level, Link, Switch
from topologies.structure import Clos

SHOWN = 20
"""Names that are listed of more."""


class Left(NamedTuple):
    """What a fabric has."""

    pairs: int | None
    """Pairs of racks without any path between them; None if the fabric is too irregular to count them."""
    cut_off: list[str]
    """Racks from which no other can be reached, the first of them."""
    fewest: int | None
    """The fewest candidate paths that two racks have, of those that have any."""
    mbit: float | None
    """The least capacity between two halves of the fabric, in what links' rates are in; None for a single rack."""
    oversubscription: dict[str, tuple[float, str]]
    """By level the largest ratio of the capacity below a switch to that above it, and where; infinite without any above."""


def left(failures: Failures) -> Left:
    """Return what a fabric has while something has failed or is drained.

    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> left(Failures(tree, {"c0_0": "drained"}))
    Left(pairs=0, cut_off=[], fewest=2, mbit=6.0, oversubscription={'edge': (1.0, 'e0_0'), 'aggregation': (2.0, 'a0_0')})
    >>> left(Failures(tree, {"e0_0": "drained", "a1_0-c0_0": "down"}))[:3]
    (7, ['e0_0'], 2)
    """
    tree = _without(failures)
    summary = Summary(tree)
    counts = summary.paths()
    cut_off = [tree.name(rack) for rack in summary.cut_off()]
    racks = tree.pods * tree.edges
    pairs = fewest = None
    if counts is not None:
        numbers = [fewer for fewers in counts.values() for fewer in fewers]
        among = len(cut_off) * (racks - len(cut_off)) + len(cut_off) * (len(cut_off) - 1) // 2
        pairs = among + sum(fewer.pairs for fewer in numbers if not fewer.paths)
        fewest = min((fewer.paths for fewer in numbers if fewer.paths), default=None)
    bisection = summary.bisection()
    gone = {element for element in failures.elements if isinstance(element, Switch)}
    levels = [Level.EDGE, *([Level.AGGREGATION] if tree.cores else [])]
    used = [level for level in levels if any(switch not in gone for switch in tree.switches(level))]
    ratios = {level: summary.oversubscription(level, gone) for level in used}
    return Left(
        pairs,
        cut_off[:SHOWN],
        fewest,
        None if bisection is None else bisection.mbit,
        {level.name.lower(): (ratio.most, ratio.switch) for level, ratio in ratios.items()},
    )


def _without(failures: Failures) -> Clos:
    """Return the fabric in which the links that have failed, or whose switches have, are absent."""
    tree, document = failures.tree, failures.tree.document()
    gone = {tree.name(link): ABSENT for link in _links(tree, failures.elements)}
    return Clos(**{**document, "links": {**document.get("links", {}), **gone}}) if gone else tree


def _links(tree: Clos, elements: Iterable[Switch | Link]) -> Iterator[Link]:
    """Yield the links between switches that elements take out."""
    for element in elements:
        if isinstance(element, Link):
            if not isinstance(element.lower, Host):
                yield element
        else:
            yield from links_of(tree, element)


def _downlinks(tree: Clos, switch: Switch) -> int:
    return 0 if switch.level is Level.EDGE else tree.downlink_count(switch.level)


def links_of(tree: Clos, switch: Switch) -> Iterator[Link]:
    """Yield the links of a switch to other switches, without absent ones."""
    yield from tree.links_above(switch)
    if switch.level is not Level.EDGE:
        yield from (tree.link(lower, switch) for lower in tree.below(switch))


class Group(NamedTuple):
    """A switch that has not failed itself, but all of whose links to other switches have: the likely cause."""

    switch: str
    links: list[str]


def groups(failures: Failures) -> list[Group]:
    """Return the switches by which failed links are explained, those with the most links first; each link once.

    >>> from topologies import FatTree
    >>> down = dict.fromkeys(("a0_0-c0_1", "a1_0-c0_1", "a2_0-c0_1", "a3_0-c0_1", "a1_1-c1_0"), "silent")
    >>> groups(Failures(FatTree(4), down))
    [Group(switch='c0_1', links=['a0_0-c0_1', 'a1_0-c0_1', 'a2_0-c0_1', 'a3_0-c0_1'])]
    """
    tree, hard = failures.tree, failures.hard
    failed = {link for link in hard.elements if isinstance(link, Link) and not isinstance(link.lower, Host)}
    gone = Counter(end for link in (*failed, *tree.absent) for end in link)
    found: list[tuple[Switch, list[Link]]] = []
    for switch, count in gone.items():
        assert isinstance(switch, Switch)
        # enumerating the links of each would cost most where much has failed
        if switch in hard.elements or count < tree.uplink_count(switch.level) + _downlinks(tree, switch):
            continue
        links = list(links_of(tree, switch))
        if len(links) > 1:
            found.append((switch, links))
    explained: set[Link] = set()
    chosen: list[Group] = []
    for switch, links in sorted(found, key=lambda its: (-len(its[1]), its[0])):
        rest = [link for link in links if link not in explained]
        if len(rest) > 1:
            explained.update(rest)
            chosen.append(Group(tree.name(switch), [tree.name(link) for link in links]))
    return chosen


def causes_of(failures: Failures) -> dict[str, str]:
    """Return what explains the failure of a link, by the link's name: a switch that has failed, that of a group, or a gateway.

    >>> from topologies import FatTree
    >>> causes_of(Failures(FatTree(4), {"e0_0": "not connected", "e0_0-a0_0": "down", "a0_1-c1_0": "down"}))
    {'e0_0-a0_0': 'e0_0'}
    """
    tree, hard = failures.tree, failures.hard
    away = {tree.name(its): tree.name(its.lower) for its in hard.elements if isinstance(its, Link) and its.lower in tree.gateways}
    failed = [(tree.name(its), [*map(tree.name, links_of(tree, its))]) for its in hard.elements if isinstance(its, Switch)]
    return away | {link: switch for switch, links in (*groups(failures), *failed) for link in links if link in hard}
