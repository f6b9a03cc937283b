"""Demands that are renewed get slots in turn: long flows into one host share its link."""

from __future__ import annotations

from collections import Counter

import pytest

from sopa_ryu.arbiter.allocation import Allocation, Order
from sopa_ryu.arbiter.capacities import capacities
from topologies import Failures, FatTree


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("cells", [100, 300])
def test_equal_demands_that_are_renewed_get_slots_in_turn(order: Order, cells: int) -> None:
    allocation = Allocation(capacities(Failures(FatTree(4))), order=order, batch=4)
    found: Counter[int] = Counter()
    for _ in range(150):
        allocation.demand([(source, 15, cells) for source in range(15)])
        found.update(cell.source for cell in allocation.batch())
    assert sorted(found) == list(range(15))
    assert max(found.values()) - min(found.values()) <= 8  # two batches
