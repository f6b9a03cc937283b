"""How many bytes a cell has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.arbiter.allocation import NO_HOP
from sopa_ryu.arbiter.budgets import MIN_CELL_BYTES, Budgets, cell_bytes, min_slot_ms
from sopa_ryu.arbiter.link_rates import read_links
from topologies import Clos, Failures, FatTree

SLOT_NS = 10_000_000


def test_a_cell_is_a_slot_of_a_hosts_link_less_the_guard() -> None:
    its = Budgets(Failures(FatTree(4)), 1000, SLOT_NS)
    assert its.cell_bytes == its.usual(0, 5) == its.on_path(0, 5, 1, 0) == 1_187_500


def test_slower_links_carry_less_in_a_slot() -> None:
    mbit = {"host": 100, "edge": 100, "aggregation": 100}
    links = {"h0_0_3-e0_0": 50, "e0_0-a0_1": 25, "a1_0-c0_1": 10}
    its = Budgets(Failures(Clos(2, 2, 2, 4, 2, mbit=mbit, links=links)), 100, SLOT_NS)
    whole = its.cell_bytes
    assert its.usual(0, 2) == whole
    assert its.usual(1, 2) == its.usual(2, 1) == whole // 2
    assert its.on_path(0, 1, NO_HOP, NO_HOP) == whole // 2
    assert its.on_path(0, 2, 1, NO_HOP) == its.on_path(2, 0, 1, NO_HOP) == whole // 4
    assert its.on_path(2, 4, 0, 1) == its.on_path(4, 2, 0, 1) == int(whole * 0.1)
    assert its.on_path(2, 4, 0, 0) == whole


def test_a_whole_level_may_be_slow() -> None:
    fabric = Clos(1, 2, 2, 0, 2, mbit={"host": 100, "edge": 50})
    its = Budgets(Failures(fabric), 100, SLOT_NS)
    assert its.on_path(0, 2, 0, NO_HOP) == its.cell_bytes // 2
    assert its.on_path(0, 1, NO_HOP, NO_HOP) == its.cell_bytes


def test_a_long_slot_at_a_high_rate_is_what_a_grant_can_say() -> None:
    assert cell_bytes(400_000, 4_000_000_000) == 2**32 - 1


@given(st.floats(0.1, 100_000))
def test_the_shortest_slot_carries_a_packet(mbit: float) -> None:
    assert cell_bytes(mbit, round(min_slot_ms(mbit) * 1e6)) >= MIN_CELL_BYTES


@pytest.mark.parametrize(("mbit", "share"), [(None, 0.5), (20, 0.25)])
def test_loads_are_shares_of_what_hosts_links_carry(mbit: float | None, share: float) -> None:
    link = {"up_bits_per_second": 0.0, "down_bits_per_second": 5e6, "capacity_bits_per_second": 1e7}
    idle = {**link, "down_bits_per_second": 100.0}
    unknown = {**link, "capacity_bits_per_second": None}
    found = read_links([link, idle, unknown], mbit)
    assert found.mbit == 10
    assert found.loads[0] == (0.0, share)
    assert set(found.loads) == ({0} if mbit is None else {0, 2})
