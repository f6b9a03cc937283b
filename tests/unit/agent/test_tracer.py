"""An agent's traces: in parts that last a second, one at a time, until the channel or the controller ends them."""

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.agent.probing.tracer import Tracer, parts
from sopa_ryu.agent.probing.traces import Traced, TraceError
from sopa_ryu.channel import messages
from sopa_ryu.channel.messages import BACK, LOST, LOST_BACK, LOST_OUT, Stream, TraceAnswer, TraceRequest

FAR = IPv4Address("10.2.1.3")
PATHS = tuple(Stream(FAR, up1, up2) for up2 in (0, 1) for up1 in (0, 1))


def asking(number: int, count: int, paths: tuple[Stream, ...] = PATHS, interval: float = 10.0) -> TraceRequest:
    return TraceRequest(number, count=count, interval_ms=interval, streams=paths)


class Probes:
    """Sends nothing: of each stream a fate of its own."""

    def __init__(self, problem: str = "", least: float = 0.0) -> None:
        self.least = least
        self.problem, self.asked = problem, list[tuple[int, int, float]]()

    def trace_interval(self, asked: float) -> float:
        return max(asked, self.least)

    async def trace(self, streams: Sequence[Stream], count: int, interval: float) -> list[Traced]:
        self.asked.append((len(streams), count, interval))
        await asyncio.sleep(0)
        if self.problem:
            raise TraceError(self.problem)
        lost_out = dict(zip(PATHS, [None, True, False, None], strict=True))
        return [Traced(its, number, its == PATHS[0], lost_out[its], 50_000 if its == PATHS[0] else 0)
                for number in range(count) for its in streams]  # fmt: skip


def test_a_trace_over_slow_links_answers_as_often_as_one_over_fast_ones() -> None:
    probes = Probes(least=0.2)
    traced(Tracer(probes), asking(1, 20))
    assert probes.asked == [(4, 1, 0.2)] * 20


def traced(tracer: Tracer, *requests: TraceRequest, closed: bool = False) -> list[TraceAnswer]:
    """Let a tracer follow requests as soon as the one before is under way; return what it sends."""
    said: list[TraceAnswer] = []

    async def send(text: str) -> None:
        if closed:
            raise OSError("closed")
        said.append(messages.from_agent(text))

    async def main() -> None:
        for request in requests:
            tracer.follow(request, send)
            await asyncio.sleep(0)
        for _ in range(60):
            await asyncio.sleep(0)

    asyncio.run(main())
    return said


def test_every_probe_is_answered_for_in_parts_of_a_second() -> None:
    probes = Probes()
    said = traced(Tracer(probes), asking(9, 60))
    assert probes.asked == [(4, 25, 0.01), (4, 25, 0.01), (4, 10, 0.01)]
    assert [its.number for its in said] == [9, 9, 9]
    assert [(its.done, len(its.outcomes)) for its in said] == [(False, 100), (False, 100), (True, 40)]
    fates = {outcome.place: outcome.fate for answer in said for outcome in answer.outcomes}
    assert fates == {0: BACK, 1: LOST_OUT, 2: LOST_BACK, 3: LOST}
    assert said[0].outcomes[0].delay_ns == 50_000


@given(st.integers(1, 1024), st.integers(1, 1000), st.floats(5.0, 1000.0))
def test_parts_are_the_whole_and_none_is_long(streams: int, probes: int, interval: float) -> None:
    if streams * probes > messages.MAX_PROBES:
        return
    paths = tuple(Stream(FAR, place // 255, place % 255) for place in range(streams))
    sent = dict.fromkeys(paths, 0)
    for part, count in parts(asking(1, probes, paths, interval), interval / 1000):
        assert len(part) * count * interval <= max(1000.0, interval)
        assert len(part) * count <= messages.MAX_FATES
        for stream in part:
            sent[stream] += count
    assert set(sent.values()) == {probes}


def test_a_prober_that_cannot_and_none_at_all_are_a_problem() -> None:
    request = asking(9, 1)
    assert traced(Tracer(Probes("it is down")), request) == [TraceAnswer(9, b"", done=True, problem="it is down")]
    [answer] = traced(Tracer(), request)
    assert "sends no probes" in answer.problem


@pytest.mark.parametrize(("then", "answered"), [
    ([TraceRequest(8, cancel=True)], [9]),  # another one's
    ([TraceRequest(9, cancel=True)], []),
    ([asking(10, 1)], [10]),
])  # fmt: skip
def test_a_trace_that_is_ended_says_nothing_more(then: list[TraceRequest], answered: list[int]) -> None:
    said = traced(Tracer(Probes()), asking(9, 1), *then)
    assert [answer.number for answer in said] == answered


@pytest.mark.parametrize("problem", ["", "down"])
def test_a_channel_that_is_closed_ends_a_trace_quietly(problem: str) -> None:
    probes = Probes(problem)
    tracer = Tracer(probes)
    traced(tracer, asking(9, 100), closed=True)
    assert tracer._task.exception() is None
    assert len(probes.asked) == 1
