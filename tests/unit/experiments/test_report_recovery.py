"""Recovery from a failure: computed from the arrivals in short intervals, and from samples of the bytes that have arrived."""

from dataclasses import asdict, replace

import pytest

from experiments.bench.measure_mcs_silent import Sample, back_after, longest_silence
from experiments.report.recovery import Recovery, over_runs, recovery
from tests.helpers.records import a_run

TENTHS = 100.0


@pytest.mark.parametrize(
    ("series", "told"),
    [
        ([[4.0] * 100], Recovery(1, 0.0, 0.0, 0.0)),  # a flow that feels nothing is back at once
        ([[0.0] * 20 + [3.0] * 80], Recovery(1, 0.0, 0.0, 0.0)),  # what was before the failure is no part of it
        # 90% of 2.0 over a second: from the interval on in which 2 of 10 are still at half the rate
        ([[4.0] * 20 + [0.0] * 7 + [1.0] * 10 + [2.0] * 63, [4.0] * 20 + [2.0] * 80], Recovery(2, 0.7, 0.75, 1.5)),
        # a flow that never resumes is left out
        ([[4.0] * 25, [4.0] * 20 + [0.0] * 10 + [4.0] * 70], Recovery(1, 1.0, 0.9, 0.9)),
    ],
)
def test_silence_counts_from_the_failure_and_recovery_to_a_second_at_the_later_rate(
    series: list[list[float]], told: Recovery
) -> None:
    run = a_run(series={str(flow): one for flow, one in enumerate(series)})
    found = recovery(replace(run, series_ms=TENTHS, failed_at=2.0))
    assert found is not None
    assert asdict(found) == pytest.approx(asdict(told))


@pytest.mark.parametrize(("length", "failed_at"), [(100, None), (100, 8.0), (0, 2.0)])
def test_without_a_failure_or_time_after_it_nothing_is_told(length: int, failed_at: float | None) -> None:
    assert recovery(replace(a_run(series={"0": [4.0] * length}), series_ms=TENTHS, failed_at=failed_at)) is None


def test_runs_are_averaged_and_the_worst_of_all_is_kept() -> None:
    found = over_runs([Recovery(4, 0.5, 0.2, 1.0), Recovery(4, 1.5, 0.4, 2.0)])
    assert found is not None
    assert (found.runs, found.silence, found.worst_silence) == (2, 1.0, 1.5)
    assert found.mean == pytest.approx(0.3)
    assert (found.longest, found.worst) == (1.5, 2.0)
    assert over_runs([]) is None


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
