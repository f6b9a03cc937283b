"""The default rate of a lab's links, and BFD's interval, from what a packet costs a machine."""

from __future__ import annotations

import pytest

from topologies import FatTree
from topologies.lab.links import bfd_interval_ms, calibrated_rate, default_rate

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
