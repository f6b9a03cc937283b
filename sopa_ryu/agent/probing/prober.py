"""The prober of one interface: sends probes, takes what comes back, tells those who judge paths, and reports.

A task that wakes as rarely as it can: each time it takes the answers that have come in meanwhile, decides about probes whose
deadline is over, and sends what is due, at most one probe of each stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import NamedTuple, NoReturn

from sopa_ryu.agent.probing.fate import Judge
from sopa_ryu.channel.probes import Assignment, Report, Stream


class Traced(NamedTuple):
    """What became of one probe of a trace.

    Attributes
    ----------
    stream : Stream
    number : int
        The probe's in its stream, from 0.
    came_back : bool
    lost_out : bool or None
        Of a lost one: True on the way out, False on the way back, None if it is not known.
    delay_ns : int
        There and back in nanoseconds, without the time in the other host; 0 of a lost one.
    """

    stream: Stream
    number: int
    came_back: bool
    lost_out: bool | None
    delay_ns: int


class TraceError(RuntimeError):
    """A trace that cannot be made now; the message says why."""


def nothing_busy(now: float) -> Sequence[Stream]:
    """Return the streams to probe besides the assignment: none."""
    return ()


class Prober:
    """The prober of one interface, whose program is loaded.

    Parameters
    ----------
    address : IPv4Address
        The host's.

    Attributes
    ----------
    judges : list of Judge
        Who is told each fate; may be added to at any time.
    busy : callable
        Called with the monotonic time in seconds at each wake, which it must not delay: the streams to probe besides the assignment, in
        turn, at what is left of the rate. May be set at any time.
    """

    def __init__(self, address: IPv4Address) -> None:
        self.address = address
        self.judges: list[Judge] = []
        self.busy: Callable[[float], Sequence[Stream]] = nothing_busy

    def follow(self, assignment: Assignment) -> None:
        """Probe these streams from now on."""
        raise NotImplementedError

    def answering(self, pod: int, edge: int) -> tuple[IPv4Address, ...]:
        """Return the hosts of a rack that answer probes: those of the assignment, and any that has answered."""
        raise NotImplementedError

    def report(self) -> Report:
        """Return what has been decided since the last report."""
        raise NotImplementedError

    async def trace(self, streams: Sequence[Stream], count: int, interval: float) -> list[Traced]:
        """Send probes on paths, in turn; return what became of each, in the order of sending.

        Parameters
        ----------
        streams : sequence of Stream
        count : int
            Probes of each stream.
        interval : float
            Seconds from one probe to the next, of all streams together.

        Raises
        ------
        TraceError
            If another trace is running, or no probe can be sent.
        """
        raise NotImplementedError

    async def run(self) -> NoReturn:
        """Probe until cancelled."""
        while True:
            await asyncio.sleep(1.0)
