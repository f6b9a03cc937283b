"""Traces that the controller asks an agent for: sends their probes in parts, and answers after each part."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from sopa_ryu.agent.paths.flow_hash import FlowKey, flow_hash, scaled
from sopa_ryu.agent.paths.path_table import PathTable, Policy
from sopa_ryu.agent.probing.prober import Traced, TraceError
from sopa_ryu.channel import traces
from sopa_ryu.channel.probes import Stream
from sopa_ryu.channel.traces import BACK, LOST, LOST_BACK, LOST_OUT, Answer, Cancel, FlowLabels, Outcome, Request

LOG = logging.getLogger("sopa.agent")

PART_SECONDS = 1.0
"""How long the probes of one part are sent, about: the controller hears of a trace that often."""
Send = Callable[[str], Awaitable[None]]


class Tracing(Protocol):
    """What sends the probes: `Prober`."""

    async def trace(self, streams: Sequence[Stream], count: int, interval: float) -> list[Traced]:
        """Send probes on paths, in turn, and return what became of each; `TraceError` if it cannot."""


class Tracer:
    """The traces of one interface: one at a time, which ends with the channel.

    Parameters
    ----------
    prober : Tracing or None
        None if the agent sends no probes.
    """

    def __init__(self, prober: Tracing | None) -> None:
        self._prober = prober
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self, request: Request, send: Send, source: FlowKey | None = None) -> None:
        """Begin to send a trace's probes, in place of one before."""
        self.end()
        self._number = request.number
        self._task = asyncio.create_task(self._trace(request, send))

    def cancel(self, cancel: Cancel) -> None:
        """End a trace that is not wanted any more."""
        if cancel.number == self._number:
            self.end()

    def end(self) -> None:
        """End what is running, such as when the channel is lost."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _trace(self, request: Request, send: Send) -> None:
        places = {stream: place for place, stream in enumerate(request.streams)}
        left = request.probes * len(request.streams)
        try:
            for streams, probes in parts(request):
                if self._prober is None:
                    raise TraceError("it sends no probes")
                found = await self._prober.trace(streams, probes, request.interval_ms / 1000)
                left -= len(streams) * probes
                outcomes = [Outcome(places[its.stream], _fate(its), its.delay_ns) for its in found]
                for answer in traces.in_messages(request.number, outcomes, done=not left):
                    await send(traces.answer_text(answer))
        except TraceError as error:
            await send(traces.answer_text(Answer(request.number, done=True, problem=str(error))))


def parts(request: Request) -> Iterator[tuple[Sequence[Stream], int]]:
    """Yield streams and probes of each for the parts of a trace, none of which lasts much longer than `PART_SECONDS`."""
    at_once = max(1, int(PART_SECONDS * 1000 / request.interval_ms))
    rounds = min(request.probes, max(1, at_once // len(request.streams)))
    for first in range(0, request.probes, rounds):
        probes = min(rounds, request.probes - first)
        for at in range(0, len(request.streams), at_once):
            yield request.streams[at : at + at_once], probes


def _fate(its: Traced) -> int:
    if its.came_back:
        return BACK
    return LOST if its.lost_out is None else LOST_OUT if its.lost_out else LOST_BACK


def flow_labels(table: PathTable, key: FlowKey, policy_name: str) -> FlowLabels:
    """Return how an agent labels a flow's packets: by the table in force, from the flow's first packet on.

    Parameters
    ----------
    table : PathTable
    key : FlowKey
    policy_name : str
        The policy as on the command line: of MCS and CFR, which choose otherwise, it is not the table's.

    Examples
    --------
    >>> from topologies import Failures, FatTree
    >>> from sopa_ryu.agent.paths.path_sets import path_table
    >>> tree = FatTree(4)
    >>> table = path_table(tree, tree.host("h0_0_2"), Failures(tree), 1, Policy.ROUND_ROBIN)
    >>> flow_labels(table, FlowKey.of("10.0.0.2", "10.2.1.3", 6, 40000, 5001), "round-robin").labels
    ((0, 1), (1, 1), (0, 0), (1, 0))
    """
    candidates = table.candidates(key.daddr) or ()
    count = len(candidates)
    if not candidates or policy_name != table.policy.option_name or table.policy in _BY_LOAD:
        return FlowLabels(policy_name, count == 1, count == 1, tuple(dict.fromkeys(candidates)))
    if table.policy is Policy.HASH or count == 1:
        return FlowLabels(policy_name, True, 1, (candidates[scaled(flow_hash(key, table.seed), count)],))
    at_random = table.policy is Policy.RANDOM
    turns = min(count, traces.MAX_LABELS) if not at_random else traces.MAX_LABELS
    labels = [table.choose(key, n) for n in range(turns)]
    return FlowLabels(policy_name, True, 0 if at_random else count, tuple(label for label in labels if label))


_BY_LOAD = (Policy.LEAST_USED, Policy.FLOWLET, Policy.FLOWCELL)
"""Policies whose choices depend on the packets' sizes and times, or on other flows."""
