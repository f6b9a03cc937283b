"""What an agent reports of its streams, once a second. Pure."""

from __future__ import annotations

from msgspec import UNSET

from sopa_ryu.agent.probing.streams import Streams, Tally
from sopa_ryu.channel.messages import MAX_STREAMS, Report, packed


def report(streams: Streams, number: int, dropped: int, now_ns: int, left: tuple[str, ...] = ()) -> Report:
    """Return what has been decided since the last report, which is counted anew from now on.

    Streams for which there is no room are in the next one. Those of a trace are not reported.

    Args:
        number: The assignment's.
        dropped: Packets that the host itself has dropped meanwhile.
        now_ns: Its monotonic clock.
        left: The links that it has left now.
    """
    streams.settle(now_ns)
    told = [state for state in streams.reported() if state.tally.probes]
    told.sort(key=lambda state: state.told)
    found = []
    for state in told[:MAX_STREAMS]:
        found.append(state.tally.counts(state.stream, now_ns))
        state.tally, state.told = Tally(), now_ns
    return Report(number, packed(found), dropped, left or UNSET)
