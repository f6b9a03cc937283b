"""An agent's traces: in parts that last a second, one at a time, until the channel or the controller ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.agent.probing.tracer import Tracer, parts
from sopa_ryu.agent.probing.traces import Traced, TraceError
from sopa_ryu.channel import protocol, traces
from sopa_ryu.channel.probes import Stream
from sopa_ryu.channel.traces import BACK, LOST, LOST_BACK, LOST_OUT, Answer, Cancel, Request

PATHS = tuple(Stream(IPv4Address("10.2.1.3"), up1, up2) for up2 in (0, 1) for up1 in (0, 1))


class Probes:
    """Sends nothing: of each stream a fate of its own."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.asked: list[tuple[int, int, float]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def trace(self, streams: Sequence[Stream], count: int, interval: float) -> list[Traced]:
        self.asked.append((len(streams), count, interval))
        await self.gate.wait()
        if self.problem:
            raise TraceError(self.problem)
        found = []
        for number in range(count):
            for stream in streams:
                fate = PATHS.index(stream)
                lost_out = [None, True, False, None][fate]
                found.append(Traced(stream, number, fate == 0, lost_out, 50_000 if fate == 0 else 0))
        return found


async def traced(tracer: Tracer, request: Request) -> list[Answer]:
    """Let a tracer make a trace; return what it sends."""
    said: list[Answer] = []

    async def send(text: str) -> None:
        answer = protocol.traced(text)
        assert answer is not None
        said.append(answer)

    tracer.follow(request, send)
    while not (said and said[-1].done):
        await asyncio.sleep(0)
    return said


def test_every_probe_is_answered_for_in_parts_of_a_second() -> None:
    async def main() -> None:
        probes = Probes()
        said = await traced(Tracer(probes), Request(9, PATHS, 60, 10.0))
        assert probes.asked == [(4, 25, 0.01), (4, 25, 0.01), (4, 10, 0.01)]
        assert [(answer.number, answer.done, len(answer.outcomes)) for answer in said] == [
            (9, False, 100),
            (9, False, 100),
            (9, True, 40),
        ]
        fates = {outcome.place: outcome.fate for answer in said for outcome in answer.outcomes}
        assert fates == {0: BACK, 1: LOST_OUT, 2: LOST_BACK, 3: LOST}
        assert said[0].outcomes[0].delay_ns == 50_000

    asyncio.run(main())


@given(st.integers(1, 1024), st.integers(1, 1000), st.floats(5.0, 1000.0))
def test_parts_are_the_whole_and_none_is_long(streams: int, probes: int, interval: float) -> None:
    if streams * probes > traces.MAX_PROBES:
        return
    paths = tuple(Stream(IPv4Address("10.2.1.3"), place // 255, place % 255) for place in range(streams))
    sent = dict.fromkeys(paths, 0)
    for part, count in parts(Request(1, paths, probes, interval)):
        assert len(part) * count * interval <= max(1000.0, interval)
        assert len(part) * count <= traces.MAX_FATES
        for stream in part:
            sent[stream] += count
    assert set(sent.values()) == {probes}


def test_a_prober_that_cannot_and_none_at_all_are_a_problem() -> None:
    async def main() -> None:
        request = Request(9, PATHS, 1, 10.0)
        [answer] = await traced(Tracer(Probes("it is down")), request)
        assert answer == Answer(9, done=True, problem="it is down")
        [answer] = await traced(Tracer(), request)
        assert "sends no probes" in answer.problem

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "end", "another"])
def test_a_trace_that_is_ended_says_nothing_more(how: str) -> None:
    async def main() -> None:
        probes = Probes()
        probes.gate.clear()
        tracer, said = Tracer(probes), []

        async def send(text: str) -> None:
            said.append(protocol.traced(text))

        tracer.follow(Request(9, PATHS, 1, 10.0), send)
        while not probes.asked:
            await asyncio.sleep(0)
        tracer.follow(Cancel(8), send)  # another one's
        if how == "cancel":
            tracer.follow(Cancel(9), send)
        elif how == "end":
            tracer.end()
        else:
            tracer.follow(Request(10, PATHS, 1, 10.0), send)
        probes.gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert [answer.number for answer in said if answer] == ([10] if how == "another" else [])

    asyncio.run(main())


def test_a_channel_that_is_closed_ends_a_trace_quietly() -> None:
    async def main() -> None:
        async def send(text: str) -> None:
            raise OSError("closed")

        for probes in (Probes(), Probes("down")):
            tracer = Tracer(probes)
            tracer.follow(Request(9, PATHS, 100, 10.0), send)
            assert tracer._task is not None
            await tracer._task
            assert len(probes.asked) == 1

    asyncio.run(main())
