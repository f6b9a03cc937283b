"""Traces that the controller asks an agent for: sends their probes in parts, and answers after each part."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from sopa_ryu.agent.probing.traces import Traced, TraceError
from sopa_ryu.channel import messages
from sopa_ryu.channel.messages import BACK, LOST, LOST_BACK, LOST_OUT, Outcome, Stream, TraceRequest

LOG = logging.getLogger("sopa.agent")

PART_SECONDS = 1.0
"""How long the probes of one part are sent, about: the controller hears of a trace that often."""
Send = Callable[[str], Awaitable[None]]


class Tracing(Protocol):
    """What sends the probes: `Prober`."""

    def trace_interval(self, asked: float) -> float:
        """Return the seconds between two probes of a trace that links bear."""

    async def trace(self, streams: Sequence[Stream], count: int, interval: float) -> list[Traced]:
        """Send probes on paths, in turn, and return what became of each; `TraceError` if it cannot."""


class Tracer:
    """The traces of one interface: one at a time, which ends with the channel.

    Args:
        prober: None if the agent sends no probes.
    """

    def __init__(self, prober: Tracing | None = None) -> None:
        self.prober = prober
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def follow(self, request: TraceRequest, send: Send) -> None:
        """Begin a trace, in place of one before, or end it; ``send``, which may fail by `OSError`, sends the answers."""
        if not request.cancel:
            self.end()
            self._number = request.number
            self._task = asyncio.create_task(self._trace(request, send))
        elif request.number == self._number:
            self.end()

    def end(self) -> None:
        """End what is running, such as when the channel is lost."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _trace(self, request: TraceRequest, send: Send) -> None:
        places = {stream: place for place, stream in enumerate(request.streams)}
        left = request.count * len(request.streams)
        try:
            if self.prober is None:
                raise TraceError("it sends no probes")
            interval = self.prober.trace_interval(request.interval_ms / 1000)
            for streams, probes in parts(request, interval):
                fates = await self.prober.trace(streams, probes, interval)
                left -= len(streams) * probes
                outcomes = [Outcome(places[trace.stream], _fate(trace), trace.delay_ns) for trace in fates]
                for answer in messages.trace_answers(request.number, outcomes, done=not left):
                    await send(messages.encode(answer))
        except TraceError as error:
            [answer] = messages.trace_answers(request.number, (), done=True, problem=str(error))
            with contextlib.suppress(OSError):
                await send(messages.encode(answer))
        except OSError as error:
            LOG.info("trace %d ends: its answers cannot be sent: %s", request.number, error)


def parts(request: TraceRequest, interval: float) -> Iterator[tuple[Sequence[Stream], int]]:
    """Yield streams and probes of each for the parts of a trace, none of which lasts much longer than `PART_SECONDS`."""
    at_once = max(1, int(PART_SECONDS / interval + 1e-6))
    rounds = min(request.count, max(1, at_once // len(request.streams)))
    for first in range(0, request.count, rounds):
        probes = min(rounds, request.count - first)
        for at in range(0, len(request.streams), at_once):
            yield request.streams[at : at + at_once], probes


def _fate(trace: Traced) -> int:
    if trace.came_back:
        return BACK
    return LOST if trace.lost_out is None else LOST_OUT if trace.lost_out else LOST_BACK
