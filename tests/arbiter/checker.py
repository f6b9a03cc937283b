"""Verifies batches of grants against the fabric alone: walks each path by `Clos.hops`, and knows nothing of how it was found."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from sopa_ryu.arbiter.allocation import NO_HOP, Cell
from topologies import Clos, Failures, Host, Level, Link, Switch

Direction = tuple[Host | Switch, Host | Switch]


class Conflict(AssertionError):
    """A batch has a cell that must not be in it."""


class Checker:
    """What a fabric's links carry, and what was demanded and granted, in batches of so many slots."""

    def __init__(self, failures: Failures, slots: int) -> None:
        self.slots, self.granted = slots, 0
        self.demands: dict[tuple[int, int], int] = {}
        self._hosts = list(failures.tree.hosts())
        self.follow(failures)

    def follow(self, failures: Failures, host_cells: Sequence[int] | None = None) -> None:
        """Go on with other failures, and if it is given with what hosts' links carry, by their numbers."""
        self._failures = failures
        self._walks: dict[tuple[Switch, Switch, int, int], tuple[tuple[Direction, int], ...]] = {}
        links = (failures.tree.link(host, failures.tree.edge_of(host)) for host in self._hosts)
        self._host_cells = host_cells or [self._cells(link) for link in links]

    def demand(self, demands: Iterable[tuple[int, int, int]]) -> None:
        """Note demands, each in place of that before it of the same pair."""
        for source, destination, cells in demands:
            self.demands[source, destination] = cells

    def check(self, batch: Iterable[Cell], reserved: Mapping[int, tuple[int, int]] | None = None) -> None:
        """Verify a batch, and take it off the demands; a host's link has cells left, of those sent and of those received.

        Raises:
            Conflict: If a host or a link carries more than it can, a path is none of the fabric, or more was granted than
                demanded.
        """
        last, used = 0, Counter[Direction]()
        sends, receives = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for cell in batch:
            source, destination, slot, up1, up2 = cell
            if slot != last:
                if not last < slot < self.slots:
                    raise Conflict(f"{cell} after slot {last} of {self.slots}")
                last = slot
                used.clear()
            left = self.demands.get((source, destination), 0) - 1
            if left < 0:
                raise Conflict(f"{cell} was not demanded")
            self.demands[source, destination] = left
            sends[source, slot] += 1
            receives[destination, slot] += 1
            for direction, capacity in self._walk(source, destination, up1, up2):
                used[direction] += 1
                if used[direction] > capacity:
                    raise Conflict(f"{cell}: {direction} carries {used[direction]} cells, and can {capacity}")
            self.granted += 1
        for cells, what in ((sends, "sends"), (receives, "receives")):
            for (host, slot), count in cells.items():
                if count > self._host_cells[host]:
                    raise Conflict(f"host {host} {what} {count} cells in slot {slot}, and can {self._host_cells[host]}")
        for host, free in (reserved or {}).items():
            for cells, wanted in zip((sends, receives), free, strict=True):
                all_slots = self.slots * self._host_cells[host]
                used = sum(cells[host, slot] for slot in range(self.slots))
                if used > max(0, all_slots - wanted):
                    raise Conflict(f"host {host} uses {used} cells, of which {wanted} were to be free")

    def _walk(self, source: int, destination: int, up1: int, up2: int) -> tuple[tuple[Direction, int], ...]:
        src, dst = self._hosts[source], self._hosts[destination]
        key = (Clos.edge_of(src), Clos.edge_of(dst), up1, up2)
        if key not in self._walks:
            self._walks[key] = self._walked(src, dst, up1, up2)
        return self._walks[key]

    def _walked(self, src: Host, dst: Host, up1: int, up2: int) -> tuple[tuple[Direction, int], ...]:
        """Return the links between switches that a path takes, each with its capacity."""
        fabric = self._failures.tree
        up = tuple(hop for hop in (up1, up2) if hop != NO_HOP)
        if (up1 == NO_HOP and up2 != NO_HOP) or up not in fabric.choices_between(src, dst):
            raise Conflict(f"{up1}, {up2} is no path from {src} to {dst}")
        hops = fabric.hops(src, dst, up)
        if hit := self._failures.hit(hops):
            raise Conflict(f"{up} from {src} to {dst}: {hit}")
        return tuple(((here, there), self._cells(fabric.link(here, there))) for here, there in pairwise(hops))

    def _cells(self, link: Link) -> int:
        fabric = self._failures.tree
        if self._failures.hit((link, link.lower, link.upper) if isinstance(link.lower, Switch) else (link, link.upper)):
            return 0
        if isinstance(link.lower, Host):
            return 1
        level = "edge" if link.lower.level is Level.EDGE else "aggregation"
        rate = fabric.capacity(link) if not fabric.even else fabric.level_rate(level)
        return max(1, min(255, int(rate / fabric.level_rate("host") + 1e-9)))
