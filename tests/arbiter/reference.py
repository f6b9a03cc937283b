"""Algorithms 1 and 3 of the CFR paper (Li et al., 2015), line by line and slowly, for what the library grants."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sopa_ryu.arbiter.allocation import NO_HOP
from sopa_ryu.arbiter.budgets import Capacities

Pair = tuple[int, int]


def matching(order: Iterable[Pair], printed: bool = False) -> list[Pair]:
    """Return what algorithm 1 grants of demands in their order, where hosts send and receive a cell a slot.

    With ``printed`` the while of line 3 ends at the first demand that does not fit, as the paper prints it; section 3.2 goes on.
    """
    sending, receiving, granted = set[int](), set[int](), list[Pair]()
    for source, destination in order:
        if source not in sending and destination not in receiving:  # line 3
            granted.append((source, destination))  # line 4
            sending.add(source)  # line 5
            receiving.add(destination)
        elif printed:
            break
    return granted


class Slots:
    """Algorithm 2 with the order min-max-min of section 3.2, one slot at a time.

    Demands are in line by cells, and those with as many in the order in which they came to have them. The smallest and the
    largest have their turns; a turn goes to the first demand of a line that fits, and is over where none of the line does.
    """

    def __init__(self) -> None:
        self._lines: defaultdict[int, list[Pair]] = defaultdict(list)
        self._slots = 0

    def demand(self, demands: Mapping[Pair, int]) -> None:
        """Add the demands of further pairs (line 1)."""
        for pair, cells in demands.items():
            self._lines[cells].append(pair)

    def next_slot(self) -> list[Pair]:
        """Return the pairs of the next matching, in the order in which they are found; each has a cell less to send then."""
        granted = list[Pair]()

        def turn(cells: int, waiting: list[Pair]) -> None:
            while waiting:
                pair = waiting.pop(0)
                if len(matching([*granted, pair])) > len(granted):
                    granted.append(pair)
                    self._lines[cells].remove(pair)
                    if cells > 1:  # line 8
                        self._lines[cells - 1].append(pair)
                    return

        largest = self._slots % 4 == 3  # not in the paper: small demands must not starve a large one
        self._slots += 1
        lines = [cells for cells, line in self._lines.items() if line]
        ends = {end: (cells, list(self._lines[cells])) for end, cells in ((False, min(lines)), (True, max(lines)))} if lines else {}
        while ends and ends[False][0] != ends[True][0]:
            if not ends[largest][1]:
                lines = [cells for cells, line in self._lines.items() if line or cells == ends[not largest][0]]
                cells = max(at for at in lines if at < ends[True][0]) if largest else min(at for at in lines if at > ends[False][0])
                ends[largest] = ends[not largest] if cells == ends[not largest][0] else (cells, list(self._lines[cells]))
                continue
            turn(*ends[largest])
            largest = not largest
        while ends and ends[True][1]:
            turn(*ends[True])
        return granted


def packed(its: Capacities, cells: Sequence[Pair], first_fit: bool) -> Iterator[tuple[int, int]]:
    """Yield the path of each cell of a slot by algorithm 3, cell by cell, or a pair of `NO_HOP` where it finds none.

    Without ``first_fit`` it is next fit, which section 4.2 names: a switch that had no room for a cell is not tried again.
    """
    shape, busy, found = its.shape, Counter[tuple[str, int]](), {}
    group = shape.cores // shape.aggregations
    racks: defaultdict[int, list[int]] = defaultdict(list)  # line 1
    for number, (source, destination) in enumerate(cells):
        if source // shape.hosts != destination // shape.hosts:
            racks[source // shape.hosts].append(number)
    closed: set[object] = set()  # switches that next fit has left

    def room(links: Iterable[tuple[str, int]]) -> bool:
        free = {"edge": its.edge_uplink, "core": its.aggregation_uplink}
        if room := all(busy[link] < free[link[0].split()[0]][link[1]] for link in links):
            busy.update(links)
        return room

    def path(rack: int, to: int) -> tuple[int, int]:
        pods = rack // shape.edges, to // shape.edges
        for up1 in range(shape.aggregations):  # line 8
            if (rack, up1) in closed:
                continue
            for up2 in range(group) if pods[0] != pods[1] else (NO_HOP,):  # line 16
                if (pods[0], up1, up2) in closed:
                    continue
                links = [("edge up", rack * shape.aggregations + up1), ("edge down", to * shape.aggregations + up1)]
                if up2 != NO_HOP:
                    ways = zip(("core up", "core down"), pods, strict=True)
                    links += [(way, (pod * shape.aggregations + up1) * group + up2) for way, pod in ways]
                if room(links):
                    return up1, up2  # lines 11 and 13
                if not first_fit and up2 != NO_HOP:
                    closed.add((pods[0], up1, up2))
            if not first_fit:
                closed.add((rack, up1))
        return NO_HOP, NO_HOP

    for rack in sorted(racks, key=lambda rack: -len(racks[rack])):  # lines 2 and 7
        for number in racks[rack]:
            found[number] = path(rack, cells[number][1] // shape.hosts)
    for number in range(len(cells)):
        yield found.get(number, (NO_HOP, NO_HOP))
