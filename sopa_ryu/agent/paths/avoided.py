"""What a host avoids by itself: sections of its ways out, and the candidate paths of a rack that are left without them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from topologies import Clos, Level, Link, Switch

Up = tuple[int, ...]


class WayTo(NamedTuple):
    """A candidate path to a rack: its pod, its edge switch's number there, and the uplink indices."""

    pod: int
    edge: int
    up: Up


class Section(NamedTuple):
    """The paths that share a link, on the way out of one host; None stands for any.

    ``(j)`` is the uplink of the host's edge switch, ``(j, i)`` that of the aggregation switch, ``(j, i, pod)`` the link down to a
    pod, ``(j, None, pod, edge)`` the link down to a rack, and ``(j, i, pod, edge)`` one path alone.

    >>> way = WayTo(2, 1, (0, 1))
    >>> [section.covers(way) for section in (Section(0), Section(0, 0), Section(0, 1, 2), Section(0, None, 2, 0))]
    [True, False, True, False]
    """

    up1: int
    up2: int | None = None
    pod: int | None = None
    edge: int | None = None

    @classmethod
    def behind(cls, own: Switch, at: Switch, after: Switch) -> Section | None:
        """Return the paths of a rack that lead from one switch to another one; None if they are no neighbours on any.

        A core switch is followed by an edge switch, which stands for the aggregation switch on the way down to it.

        >>> rack, other, above = Switch(Level.EDGE, 0, 1), Switch(Level.EDGE, 2, 1), Switch(Level.AGGREGATION, 0, 1)
        >>> core, below = Switch(Level.CORE, 1, 3), Switch(Level.AGGREGATION, 2, 1)
        >>> [tuple(Section.behind(rack, *pair)) for pair in ((rack, above), (above, core), (core, other), (below, other))]
        [(1, None, None, None), (1, 3, None, None), (1, 3, 2, None), (1, None, 2, 1)]
        """
        match at.level, after.level:
            case Level.EDGE, Level.AGGREGATION if at == own and after.pod == own.pod:
                return cls(after.index)
            case Level.AGGREGATION, Level.CORE if at.pod == own.pod and at.index == after.pod:
                return cls(at.index, after.index)
            case Level.CORE, Level.EDGE:
                return cls(at.pod, at.index, after.pod)
            case Level.AGGREGATION, Level.EDGE if at.pod == after.pod:
                return cls(at.index, None, after.pod, after.index)
        return None

    def covers(self, way: WayTo) -> bool:
        """Return True if a path crosses this section."""
        return (
            self.up1 == way.up[0]
            and (self.up2 is None or way.up[1:] == (self.up2,))
            and self.pod in (None, way.pod)
            and self.edge in (None, way.edge)
        )

    def includes(self, other: Section) -> bool:
        """Return True if every path of another section is one of this."""
        return all(mine is None or mine == its for mine, its in zip(self, other, strict=True))

    def concerns(self, pod: int, edge: int) -> bool:
        """Return True if there may be paths to that rack in it."""
        return self.pod in (None, pod) and self.edge in (None, edge)

    def link(self, tree: Clos, own: Switch) -> str | None:
        """Return the name of the link that its paths share on the way out of a rack; None if it is one path alone.

        Of a path inside the pod it is the link down: what crosses the link up to others is another section.
        """
        above = Switch(Level.AGGREGATION, own.pod, self.up1)
        if self.up2 is None:
            if self.edge is None:
                return tree.name(Link(own, above))
            if self.pod is None:
                return None
            rack = Switch(Level.EDGE, self.pod, self.edge)
            return tree.name(Link(rack, Switch(Level.AGGREGATION, self.pod, self.up1)))
        if self.edge is not None:
            return None
        below = above if self.pod is None else Switch(Level.AGGREGATION, self.pod, self.up1)
        return tree.name(Link(below, Switch(Level.CORE, self.up1, self.up2)))


def sections(way: WayTo) -> tuple[Section, ...]:
    """Return the sections that a path crosses, the widest first; the last is that path alone.

    >>> len(sections(WayTo(2, 1, (0, 1)))), len(sections(WayTo(0, 1, (0,))))
    (5, 2)
    """
    pod, edge, (up1, *more) = way
    if not more:
        return Section(up1), Section(up1, None, pod, edge)
    up2 = more[0]
    narrow = Section(up1, None, pod, edge), Section(up1, up2, pod, edge)
    return Section(up1), Section(up1, up2), Section(up1, up2, pod), *narrow


class Avoided(NamedTuple):
    """What a host avoids now.

    Attributes:
        dead: Nothing comes through.
        lossy: The share that is lost is well above that of other paths.

    A rack keeps its last path, and at least half of its paths if the others only lose more:

    >>> rack, two = Switch(Level.EDGE, 2, 1), ((0, 0), (1, 0))
    >>> Avoided(frozenset({Section(0)})).kept(rack, two)
    ((1, 0),)
    >>> Avoided(frozenset({Section(0), Section(1)})).kept(rack, two) == two
    True
    >>> Avoided(frozenset(), {Section(0): 0.02, Section(1): 0.1}).kept(rack, two)
    ((0, 0),)
    """

    dead: frozenset[Section] = frozenset()
    lossy: Mapping[Section, float] = {}

    def __bool__(self) -> bool:
        return bool(self.dead or self.lossy)

    def of(self, rack: Switch) -> frozenset[Section]:
        """Return what concerns a rack: racks with the same candidates and the same answer keep the same."""
        return frozenset(section for section in self._all() if section.concerns(rack.pod, rack.index))

    def kept(self, rack: Switch, choices: tuple[Up, ...]) -> tuple[Up, ...]:
        """Return the candidate paths to a rack that are left, in their order: all, if all of them look dead."""
        ways = [WayTo(rack.pod, rack.index, up) for up in choices if up]
        dead = {way.up for way in ways if any(section.covers(way) for section in self.dead)}
        if (not dead and not self.lossy) or len(dead) == len(choices):
            return choices
        shares = {way.up: self._share(way) for way in ways if way.up not in dead}
        lossy = sorted((up for up, share in shares.items() if share), key=lambda up: (-shares[up], up))
        gone = dead | set(lossy[: max(0, len(choices) // 2 - len(dead))])
        return tuple(up for up in choices if up not in gone) if gone else choices

    def _share(self, way: WayTo) -> float:
        return max((share for section, share in self.lossy.items() if section.covers(way)), default=0.0)

    def _all(self) -> Iterator[Section]:
        yield from self.dead
        yield from self.lossy


NOTHING = Avoided()
