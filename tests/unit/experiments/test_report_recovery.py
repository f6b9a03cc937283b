"""Recovery from a failure, from samples of the bytes that have arrived; what a report says of it is in scripts/report."""

from experiments.bench.silence import Sample, back_after, longest_silence

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
