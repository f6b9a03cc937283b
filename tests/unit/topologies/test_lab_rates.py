"""The default rate of a lab's links, and BFD's interval, from what a packet costs a machine."""

import pytest

from topologies import Clos, FatTree
from topologies.lab.links import at_rate, bfd_interval_ms, calibrated_rate, default_rate

CLEAN = 20e-6
SIZES = [2, 4, 6, 8, 16]


@pytest.mark.parametrize("k", SIZES)
def test_the_measured_machine_has_the_rate_that_was_measured_there(k: int) -> None:
    assert calibrated_rate(FatTree(k), CLEAN) == pytest.approx(max(0.1, default_rate(FatTree(k))), rel=0.05)


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("k", [4, 6, 8])
def test_a_slower_machine_and_more_hosts_have_less(k: int, kernel: bool) -> None:
    rates = [calibrated_rate(FatTree(k), CLEAN * times, kernel) for times in (0.5, 1, 2, 4)]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] / rates[2] == pytest.approx(2, rel=0.1)
    hosts = FatTree(k).host_count
    load = [hosts * rate for rate in rates[:2]]
    assert load[0] == pytest.approx(2 * load[1], rel=0.1)
    assert calibrated_rate(FatTree(k + 2), CLEAN, kernel) < rates[1]


def test_one_thread_forwards_in_user_space_and_all_processors_in_the_kernel() -> None:
    tree = FatTree(4)
    assert calibrated_rate(tree, CLEAN, processors=64) == calibrated_rate(tree, CLEAN, processors=2)
    assert calibrated_rate(tree, CLEAN, processors=1) == calibrated_rate(tree, CLEAN, processors=2) / 2
    assert calibrated_rate(tree, CLEAN, True, 8) == pytest.approx(4 * calibrated_rate(tree, CLEAN, True, 2), rel=0.1)


@pytest.mark.parametrize("kernel", [False, True])
def test_the_rate_is_one_that_links_can_have(kernel: bool) -> None:
    rates = [calibrated_rate(FatTree(k), seconds, kernel, 256) for k in (2, 128) for seconds in (1e-9, 1.0)]
    assert min(rates) == 0.1
    assert max(rates) == (1000 if kernel else 40)


def test_bfd_has_more_time_on_a_machine_that_is_much_slower() -> None:
    for k in SIZES:
        usual = bfd_interval_ms(FatTree(k))
        assert [bfd_interval_ms(FatTree(k), CLEAN * times) for times in (0.2, 1, 1.4)] == [usual] * 3
        assert bfd_interval_ms(FatTree(k), 4 * CLEAN) >= 4 * min(usual, 100 * k**3 / 64) - 1


UNEVEN = Clos(2, 2, 2, 4, 3, mbit={"host": 10_000, "edge": 25_000, "aggregation": 40_000},
              links={"e0_0-a0_1": 5_000, "h1_1_3-e1_1": 1_000, "a0_0-c0_0": "absent"}, gateways=["h0_0_2"])  # fmt: skip


@pytest.mark.parametrize("rate", [0.1, 4.0, 333.3])
def test_links_of_a_lab_are_in_proportion_to_those_of_the_fabric(rate: float) -> None:
    lab = at_rate(UNEVEN, rate)
    assert list(lab.links()) == list(UNEVEN.links())
    assert lab.gateways == UNEVEN.gateways
    for link in UNEVEN.links():
        assert lab.capacity(link) == pytest.approx(UNEVEN.capacity(link) * rate / 10_000)
    assert lab.in_mbit


def test_without_rates_all_links_have_the_same_but_those_that_are_named() -> None:
    lab = at_rate(Clos(1, 2, 2, 0, 2, links={"e0_1-a0_1": 0.5, "e0_0-a0_0": "absent"}), 4.0)
    found = {lab.name(link): lab.capacity(link) for link in lab.links()}
    assert found.pop("e0_1-a0_1") == 2.0
    assert set(found.values()) == {4.0}
    assert at_rate(FatTree(4), 4.0).k == 4


def test_rates_and_intervals_follow_from_hosts_hops_and_links() -> None:
    tree, twin = FatTree(8), Clos(8, 4, 4, 16, 4, links={"a0_0-c0_0": "absent"})
    assert default_rate(twin) == default_rate(tree)
    assert bfd_interval_ms(twin) == pytest.approx(bfd_interval_ms(tree), rel=0.01)
    leaves, pods = Clos(1, 4, 4, 0, 32), Clos(2, 2, 4, 4, 32)
    assert leaves.host_count == pods.host_count == FatTree(8).host_count
    each = (tree, pods, leaves)
    whole, same, three = ([default_rate(its), *(calibrated_rate(its, CLEAN, in_kernel) for in_kernel in (0, 1))] for its in each)
    assert same == whole
    assert three == pytest.approx([rate * 5 / 3 for rate in whole], rel=0.05)  # three switches on a path, not five
    assert bfd_interval_ms(leaves) == 100
