"""The clock that stands still while the process does."""

import pytest

from sopa_ryu.runtime.clock import SteadyClock


@pytest.mark.parametrize("pause", [2.1, 13.0, 86_400.0])
def test_a_pause_takes_no_time(pause: float) -> None:
    times = iter([100.0, 100.5, 102.4, 102.4 + pause, 103.0 + pause])
    clock = SteadyClock(lambda: next(times))
    assert [clock.now() for _ in range(3)] == [100.0, 100.5, 102.4]
    assert clock.take_pause() == 0.0
    assert clock.now() == pytest.approx(102.4)
    assert clock.take_pause() == pytest.approx(pause)
    assert clock.take_pause() == 0.0
    assert clock.now() == pytest.approx(103.0)


def test_a_busy_process_does_not_pause() -> None:
    times = iter([0.5 * number for number in range(100)])
    clock = SteadyClock(lambda: next(times))
    assert [clock.now() for _ in range(100)][-1] == 49.5
    assert clock.take_pause() == 0.0
