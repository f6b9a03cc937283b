"""Cells that were matched, and then found no path, are granted later."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sopa_ryu.arbiter.allocation import Allocation, Paths
from sopa_ryu.arbiter.capacities import capacities
from topologies import Failures, FatTree


@pytest.mark.parametrize("paths", Paths)
def test_every_cell_is_granted_once_though_some_have_waited_for_a_path(paths: Paths) -> None:
    failures = Failures(FatTree(8), {"a0_0-c0_1": "down", "a3_2": "down", "e5_0-a5_1": "down"})
    allocation = Allocation(capacities(failures), paths=paths)
    draw = random.Random(1)
    demand = {tuple(draw.sample(range(128), 2)): draw.randrange(2, 33) for _ in range(1500)}
    allocation.demand((source, destination, cells) for (source, destination), cells in demand.items())
    granted: Counter[tuple[int, int]] = Counter()
    while batch := allocation.batch():
        granted.update((cell.source, cell.destination) for cell in batch)
    assert granted == demand
    assert allocation.statistics().unplaced > 0
