"""The arbiter's library: whatever it grants is free of conflict, and it grants what it should."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.arbiter.allocation import NO_HOP, Allocation, AllocationError, Cell, Order, Paths
from sopa_ryu.arbiter.capacities import capacities
from tests.arbiter.checker import Checker
from tests.arbiter.fuzz import fuzz
from tests.arbiter.scenarios import Scenario
from topologies import Clos, Failures, FatTree

RACK = Clos(1, 1, 1, 0, 16)
PAIRS = dict[tuple[int, int], int]


def demand(allocation: Allocation, pairs: PAIRS) -> None:
    allocation.demand((*pair, cells) for pair, cells in pairs.items())


def pairs_of(batch: Iterable[Cell]) -> Counter[tuple[int, int]]:
    return Counter((cell.source, cell.destination) for cell in batch)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("paths", Paths)
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_a_fat_tree_under_load_has_no_conflict(order: Order, paths: Paths, batch: int) -> None:
    scenario = Scenario(1, FatTree(4), order, paths, batch)
    for _ in range(20):
        scenario.step()
    assert scenario.statistics().slots == 20 * batch


@given(seed=st.integers(0, 1 << 32))
def test_any_fabric_with_any_failures_has_no_conflict(seed: int) -> None:
    scenario = Scenario(seed)
    for _ in range(6):
        scenario.step()
    scenario.statistics()


def test_a_few_packets_of_the_fuzzer() -> None:
    counted = fuzz(100_000, seed=2)
    assert counted["checked"] >= 100_000
    assert counted["colouring"] > 10 * counted["colouring without a path"]


# -- timeslots ------------------------------------------------------------------------------------------------------------


def test_the_papers_example() -> None:
    """Figure 4: the matchings of two slots. The demands are such that min-max-min has the order that its text gives."""
    allocation = Allocation(capacities(Failures(RACK)), batch=1)
    demand(allocation, {(3, 5): 1, (1, 3): 2, (5, 4): 3, (4, 1): 3, (2, 1): 4, (3, 2): 5})
    assert set(pairs_of(allocation.batch())) == {(3, 5), (1, 3), (2, 1), (5, 4)}
    assert set(pairs_of(allocation.batch())) == {(4, 1), (5, 4), (3, 2), (1, 3)}


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [(Order.MIN_MAX_MIN, (0, 1), (2, 3)), (Order.SMALLEST, (0, 1), (0, 1)), (Order.ALTERNATING, (0, 1), (2, 1))],
)
def test_orders(order: Order, first: tuple[int, int], second: tuple[int, int]) -> None:
    allocation = Allocation(capacities(Failures(RACK)), order=order, batch=1)
    demand(allocation, {(0, 1): 3, (2, 1): 900, (2, 3): 700, (0, 3): 4, (4, 3): 5})
    assert first in pairs_of(allocation.batch())
    assert second in pairs_of(allocation.batch())


def test_a_large_demand_is_served_under_steady_small_ones() -> None:
    """All small ones are for its source or its destination. By the order smallest it starves."""
    served = {}
    for order in Order:
        allocation = Allocation(capacities(Failures(RACK)), order=order, batch=4)
        demand(allocation, {(0, 1): 100_000})
        for _ in range(200):
            demand(allocation, {(source, 1): 2 for source in range(2, 16)} | {(0, to): 2 for to in range(2, 16)})
            served[order] = served.get(order, 0) + pairs_of(allocation.batch())[0, 1]
    assert served[Order.SMALLEST] == 0
    assert served[Order.MIN_MAX_MIN] >= 200
    assert served[Order.ALTERNATING] >= 200


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("growth", [0, 3])
def test_long_flows_into_one_host_have_slots_in_turn(order: Order, batch: int, growth: int) -> None:
    """Their demands are renewed, or grow, with every report."""
    allocation = Allocation(capacities(Failures(RACK)), order=order, batch=batch)
    served: Counter[tuple[int, int]] = Counter()
    for number in range(200):
        demand(allocation, {(source, 0): 700 + growth * number for source in range(1, 9)})
        served += pairs_of(allocation.batch())
    assert served.total() == 200 * batch
    assert min(served.values()) * 2.5 > served.total() / 8


@pytest.mark.parametrize("order", [Order.ALTERNATING, Order.MIN_MAX_MIN])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_saturated_fabric_gets_nearly_the_best_matching(order: Order, batch: int) -> None:
    fabric = FatTree(8)
    hosts = fabric.host_count
    allocation = Allocation(capacities(Failures(fabric)), order=order, batch=batch)
    draw = random.Random(1)
    left: Counter[tuple[int, int]] = Counter()

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


def test_demands_are_replaced_and_removed() -> None:
    allocation = Allocation(capacities(Failures(RACK)), batch=4)
    demand(allocation, {(0, 1): 1000, (2, 3): 50})
    demand(allocation, {(0, 1): 2, (2, 3): 0, (4, 5): 3})
    assert pairs_of(allocation.batch()) == {(0, 1): 2, (4, 5): 3}
    demand(allocation, {(0, 1): 1})
    assert pairs_of(allocation.batch()) == {(0, 1): 1}
    assert allocation.batch() == []


def test_many_replacements_leave_nothing_behind() -> None:
    """Dead copies are dropped even where they are never met, as behind a host that receives nothing."""
    failed = Failures(RACK, {"h0_0_3-e0_0": "down"})
    allocation = Allocation(capacities(failed), batch=1)
    for number in range(100_000):
        allocation.demand([(0, 1, 1 + number % 2 * 300)])
        if not number % 100:
            assert allocation.batch() == []
    allocation.follow(capacities(Failures(RACK)))
    assert pairs_of(allocation.batch()) == {(0, 1): 1}


def test_reserved_cells_stay_free_in_one_batch() -> None:
    allocation = Allocation(capacities(Failures(RACK)), batch=8)
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


def test_hops_are_those_of_a_label() -> None:
    allocation = Allocation(capacities(Failures(FatTree(4))), batch=1)
    demand(allocation, {(0, 1): 1, (4, 6): 1, (5, 9): 1})
    up = {cell.source: (cell.up1 == NO_HOP, cell.up2 == NO_HOP) for cell in allocation.batch()}
    assert up == {0: (True, True), 4: (False, True), 5: (False, False)}


def test_what_has_no_path_waits_for_one_and_takes_no_slots() -> None:
    fabric = Clos(1, 3, 2, 0, 1, links={"e0_1-a0_0": "absent"})
    cut = Failures(fabric, {"e0_0-a0_1": "down"})
    allocation = Allocation(capacities(cut), batch=4)
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


def test_one_failure_leaves_few_cells_without_a_path() -> None:
    failures = Failures(FatTree(8), {"a0_0-c0_1": "down", "a3_2": "down", "e5_0-a5_1": "down"})
    allocation = Allocation(capacities(failures))
    draw = random.Random(1)
    for _ in range(300):
        allocation.demand((*draw.sample(range(128), 2), draw.randrange(2, 133)) for _ in range(7))
        allocation.batch()
    its = allocation.statistics()
    assert its.unplaced < 0.01 * its.granted


def test_the_same_seed_has_the_same_results() -> None:
    def run(seed: int, paths: Paths) -> list[list[Cell]]:
        allocation = Allocation(capacities(Failures(FatTree(4), {"a0_0": "down"})), paths=paths, seed=seed)
        draw = random.Random(1)
        batches = []
        for _ in range(20):
            allocation.demand((*draw.sample(range(16), 2), draw.randrange(20)) for _ in range(4))
            batches.append(allocation.batch())
        return batches

    for paths in Paths:
        assert run(1, paths) == run(1, paths)
        assert run(1, paths) != run(2, paths)


# -- what is refused --------------------------------------------------------------------------------------------------------


def test_what_is_wrong_is_refused() -> None:
    its = capacities(Failures(FatTree(4)))
    with pytest.raises(AllocationError, match="1 to 64 slots, not 65"):
        Allocation(its, batch=65)
    with pytest.raises(AllocationError, match="links"):
        Allocation(its._replace(host=b"\1"))
    with pytest.raises(AllocationError, match="pods must be 1 to 255, not 0"):
        Allocation(its._replace(shape=its.shape._replace(pods=0), host=b"", edge_uplink=b"", aggregation_uplink=b""))
    allocation = Allocation(its)
    with pytest.raises(AllocationError, match="no number 16"):
        allocation.demand([(0, 16, 1)])
    with pytest.raises(AllocationError, match="no slots to itself"):
        allocation.demand([(3, 3, 1)])
    with pytest.raises(AllocationError, match="no number 99"):
        allocation.reserve(99, 1, 1)
    with pytest.raises(AllocationError, match="other numbers"):
        allocation.follow(capacities(Failures(Clos(1, 2, 2, 0, 2))))
    with pytest.raises(AllocationError, match="negative"):
        allocation.demand([(0, 1, -1)])
