"""Numbers of a report: windows of packets, deviations of paths, recovery from a failure; its text is in scripts/report."""

from collections import Counter
from functools import partial

import pytest

from experiments.bench.silence import Sample, back_after, longest_silence
from experiments.report.statistics import Slowdown, ideal_seconds, largest_deviation, path_windows, slowdown
from tests.helpers.records import a_flow
from topologies import Clos

BEGAN = 100.0


def samples(*rates: tuple[float, int]) -> list[Sample]:
    """Return samples at every 10 ms: so many seconds with so many bytes per sample, from two seconds before `BEGAN` on."""
    found, count = [], 0
    for seconds, rate in rates:
        for _ in range(round(100 * seconds)):
            count += rate
            found.append((BEGAN - 2 + len(found) / 100, count))
    return found


def test_a_flow_is_back_at_the_begin_of_the_first_second_with_nine_tenths() -> None:
    assert back_after(samples((6, 100)), BEGAN) == 0
    back = back_after(samples((2, 100), (0.5, 0), (4, 100)), BEGAN)
    assert back is not None
    assert 0.38 <= back <= 0.42  # a tenth of that second may be silent
    assert back_after(samples((2, 100), (4, 80)), BEGAN) is None
    assert back_after(samples((2, 100), (3, 0), (0.5, 100)), BEGAN) is None  # the last second has to be whole


def test_silence_is_counted_up_to_the_end() -> None:
    assert 0.48 <= longest_silence(samples((2, 100), (0.5, 0), (4, 100)), BEGAN) <= 0.52
    assert 2.9 <= longest_silence(samples((3, 100), (3, 0)), BEGAN) <= 3.1


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


def test_a_transfer_alone_needs_a_handshake_its_first_packet_over_all_links_and_the_rest_at_the_rate_of_a_host() -> None:
    tree = Clos(4, 2, 2, 4, 2, mbit={"host": 10, "edge": 20, "aggregation": 40})
    ends = {"src": "h0_0_2", "dst": "h0_0_3", "rate_mbit": 8.0}  # a byte takes a microsecond
    assert ideal_seconds(a_flow(size=60, **ends), tree) == pytest.approx(2 * (80 + 100) * 1e-6)
    assert ideal_seconds(a_flow(size=1460, **ends), tree, delay=1e-3) == pytest.approx(2 * (80 + 1500) * 1e-6 + 6e-3)
    assert ideal_seconds(a_flow(size=1460 * 3 + 1, **ends), tree) == pytest.approx((2 * (80 + 1500) + 2 * 1500 + 41) * 1e-6)
    assert ideal_seconds(a_flow(size=200, **ends), tree, packet=140) == pytest.approx((2 * (80 + 140) + 140) * 1e-6)
    for dst, share in (("h0_1_2", 1.5), ("h1_0_2", 1.75)):
        assert ideal_seconds(a_flow(size=60, **ends | {"dst": dst}), tree) == pytest.approx(share * 360 * 1e-6)
    slower = Clos(1, 1, 1, 0, 2, mbit={"host": 10, "edge": 10}, links={"h0_0_3-e0_0": 5})
    assert ideal_seconds(a_flow(size=2920, **ends), slower) == pytest.approx((1580 + 2 * 1580 + 2 * 1500) * 1e-6)
    flows = [a_flow(size=60, **ends, seconds=seconds, completed=seconds < 1) for seconds in (360e-6, 720e-6, 1080e-6, 1.0)]
    assert slowdown(flows[:3], partial(ideal_seconds, tree=tree)) == Slowdown(*map(pytest.approx, (2, 2.9, 2.98)))
    assert slowdown(flows, partial(ideal_seconds, tree=tree)) == Slowdown(pytest.approx(2.5), None, None)
