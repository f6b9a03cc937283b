"""Fabrics of all kinds, and demands, reservations and failures by chance, for the arbiter's library and its checker."""

import random

from sopa_ryu.arbiter.allocation import MAX_BATCH, Allocation, Order, Paths, Statistics
from sopa_ryu.arbiter.budgets import Capacities, capacities
from tests.arbiter.checker import Checker
from topologies import Clos, Failures, FatTree

MANY_HOSTS = 64


class Scenario:
    """An allocation on a fabric, with what happens to it: the seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(f"{seed} arbiter")
        self.fabric = some_fabric(draw)
        self.order, self.paths = draw.choice(list(Order)), draw.choice(list(Paths))
        self.slots = draw.choice((1, 2, 4, 4, 7, 8, 9, 16, 31, 33, MAX_BATCH))
        # more cells than one of a host's link: the library can, though no fabric of `capacities` has them
        self._host_cells = bytes(draw.choice((1, 1, 2, 5)) for _ in range(self.fabric.host_count))
        self._wide = draw.random() < 0.3
        failures = some_failures(draw, self.fabric) if draw.random() < 0.5 else Failures(self.fabric)
        options = {"order": self.order, "paths": self.paths, "batch": self.slots, "seed": seed}
        self.allocation = Allocation(self._capacities(failures), **options)
        self.checker = Checker(failures, self.slots)
        self._follow(failures)

    def __repr__(self) -> str:
        return f"{self.fabric}, {self.order}, {self.paths}, batches of {self.slots}"

    def step(self) -> None:
        draw, hosts = self.draw, self.fabric.host_count
        if draw.random() < 0.05:
            self._follow(some_failures(draw, self.fabric))
        if hosts > 1:
            self._demand(max(1, hosts * self.slots // 16))
        reserved = {}
        if draw.random() < 0.2:
            for host in draw.sample(range(hosts), min(hosts, 3)):
                reserved[host] = (draw.randrange(self.slots + 2), draw.randrange(self.slots + 2))
                self.allocation.reserve(host, *reserved[host])
        self.checker.check(self.allocation.batch(), reserved)

    def statistics(self) -> Statistics:
        """Return the library's own counts, which must be those of the checker."""
        its = self.allocation.statistics()
        assert its.granted == self.checker.granted, (its, self.checker.granted)
        return its

    def _demand(self, pairs: int) -> None:
        draw, hosts = self.draw, self.fabric.host_count
        demands = []
        for _ in range(pairs):
            source, destination = draw.randrange(hosts), draw.randrange(hosts - 1)
            destination += destination >= source
            cells = draw.choice((0, 1, draw.randrange(20), draw.randrange(20), draw.randrange(200), 1 << 20))
            demands.append((source, destination, cells))
        self.allocation.demand(demands)
        self.checker.demand(demands)

    def _follow(self, failures: Failures) -> None:
        its = self._capacities(failures)
        self.allocation.follow(its)
        self.checker.follow(failures, its.host)

    def _capacities(self, failures: Failures) -> Capacities:
        its = capacities(failures)
        if not self._wide:
            return its
        cells = bytes(there * wanted for there, wanted in zip(its.host, self._host_cells, strict=True))
        return its._replace(host=cells)


def some_fabric(draw: random.Random) -> Clos:
    """Return a fat-tree, a leaf-spine fabric or any other, maybe with uneven and absent links."""
    if draw.random() < 0.4:
        return FatTree(draw.choice((4, 6, 8, 8)))
    pods = draw.choice((1, 1, 2, 3, 5))
    edges, aggregations = draw.randrange(1, 7), draw.randrange(1, 5)
    cores = aggregations * (draw.randrange(1, 5) if pods > 1 else draw.choice((0, 0, 2)))
    hosts = draw.randrange(1, max(2, 1 + MANY_HOSTS // (pods * edges)))
    mbit = {"host": 1.0, "edge": draw.choice((0.5, 1, 1, 2, 2.5, 4)), "aggregation": draw.choice((1, 1, 2, 4, 10))}
    plain = Clos(pods, edges, aggregations, cores, hosts, mbit=mbit)
    links: dict[str, float | str] = {}
    if draw.random() < 0.5:
        every = list(plain.switch_links())
        for link in draw.sample(every, max(1, len(every) // 8)):
            links[plain.name(link)] = draw.choice(("absent", "absent", 0.3, 1, 3))
    return Clos(pods, edges, aggregations, cores, hosts, mbit=mbit, links=links)


def some_failures(draw: random.Random, fabric: Clos) -> Failures:
    elements = [*fabric.switches(), *fabric.links()]
    failed = draw.sample(elements, min(len(elements), draw.choice((0, 1, 1, 2, 5, len(elements) // 6))))
    return Failures(fabric, {fabric.name(element): "down" for element in failed})
