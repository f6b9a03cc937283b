"""How many bytes a cell has."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.arbiter.allocation import NO_HOP
from sopa_ryu.arbiter.budgets import MIN_CELL_BYTES, Budgets, cell_bytes, min_slot_ms
from sopa_ryu.arbiter.service import Service
from sopa_ryu.channel.messages import HostLink
from topologies import Clos, Failures, FatTree

SLOT_NS = 10_000_000


MBIT = {"host": 100, "edge": 100, "aggregation": 100}
SLOW = Clos(2, 2, 2, 4, 2, mbit=MBIT, links={"h0_0_3-e0_0": 50, "e0_0-a0_1": 25, "a1_0-c0_1": 10})
SLOW_LEVEL = Clos(1, 2, 2, 0, 2, mbit={"host": 100, "edge": 50})


@pytest.mark.parametrize(("fabric", "ends", "path", "share"), [
    (FatTree(4), (0, 5), (1, 0), 1.0),
    (SLOW, (0, 1), (NO_HOP, NO_HOP), 0.5),
    (SLOW, (0, 2), (1, NO_HOP), 0.25),
    (SLOW, (2, 4), (0, 1), 0.1),
    (SLOW, (2, 4), (0, 0), 1.0),
    (SLOW_LEVEL, (0, 2), (0, NO_HOP), 0.5),
    (SLOW_LEVEL, (0, 1), (NO_HOP, NO_HOP), 1.0),
])  # fmt: skip
def test_a_cell_is_what_the_slowest_link_carries(fabric: Clos, ends: tuple[int, int], path: tuple[int, int], share: float) -> None:
    its = Budgets(Failures(fabric), 100, SLOT_NS)
    assert its.cell_bytes == its.usual(0, 2) == 118_750
    assert its.on_path(*ends, *path) == its.on_path(*ends[::-1], *path) == int(118_750 * share)
    if fabric is SLOW:
        assert its.usual(1, 2) == its.usual(2, 1) == 118_750 // 2


def test_a_long_slot_at_a_high_rate_is_what_a_grant_can_say() -> None:
    assert cell_bytes(400_000, 4_000_000_000) == 2**32 - 1


@given(st.floats(0.1, 100_000))
def test_the_shortest_slot_carries_a_packet(mbit: float) -> None:
    assert cell_bytes(mbit, round(min_slot_ms(mbit) * 1e6)) >= MIN_CELL_BYTES


@pytest.mark.parametrize(("mbit", "share"), [(None, 0.5), (20, 0.25)])
def test_loads_are_shares_of_what_hosts_links_carry(mbit: float | None, share: float) -> None:
    link = HostLink(0.0, 5e6, 1e7)
    its = Service(Mock(), schedule := Mock(), Mock(), Mock(), mbit)
    its.measured([link, link._replace(down=100.0), link._replace(capacity=None)])
    schedule.load.assert_called_once_with(dict.fromkeys([0] if mbit is None else [0, 2], (0.0, share)))
    assert its.mbit == (mbit or 10)
