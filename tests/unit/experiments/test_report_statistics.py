"""Windows of packets and the largest deviation of a path; what a report says of flows is in scripts/report."""

from collections import Counter

import pytest

from experiments.report.statistics import largest_deviation, path_windows


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
