"""Random Clos fabrics for properties: leaf-spine and three tiers, oversubscribed or not, with absent and slower links."""

import random
from collections.abc import Iterator

from topologies import Clos, Host, Switch, TopologyError
from topologies.cabling import ABSENT, Rate

MAX_SWITCHES = 60
RATES = (10_000, 25_000, 40_000, 100_000)
"""Mbit/s."""


def random_fabric(seed: int, most: int = MAX_SWITCHES, rates: bool = False) -> Clos:
    """Return the random fabric of a seed, of at most so many switches; with ``rates`` levels and some links have their own.

    Every fourth one is whole, others lack up to a fifth of the cables.
    """
    choose = random.Random(f"{seed} fabric")
    while True:
        leaf_spine = choose.random() < 0.4
        pods, edges = (1 if leaf_spine else choose.randint(2, 6)), choose.randint(1, 12 if leaf_spine else 5)
        aggregations = choose.randint(1, 6 if leaf_spine else 4)
        cores = 0 if leaf_spine else aggregations * choose.randint(1, 4)
        if pods * edges > 1 and pods * (edges + aggregations) + cores <= most:
            break
    shape = pods, edges, aggregations, cores, choose.randint(1, 3)
    links: dict[str, Rate] = {}
    between = [Clos.name(link) for link in Clos(*shape).switch_links()]
    if rates:
        links |= dict.fromkeys(_some(between, choose), choose.choice(RATES))
    if seed % 4:
        links |= dict.fromkeys(_some(between, choose), ABSENT)
    mbit = {level: choose.choice(RATES) for level in ("host", "edge", "aggregation")} if rates else None
    return Clos(*shape, mbit=mbit, links=links)


def _some(names: list[str], choose: random.Random) -> list[str]:
    return choose.sample(names, choose.randint(0, max(1, len(names) // 5)))


def some_pairs(tree: Clos, count: int, seed: int = 1) -> list[tuple[Host, Host]]:
    choose, hosts = random.Random(seed), list(tree.hosts())
    if len(hosts) < 2:
        raise TopologyError(f"{tree} has no two hosts")
    drawn = [choose.sample(hosts, 2) for _ in range(count)]
    return [(src, dst) for src, dst in drawn]


def pairs_of_each_kind(tree: Clos, count: int, seed: int = 1) -> list[tuple[Host, Host]]:
    """Return so many random pairs of hosts of each kind that a fabric has: within a rack, a pod, between pods."""
    by_kind: dict[str, list[tuple[Host, Host]]] = {}
    for pair in some_pairs(tree, 400, seed):
        by_kind.setdefault(tree.kind(*pair), []).append(pair)
    return [pair for pairs in by_kind.values() for pair in pairs[:count]]


def ways_up(tree: Clos, edge: Switch) -> Iterator[tuple[tuple[int, ...], list[str]]]:
    """Yield where self-probes of a rack lead to: the ports by which they go up, and the switches on the way."""
    for port, above in tree.ports(edge).items():
        if isinstance(above, Switch):
            yield (port,), [tree.name(edge), tree.name(above)]
            for next_port, top in tree.ports(above).items():
                if isinstance(top, Switch) and top.level > above.level:
                    yield (port, next_port), [tree.name(edge), tree.name(above), tree.name(top)]
