"""Statistics agree with what was computed by hand, and say when there is nothing to compute."""

import math
from collections import Counter

import pytest

from experiments.report.statistics import (
    Completion,
    Distribution,
    Interval,
    Ratio,
    completion,
    distribution,
    fairness,
    largest_deviation,
    losses,
    mean_interval,
    path_windows,
    ratio,
)
from tests.helpers.records import a_flow


def test_a_distribution() -> None:
    assert distribution([float(value) for value in range(101)]) == Distribution(
        101, 50.0, 0.0, 1.0, 5.0, 50.0, 95.0, 99.0, 100.0, pytest.approx(math.sqrt(858.5))
    )
    # Percentiles lie between values: a quarter of the way from 1 to 5 is 2.
    assert distribution([1.0, 5.0]).p5 == pytest.approx(1.2)
    assert distribution([3.0]) == Distribution(1, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, None)


def test_the_interval_is_students() -> None:
    # Mean 3, standard deviation sqrt(2.5), five values: t with 4 degrees of freedom is 2.776445.
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    assert interval.low == pytest.approx(3 - 2.776445 * math.sqrt(2.5 / 5), abs=1e-5)
    assert interval.high == pytest.approx(3 + 2.776445 * math.sqrt(2.5 / 5), abs=1e-5)
    # With one degree of freedom it is 12.7062.
    pair = mean_interval([9.0, 11.0])
    assert pair is not None
    assert pair.high == pytest.approx(10 + 12.7062, abs=1e-4)
    assert mean_interval([3.0]) is None


@pytest.mark.parametrize(
    ("rates", "base", "told"),
    [  # half of it under each seed, however much seeds differ: no doubt is left; seed 3 is the base's alone
        ({1: 5.0, 2: 50.0}, {1: 10.0, 2: 100.0, 3: 7.0}, Ratio(0.5, Interval(0.5, 0.5), 2)),
        ({1: 5.0}, {1: 10.0}, Ratio(0.5, None, 1)),
        ({1: 0.0}, {1: 10.0}, Ratio(0.0, None, 1)),
        ({1: 5.0}, {2: 10.0}, None),
        ({1: 5.0}, {1: 0.0}, None),
    ],
)
def test_ratios_are_paired_by_seed(rates: dict[int, float], base: dict[int, float], told: Ratio | None) -> None:
    assert ratio(rates, base) == told


def test_fairness_is_jains() -> None:
    assert fairness([2.0, 2.0, 2.0]) == pytest.approx(1)
    assert fairness([9.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert fairness([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)
    assert fairness([0.0, 0.0]) is None


def test_completion_times_of_which_transfers_that_did_not_end_are_the_slowest() -> None:
    flows = [a_flow(flow=number, size=1000, seconds=float(number)) for number in range(1, 102)]
    assert completion(flows) == Completion(101, 101, 51.0, 51.0, 100.0)
    ended = [a_flow(size=1000, seconds=seconds) for seconds in (1.0, 2.0, 3.0)]
    late = [a_flow(size=1000, seconds=0.5, completed=False)] * 2
    assert completion(late + ended) == Completion(5, 3, 2.0, 3.0, None)
    assert completion(late) == Completion(2, 0, None, None, None)


def test_losses_are_summed_and_shares_are_of_packets() -> None:
    first = a_flow(packets=900, reordered=9, retransmits=4, fast_retransmits=2, timeouts=1, spurious=3)
    found = losses([first, a_flow(packets=100, reordered=1, retransmits=1)])
    assert (found.packets, found.reordered, found.retransmits) == (1000, 10, 5)
    assert (found.fast_retransmits, found.timeouts, found.spurious) == (2, 1, 3)
    assert (found.reordered_share, found.retransmitted_share) == (0.01, 0.005)
    found = losses([a_flow(packets=0)])
    assert (found.reordered_share, found.retransmitted_share) == (None, None)


def test_packets_are_counted_in_the_order_they_were_sent() -> None:
    # Two by two they take one path and the other; number 2 overtakes number 1; the last one is in no complete window.
    arrivals = [[0.1 * place, n, 0, n // 2 % 2, 1.0] for place, n in enumerate((0, 2, 1, 3, 4, 5, 6, 7, 8))]
    assert path_windows(arrivals, 4) == [Counter({(0, 0): 2, (0, 1): 2})] * 2
    assert path_windows(arrivals, 2) == [Counter({(0, 0): 2}), Counter({(0, 1): 2})] * 2
    assert path_windows(arrivals[:3], 4) == []


def test_the_largest_deviation_is_of_any_path_in_any_window() -> None:
    even = Counter({(0, 0): 125, (0, 1): 125, (1, 0): 125, (1, 1): 125})
    # As in the paper's figure 5: 142 of 125.
    uneven = Counter({(0, 0): 142, (0, 1): 120, (1, 0): 119, (1, 1): 119})
    assert largest_deviation([even], 4) == 0
    assert largest_deviation([even, uneven], 4) == pytest.approx(13.6)
    # a path that is never taken deviates by all of its share
    assert largest_deviation([Counter({(0, 0): 250, (0, 1): 250})], 2) == 0
    assert largest_deviation([Counter({(0, 0): 190, (0, 1): 190, (1, 0): 120})], 4) == pytest.approx(100)
    assert largest_deviation([], 4) is None
