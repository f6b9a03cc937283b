"""Switches are asked often enough that a dead channel is noticed in a bounded time, and no more often than that needs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.southbound.keepalive import ECHOES_PER_SECOND, GRAIN_SECONDS, SHORTEST_STEP, EchoKeepalive, pace
from tests.models.green_time import GreenTime

INTERVAL, MOST = 2.0, 3
LATEST = INTERVAL * (MOST + 2)
SIZES = [20, 2880]


class Channel:
    """A switch that answers echo requests at once until it dies, and perhaps something else every few seconds."""

    def __init__(self, clock: GreenTime, dies: float, else_every: float | None = None) -> None:
        self._clock, self._dies, self._else_every = clock, dies, else_every
        self.asked: list[float] = []
        self.closed: float | None = None
        self._answered_at = clock.now
        self._unanswered = 0

    @property
    def answered_at(self) -> float:
        if self._else_every is None:
            return self._answered_at
        last = min(self._clock.now, self._dies)
        return max(self._answered_at, last - last % self._else_every)

    @property
    def unanswered(self) -> int:
        return 0 if self.asked and self.answered_at > self.asked[-1] else self._unanswered

    @property
    def is_open(self) -> bool:
        return self.closed is None

    def close(self) -> None:
        self.closed = self._clock.now

    def ask(self) -> None:
        self._unanswered = self.unanswered + 1
        self.asked.append(self._clock.now)
        if self._clock.now < self._dies:
            self._answered_at, self._unanswered = self._clock.now, 0


def run(size: int, seconds: float, dies: float, else_every: float | None = None) -> list[Channel]:
    time = GreenTime()
    keepalive = EchoKeepalive(INTERVAL, MOST, time, time.sleep)
    keepalive._worker = object()  # this test has its green thread
    channels = []
    for number in range(size):
        time.now = number / size
        channels.append(Channel(time, dies, else_every))
        keepalive.add(channels[-1])
    time.spawn(keepalive.rounds)
    time.run(seconds - time.now)
    return channels


@given(st.floats(0.1, 30), st.integers(1, 10), st.integers(1, 100_000))
def test_a_dead_channel_is_noticed_in_a_time_for_any_number(interval: float, most: int, switches: int) -> None:
    rest, step = pace(interval, most, switches)
    assert rest + (most + 1) * step == pytest.approx(interval * (most + 2))
    assert rest >= interval * 0.999
    assert interval * (SHORTEST_STEP - 0.001) <= step <= interval * 1.001
    if switches <= ECHOES_PER_SECOND * interval:
        assert rest == interval


@pytest.mark.parametrize("else_every", [None, 1.7, 5.0])
@pytest.mark.parametrize("size", SIZES)
def test_a_dead_channel_is_closed_in_time(size: int, else_every: float | None) -> None:
    dies = 21.3
    for channel in run(size, dies + LATEST + 2, dies, else_every):
        assert channel.closed is not None
        assert dies < channel.closed <= dies + LATEST + (MOST + 3) * GRAIN_SECONDS
        assert len([at for at in channel.asked if at >= dies]) >= MOST


@pytest.mark.parametrize("else_every", [None, 5.0])
@pytest.mark.parametrize("size", SIZES)
def test_switches_that_answer_are_asked_at_a_bounded_rate(size: int, else_every: float | None) -> None:
    seconds = 30.0
    channels = run(size, seconds, dies=1e9, else_every=else_every)
    assert all(channel.is_open for channel in channels)
    asked = sum(len(channel.asked) for channel in channels) / seconds
    assert asked <= max(min(size / INTERVAL, 2 * ECHOES_PER_SECOND), ECHOES_PER_SECOND) * 1.2
    if size <= ECHOES_PER_SECOND * INTERVAL:  # as Ryu does
        assert all(len(channel.asked) >= seconds / (INTERVAL + 2 * GRAIN_SECONDS) - 1 for channel in channels)
    elif else_every:
        assert asked < size / seconds * 1.5  # what they answer otherwise says enough


def test_without_a_limit_nothing_is_asked() -> None:
    keepalive = EchoKeepalive(INTERVAL, 0)
    channel = Channel(GreenTime(), 0.0)
    keepalive.add(channel)
    assert not channel.asked


def test_a_channel_is_closed_with_the_request_after_the_last_that_may_stay_unanswered() -> None:
    [channel] = run(1, 60.0, dies=0.0)
    assert len(channel.asked) == MOST + 1
    assert channel.closed == pytest.approx((MOST + 1) * INTERVAL, abs=(MOST + 1) * GRAIN_SECONDS)


def test_a_switch_that_never_answers_is_asked_at_shorter_intervals_than_one_that_does() -> None:
    size = 2400
    rest, step = pace(INTERVAL, MOST, size)
    assert step < rest / 2
    last = run(size, 30.0, dies=0.0)[-1]
    assert max(after - before for before, after in pairwise(last.asked)) <= step + 2 * GRAIN_SECONDS
