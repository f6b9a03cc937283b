"""The arbiter's library: whatever it grants is free of conflict, and it grants what it should."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.arbiter.allocation import NO_HOP, Allocation, AllocationError, Cell, Order, Paths
from sopa_ryu.arbiter.budgets import capacities, host_at, host_index
from tests.arbiter.checker import Checker
from tests.arbiter.fuzz import fuzz
from tests.arbiter.reference import Slots, matching, packed
from tests.arbiter.scenarios import Scenario
from topologies import Clos, Failures, FatTree, Reason

RACK = Clos(1, 1, 1, 0, 16)
PAPERS = Clos(4, 4, 2, 4, 4, mbit={"host": 1000.0, "edge": 2000.0, "aggregation": 4000.0})
"""The nearest to that of section 5.1 of the CFR paper (`cfr-part` in experiments/paper/figures.yaml)."""
PAIRS = dict[tuple[int, int], int]


def allocation_of(fabric: Clos = RACK, failed: Sequence[str] = (), **options: Any) -> Allocation:
    return Allocation(capacities(Failures(fabric, dict.fromkeys(failed, "down"))), **options)


def demand(allocation: Allocation, pairs: PAIRS) -> None:
    allocation.demand((*pair, cells) for pair, cells in pairs.items())


def pairs_of(batch: Iterable[Cell]) -> Counter[tuple[int, int]]:
    return Counter((cell.source, cell.destination) for cell in batch)


@given(seed=st.integers(0, 1 << 32))
def test_any_fabric_with_any_failures_order_and_paths_has_no_conflict(seed: int) -> None:
    scenario = Scenario(seed)
    for _ in range(6):
        scenario.step()
    scenario.statistics()


def test_a_few_packets_of_the_fuzzer() -> None:
    counted = fuzz(100_000, seed=2)
    assert counted["checked"] >= 100_000
    assert counted["colouring"] > 10 * counted["colouring without a path"]


def test_the_papers_example() -> None:
    """Figure 4: the matchings of two slots. The demands are such that min-max-min has the order that its text gives."""
    allocation = allocation_of(batch=1)
    demand(allocation, {(3, 5): 1, (1, 3): 2, (5, 4): 3, (4, 1): 3, (2, 1): 4, (3, 2): 5})
    assert list(pairs_of(allocation.batch())) == [(3, 5), (1, 3), (2, 1), (5, 4)]
    assert set(pairs_of(allocation.batch())) == {(4, 1), (5, 4), (3, 2), (1, 3)}


def test_algorithm_1_as_it_is_printed_stops_at_the_first_demand_that_does_not_fit() -> None:
    """Of figure 4's first matching that leaves one pair; the text of section 3.2 goes on behind a demand that does not fit."""
    order = [(3, 5), (3, 2), (1, 3), (2, 1), (5, 4), (4, 1)]  # of the figure's text: fewest, most, fewest again
    assert matching(order, printed=True) == [(3, 5)]
    assert matching(order) == [(3, 5), (1, 3), (2, 1), (5, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_those_of_the_papers_algorithm(seed: int) -> None:
    """Grant by grant, in their order, with the order min-max-min."""
    draw, reference, allocation = random.Random(seed), Slots(), allocation_of(batch=1)
    asked: set[tuple[int, int]] = set()
    for _ in range(100):
        arriving = {pair for pair in (tuple(draw.sample(range(16), 2)) for _ in range(draw.randrange(4))) if pair not in asked}
        demands = {(source, to): draw.choice((1, 2, 9, draw.randrange(1, 250))) for source, to in sorted(arriving)}
        asked |= demands.keys()
        demand(allocation, demands)
        reference.demand(demands)
        assert [(cell.source, cell.destination) for cell in allocation.batch()] == reference.next_slot()


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [(Order.MIN_MAX_MIN, (0, 1), (2, 3)), (Order.SMALLEST, (0, 1), (0, 1)), (Order.ALTERNATING, (0, 1), (2, 1))],
)
def test_orders(order: Order, first: tuple[int, int], second: tuple[int, int]) -> None:
    allocation = allocation_of(order=order, batch=1)
    demand(allocation, {(0, 1): 3, (2, 1): 900, (2, 3): 700, (0, 3): 4, (4, 3): 5})
    assert first in pairs_of(allocation.batch())
    assert second in pairs_of(allocation.batch())


def test_a_large_demand_is_served_under_steady_small_ones() -> None:
    """All small ones are for its source or its destination. By the order smallest it starves."""
    served = dict.fromkeys(Order, 0)
    for order in Order:
        allocation = allocation_of(order=order, batch=4)
        demand(allocation, {(0, 1): 100_000})
        for _ in range(200):
            demand(allocation, {(source, 1): 2 for source in range(2, 16)} | {(0, to): 2 for to in range(2, 16)})
            served[order] += pairs_of(allocation.batch())[0, 1]
    assert served[Order.SMALLEST] == 0
    assert min(served[Order.MIN_MAX_MIN], served[Order.ALTERNATING]) >= 200


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("cells", "growth"), [(100, 0), (300, 0), (700, 3)])
def test_long_flows_into_one_host_have_slots_in_turn(order: Order, batch: int, cells: int, growth: int) -> None:
    """Their demands are renewed, or grow, with every report."""
    allocation, served = allocation_of(order=order, batch=batch), Counter[tuple[int, int]]()
    for number in range(200):
        demand(allocation, {(source, 0): cells + growth * number for source in range(1, 9)})
        served += pairs_of(allocation.batch())
    assert served.total() == 200 * batch
    assert min(served.values()) * 2.5 > served.total() / 8
    assert growth or max(served.values()) - min(served.values()) <= 2 * batch


@pytest.mark.parametrize("order", [Order.ALTERNATING, Order.MIN_MAX_MIN])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_saturated_fabric_gets_nearly_the_best_matching(order: Order, batch: int) -> None:
    hosts, draw, left = FatTree(8).host_count, random.Random(1), Counter[tuple[int, int]]()
    allocation = allocation_of(FatTree(8), order=order, batch=batch)

    def arrive(flows: int) -> None:
        for _ in range(flows):
            source, destination = draw.sample(range(hosts), 2)
            left[source, destination] += draw.randrange(2, 133)
            allocation.demand([(source, destination, left[source, destination])])

    granted = best = 0
    arrive(50 * hosts)
    for number in range(400 // batch):
        arrive(2 * batch)
        sampled = number >= 300 // batch and number % 5 == 0
        if sampled:
            best += best_matching(left, hosts, batch)
        got = pairs_of(allocation.batch())
        granted += got.total() if sampled else 0
        left -= got
    assert granted >= 0.95 * best > 0


def best_matching(left: PAIRS, hosts: int, batch: int) -> int:
    """Return the most cells that a batch can carry."""
    network: networkx.DiGraph[object] = networkx.DiGraph()
    for host in range(hosts):
        network.add_edge("from", ("sends", host), capacity=batch)
        network.add_edge(("receives", host), "to", capacity=batch)
    for (source, destination), cells in left.items():
        network.add_edge(("sends", source), ("receives", destination), capacity=cells)
    return int(networkx.maximum_flow_value(network, "from", "to"))


def test_many_replacements_leave_nothing_behind() -> None:
    """Dead copies are dropped even where they are never met, as behind a host that receives nothing."""
    allocation = allocation_of(RACK, ["h0_0_3-e0_0"], batch=1)
    for number in range(100_000):
        allocation.demand([(0, 1, 1 + number % 2 * 300)])
        if not number % 100:
            assert allocation.batch() == []
    allocation.follow(capacities(Failures(RACK)))
    assert pairs_of(allocation.batch()) == {(0, 1): 1}


def test_reserved_cells_stay_free_in_one_batch() -> None:
    allocation = allocation_of(batch=8)
    demand(allocation, {(0, 1): 100, (2, 3): 100})
    allocation.reserve(0, 3, 0)
    allocation.reserve(3, 0, 99)
    assert pairs_of(allocation.batch()) == {(0, 1): 5}
    assert pairs_of(allocation.batch()) == {(0, 1): 8, (2, 3): 8}


# -- paths ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [4, 6, 8])
def test_every_permutation_has_paths_for_all(k: int) -> None:
    fabric = FatTree(k)
    failures = Failures(fabric)
    allocation, checker = Allocation(capacities(failures), batch=1), Checker(failures, 1)
    draw = random.Random(k)
    for _ in range(30):
        to = draw.sample(range(fabric.host_count), fabric.host_count)
        demands = [(source, destination, 1) for source, destination in enumerate(to) if source != destination]
        allocation.demand(demands)
        checker.demand(demands)
        batch = allocation.batch()
        assert len(batch) == len(demands)
        checker.check(batch)


@pytest.mark.parametrize("fabric", [FatTree(4), FatTree(8), PAPERS, Clos(1, 6, 4, 0, 4)], ids=lambda its: its.title)
@pytest.mark.parametrize("paths", [Paths.FIRST_FIT, Paths.NEXT_FIT])
def test_paths_are_those_of_the_papers_algorithm(fabric: Clos, paths: Paths) -> None:
    """Cell by cell, for permutations of all hosts; racks with fewer cells come later."""
    its, draw, hosts = capacities(Failures(fabric)), random.Random(1), fabric.host_count
    for left_out in range(20):
        to = draw.sample(range(hosts), hosts)
        cells = [(source, to[source]) for source in range(hosts) if source != to[source] and draw.randrange(20) >= left_out]
        allocation = Allocation(its, paths=paths, batch=1)
        demand(allocation, dict.fromkeys(cells, 1))
        wanted = zip(cells, packed(its, cells, paths is Paths.FIRST_FIT), strict=True)
        found = {(cell.source, cell.destination): (cell.up1, cell.up2) for cell in allocation.batch()}
        within = {(source, to) for source, to in cells if source // its.shape.hosts == to // its.shape.hosts}
        assert found == {pair: up for pair, up in wanted if up[0] != NO_HOP or pair in within}


def test_first_fit_leaves_fewer_cells_without_a_path_than_next_fit() -> None:
    """The paper's text names next fit (section 4.2), its algorithm 3 prints first fit."""
    left: Counter[Paths] = Counter()
    for paths in Paths:
        draw = random.Random(3)
        for seed in range(10):
            allocation = allocation_of(FatTree(8), paths=paths, batch=1, seed=seed)
            demand(allocation, {(source, to): 1 for source, to in enumerate(draw.sample(range(128), 128)) if source != to})
            allocation.batch()
            left[paths] += allocation.statistics().unplaced
    assert 0 == left[Paths.COLOURING] <= left[Paths.FIRST_FIT_GA] < left[Paths.FIRST_FIT] < left[Paths.NEXT_FIT_GA]
    assert left[Paths.NEXT_FIT_GA] < left[Paths.NEXT_FIT]


def test_what_has_no_path_waits_for_one_and_takes_no_slots() -> None:
    fabric = Clos(1, 3, 2, 0, 1, links={"e0_1-a0_0": "absent"})
    allocation = allocation_of(fabric, ["e0_0-a0_1"], batch=4)
    demand(allocation, {(0, 1): 6, (0, 2): 3})
    assert pairs_of(allocation.batch()) == {(0, 2): 3}
    assert allocation.batch() == []
    demand(allocation, {(0, 1): 5})
    allocation.follow(capacities(Failures(fabric)))
    assert pairs_of(allocation.batch()) == {(0, 1): 4}
    assert allocation.statistics().unplaced == 0


def test_an_oversubscribed_fabric_grants_what_its_uplinks_carry() -> None:
    fabric = Clos(1, 4, 2, 0, 8)
    failures = Failures(fabric)
    allocation, checker = Allocation(capacities(failures), batch=4), Checker(failures, 4)
    demands = [(source, (source + 8) % 32, 1000) for source in range(32)]
    allocation.demand(demands)
    checker.demand(demands)
    for _ in range(20):
        batch = allocation.batch()
        checker.check(batch)
        assert len(batch) == 4 * 4 * 2
    assert allocation.statistics().unplaced == 0


FAILED = ["a0_0-c0_1", "a3_2", "e5_0-a5_1"]


def test_one_failure_leaves_few_cells_without_a_path() -> None:
    allocation, draw = allocation_of(FatTree(8), FAILED), random.Random(1)
    for _ in range(300):
        allocation.demand((*draw.sample(range(128), 2), draw.randrange(2, 133)) for _ in range(7))
        allocation.batch()
    assert allocation.statistics().unplaced < 0.01 * allocation.statistics().granted


@pytest.mark.parametrize("paths", Paths)
def test_every_cell_is_granted_once_though_some_have_waited_for_a_path(paths: Paths) -> None:
    allocation, draw = allocation_of(FatTree(8), FAILED, paths=paths), random.Random(1)
    demands = {(source, to): draw.randrange(2, 33) for source, to in (draw.sample(range(128), 2) for _ in range(1500))}
    demand(allocation, demands)
    granted = Counter[tuple[int, int]]()
    while batch := allocation.batch():
        granted += pairs_of(batch)
    assert granted == demands
    assert allocation.statistics().unplaced > 0


def test_the_same_seed_has_the_same_results() -> None:
    def run(seed: int, paths: Paths) -> list[list[Cell]]:
        allocation, draw = allocation_of(FatTree(4), ["a0_0"], paths=paths, seed=seed), random.Random(1)
        batches = []
        for _ in range(20):
            allocation.demand((*draw.sample(range(16), 2), draw.randrange(20)) for _ in range(4))
            batches.append(allocation.batch())
        return batches

    for paths in Paths:
        assert run(1, paths) == run(1, paths)
        assert (run(1, paths) == run(2, paths)) == (paths in (Paths.NEXT_FIT, Paths.FIRST_FIT))  # nothing there is by chance


def test_what_is_wrong_is_refused() -> None:
    its = capacities(Failures(FatTree(4)))
    no_pods = its._replace(shape=its.shape._replace(pods=0), host=b"", edge_uplink=b"", aggregation_uplink=b"")
    allocation = Allocation(its)
    for act, problem in [
        (lambda: Allocation(its, batch=65), "1 to 64 slots, not 65"),
        (lambda: Allocation(its._replace(host=b"\1")), "links"),
        (lambda: Allocation(no_pods), "pods must be 1 to 255, not 0"),
        (lambda: allocation.demand([(0, 16, 1)]), "no number 16"),
        (lambda: allocation.demand([(3, 3, 1)]), "no slots to itself"),
        (lambda: allocation.reserve(99, 1, 1), "no number 99"),
        (lambda: allocation.follow(capacities(Failures(Clos(1, 2, 2, 0, 2)))), "other numbers"),
        (lambda: allocation.demand([(0, 1, -1)]), "negative"),
    ]:
        with pytest.raises(AllocationError, match=problem):
            act()


def test_rates_are_rounded_down_to_hosts_rates() -> None:
    mbit, links = {"host": 0.1, "edge": 0.3, "aggregation": 0.05}, {"e1_0-a1_1": 0.19, "a0_0-c0_0": 100}
    its = capacities(Failures(Clos(2, 1, 2, 2, 2, mbit=mbit, links=links)))
    assert (*its.edge_uplink, *its.aggregation_uplink) == (3, 3, 3, 1, 255, 1, 1, 1)
    assert its.host == b"\1\1\1\1"


def test_what_is_absent_failed_or_drained_carries_nothing() -> None:
    reasons = {"e0_1-a0_1": Reason.DRAINED, "a1_0": Reason.DOWN, "c1_1": Reason.SILENT}
    reasons |= dict.fromkeys(("h0_1_2-e0_1", "e1_1"), Reason.DOWN)
    its = capacities(Failures(Clos(2, 2, 2, 4, 1, links={"e0_0-a0_0": "absent"}), reasons))
    assert its.host == bytes([1, 0, 1, 0])
    assert its.edge_uplink == bytes([0, 1, 1, 0, 0, 1, 0, 0])
    assert its.aggregation_uplink == bytes([1, 1, 1, 0, 0, 0, 1, 0])


def test_hosts_have_numbers_in_the_order_of_addresses() -> None:
    fabric = Clos(2, 3, 1, 1, 4)
    for number, host in enumerate(fabric.hosts()):
        assert (host_index(fabric, host), host_at(fabric, number)) == (number, host)
