"""What became of one probe: how the prober tells those who decide about paths. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sopa_ryu.channel.messages import Stream


class Fate(NamedTuple):
    """What became of one probe.

    Attributes:
        came_back: False if it, or its answer, is lost: decided by a deadline that follows the stream's own delays.
        lost_out: Of a lost one: True on the way out, False on the way back, None while no later answer has told.
        delay_ns: There and back in nanoseconds, without the time in the other host; 0 of a lost one.
        crowded: Whether the stream's delay was far above its smallest one at that time: a queue on the way was full.
    """

    stream: Stream
    came_back: bool
    lost_out: bool | None = None
    delay_ns: int = 0
    crowded: bool = False


class FateJudge(Protocol):
    """A receiver of fates, called when each is decided."""

    def decided(self, fate: Fate, now: float) -> None:
        """Note what became of a probe; ``now`` in monotonic seconds."""
