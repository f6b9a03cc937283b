"""The least bandwidth of all-to-all traffic: what weights reach, and what a linear program reaches at best."""

import random
from collections import defaultdict
from collections.abc import Callable

from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from tests.helpers.random_fabrics import random_fabric
from topologies import Failures, Host, Level, Link, Switch
from topologies.weights import weights_from

Arc = tuple[Link, bool]
"""A link between switches in one direction: up or not."""


def uneven(seed: int) -> Failures:
    """Return a random fabric with absent links and rates, and random failures of it."""
    fabric, choose = random_fabric(seed, rates=True), random.Random(f"{seed} uneven")
    above = [switch for switch in fabric.switches() if switch.level is not Level.EDGE]
    names = [fabric.name(each) for each in (*fabric.switch_links(), *above)]
    return Failures(fabric, dict.fromkeys(choose.sample(names, choose.randint(0, len(names) // 10)), "down"))


def arcs(src: Switch, dst: Switch, up: tuple[int, ...]) -> list[Arc]:
    """Return the links of the path between two racks by uplinks ``up``, in their directions."""
    if not up:
        return []
    above = [Switch(Level.AGGREGATION, rack.pod, up[0]) for rack in (src, dst)]
    outer = [(Link(src, above[0]), True), (Link(dst, above[1]), False)]
    if len(up) == 1:
        return outer
    core = Switch(Level.CORE, *up)
    return [*outer, (Link(above[0], core), True), (Link(above[1], core), False)]


def of_weights(failures: Failures, weigh: Callable[[Failures, Switch], dict[Switch, tuple[float, ...]]] = weights_from) -> float:
    """Return the bandwidth of each pair of hosts that some weights give all-to-all traffic, without the hosts' own links."""
    tree, load = failures.tree, defaultdict[Arc, float](float)
    for src in tree.switches(Level.EDGE):
        weights = weigh(failures, src)
        for dst, choices in failures.choices_from(src).items():
            if dst != src:
                for up, weight in zip(choices, weights[dst], strict=True):
                    for arc in arcs(src, dst, up):
                        load[arc] += weight * tree.hosts_per_edge**2
    return min((tree.capacity(link) / busy for (link, _), busy in load.items() if busy), default=float("inf"))


def of_hosts(failures: Failures) -> float:
    """Return the bandwidth of each pair of hosts that their own links leave."""
    tree = failures.tree
    reached = max(
        tree.hosts_per_edge * sum(1 for choices in failures.choices_from(rack).values() if choices) - 1
        for rack in tree.switches(Level.EDGE)
    )
    return tree.capacity(Link(Host(0, 0, 2), Switch(Level.EDGE, 0, 0))) / reached if reached > 0 else float("inf")


def optimum(failures: Failures) -> float:
    """Return the largest bandwidth that every pair of hosts can have at a time over candidate paths, without the hosts' own links.

    A linear program, in which what a rack sends is one commodity, as it goes up and down without loops.
    """
    tree, size = failures.tree, failures.tree.hosts_per_edge**2
    columns: dict[tuple[object, ...], int] = {}
    least = columns.setdefault(("least",), 0)
    equal: list[list[tuple[int, float]]] = []
    used: defaultdict[Arc, list[int]] = defaultdict(list)

    def column(key: tuple[object, ...], *on: Arc) -> int:
        if key not in columns:
            columns[key] = len(columns)
            for arc in on:
                used[arc].append(columns[key])
        return columns[key]

    for src in tree.switches(Level.EDGE):
        by_core: defaultdict[tuple[int, int], tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
        for dst, choices in failures.choices_from(src).items():
            if dst == src or not choices:
                continue
            through = set()
            for up in choices:
                ends = arcs(src, dst, up)
                rack = column((src, dst, up[0]), *ends[:2])
                through.add(rack)
                if len(up) == 2:
                    racks, cores = by_core[up[0], dst.pod]
                    racks.add(rack)
                    cores.add(column((src, up, dst.pod), *ends[2:]))
            equal.append([*((one, 1.0) for one in through), (least, -size)])
        for racks, cores in by_core.values():
            equal.append([*((one, 1.0) for one in racks), *((one, -1.0) for one in cores)])
    if not used:
        return float("inf")
    limits = [[(one, 1.0) for one in of] for of in used.values()]
    answer = linprog(
        [-1.0] + [0.0] * (len(columns) - 1),
        A_ub=_matrix(limits, len(columns)),
        b_ub=[tree.capacity(link) for link, _ in used],
        A_eq=_matrix(equal, len(columns)),
        b_eq=[0.0] * len(equal),
        method="highs",
    )
    assert answer.status == 0, answer.message
    return float(-answer.fun)


def _matrix(rows: list[list[tuple[int, float]]], width: int) -> coo_matrix:
    cells = [(row, column, value) for row, cells in enumerate(rows) for column, value in cells]
    at, columns, values = zip(*cells, strict=True)
    return coo_matrix((values, (at, columns)), (len(rows), width))
