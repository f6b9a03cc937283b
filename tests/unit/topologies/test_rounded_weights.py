"""A slow path's share is rounded, where a sequence has little room, but never to a multiple of what it can take."""

import pytest

from topologies.weights import MAX_SEQUENCE, rounded


@pytest.mark.parametrize("slow", [0.3, 0.55, 0.7, 0.9])
@pytest.mark.parametrize("paths", [8, MAX_SEQUENCE // 8, MAX_SEQUENCE // 3])
def test_a_slow_path_gets_hardly_more_than_its_share(slow: float, paths: int) -> None:
    shares = rounded((1.0,) * (paths - 1) + (slow,))
    assert sum(shares) == pytest.approx(1)
    assert shares[-1] <= 1.04 * slow * shares[0]
