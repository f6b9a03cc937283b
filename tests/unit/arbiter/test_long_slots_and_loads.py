"""What the arbiter asks of the allocator: reservations within a link, cells for all batches ahead; and the budget of a path."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from sopa_ryu.arbiter.budgets import Budgets
from sopa_ryu.arbiter.schedule import AHEAD, SLOTS, Load, Schedule, Timing
from sopa_ryu.channel.slots import Demand, Wanted
from tests.models.memory_allocator import Cell, MemoryAllocator
from topologies import Clos, Failures, FatTree

TREE = FatTree(4)
START = 1_000_000_000_000_000


def schedule(timing: Timing, tree: Clos = TREE, make: type[MemoryAllocator] = MemoryAllocator) -> Schedule:
    its = Schedule(timing, make)
    its.follow(Budgets(Failures(tree), 4.0, timing.slot_ns))
    its.accept(1)
    return its


def demand(address: IPv4Address, size: int, number: int = 1) -> Demand:
    return Demand(TREE.ip(next(TREE.hosts())), number, 0, 1, 5, 0, (Wanted(address, size, 0),))


@pytest.mark.parametrize(
    ("load", "cells"), [(Load(1.5, 0.5), (SLOTS, SLOTS // 2)), (Load(0.5, 9.0), (SLOTS // 2, SLOTS))]
)
def test_a_load_beyond_a_link_reserves_all_of_the_link_and_no_more(load: Load, cells: tuple[int, int]) -> None:
    reserved = []

    class Allocator(MemoryAllocator):
        def reserve(self, host: int, sending: int, receiving: int) -> None:
            reserved.append((host, sending, receiving))

    its = schedule(timing := Timing.of(3.2), make=Allocator)
    its.load({5: load})
    for turn in range(6):
        its.turn(START + turn * timing.batch_ns)
    assert len(reserved) >= 4
    assert set(reserved) == {(5, *cells)}


def test_of_long_slots_as_many_are_asked_for_as_the_batches_ahead_have() -> None:
    its = schedule(timing := Timing.of(400))
    its.receive(demand(list(map(TREE.ip, TREE.hosts()))[5], 1 << 40), None, START)
    grants = [grant for turn in range(6) for _, grant in its.turn(START + turn * timing.batch_ns)]
    assert sum(len(grant.entries) for grant in grants) == (AHEAD + 2) * SLOTS


def test_a_cell_has_the_budget_of_its_own_path() -> None:
    slow = Clos.from_document(
        {**TREE.document(), "links": {"e0_0-a0_1": 2}, "mbit": {"host": 4, "edge": 4, "aggregation": 4}}
    )

    class Allocator(MemoryAllocator):
        def batch(self) -> list[Cell]:
            return [cell._replace(up1=1, up2=0) for cell in super().batch()]

    its = schedule(timing := Timing.of(3.2), slow, Allocator)
    its.receive(demand(list(map(TREE.ip, TREE.hosts()))[5], 1), None, START)
    [entry] = [
        entry for turn in range(3) for _, grant in its.turn(START + turn * timing.batch_ns) for entry in grant.entries
    ]
    assert (entry.up1, entry.up2, entry.budget) == (1, 0, 1520 // 2)
