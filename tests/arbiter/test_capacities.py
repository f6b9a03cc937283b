"""The cells that links carry, for the arbiter's library."""

from __future__ import annotations

from sopa_ryu.arbiter.capacities import capacities, host_at, host_index
from topologies import Clos, Failures, FatTree, Reason


def test_an_even_fat_tree_has_one_cell_on_each_link() -> None:
    its = capacities(Failures(FatTree(4)))
    assert (its.host, its.edge_uplink, its.aggregation_uplink) == (b"\1" * 16,) * 3


def test_rates_are_rounded_down_to_hosts_rates() -> None:
    fabric = Clos(
        2, 1, 2, 2, 2, mbit={"host": 0.1, "edge": 0.3, "aggregation": 0.05}, links={"e1_0-a1_1": 0.19, "a0_0-c0_0": 100}
    )
    its = capacities(Failures(fabric))
    assert its.edge_uplink == bytes([3, 3, 3, 1])
    assert its.aggregation_uplink == bytes([255, 1, 1, 1])
    assert its.host == b"\1\1\1\1"


def test_what_is_absent_failed_or_drained_carries_nothing() -> None:
    fabric = Clos(2, 2, 2, 4, 1, links={"e0_0-a0_0": "absent"})
    reasons = {"e0_1-a0_1": Reason.DRAINED, "a1_0": Reason.DOWN, "c1_1": Reason.SILENT}
    reasons |= dict.fromkeys(("h0_1_2-e0_1", "e1_1"), Reason.DOWN)
    its = capacities(Failures(fabric, reasons))
    assert its.host == bytes([1, 0, 1, 0])
    assert its.edge_uplink == bytes([0, 1, 1, 0, 0, 1, 0, 0])
    assert its.aggregation_uplink == bytes([1, 1, 1, 0, 0, 0, 1, 0])


def test_hosts_have_numbers_in_the_order_of_addresses() -> None:
    fabric = Clos(2, 3, 1, 1, 4)
    for number, host in enumerate(fabric.hosts()):
        assert host_index(fabric, host) == number
        assert host_at(fabric, number) == host
