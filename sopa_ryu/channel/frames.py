"""What the servers of WebSockets (RFC 6455) have in common, on eventlet and on asyncio: bounds, close codes, frames. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from websockets.frames import CloseCode, Frame, Opcode

LEAVES = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, 4000)
"""The close codes of a peer that means to go; others say that something is wrong (RFC 6455, section 7.4)."""
PARSE_BYTES = 512
"""So much is parsed without a turn for others: 85 frames, the shortest that there are, take a millisecond."""
CLOSE_SECONDS = 2.0
"""How long a close or a pong may take; a peer that does not read it has gone."""
FRAMES_AT_ONCE = 16
"""After so many frames, others have their turn."""


class Pace(NamedTuple):
    """How many frames are read from one connection.

    Attributes:
        burst: So many without a pause.
        rate: So many a second afterwards.
    """

    burst: int
    rate: float


AGENT_PACE = Pace(burst=1024, rate=256.0)
"""An agent answers each message with one, and reports once a second; there are less than a hundred versions a second."""


@lru_cache(maxsize=4)
def text_frame(text: str) -> bytes:
    """Return the frame of a message; all agents that are sent the same delta share it."""
    return bytes(Frame(Opcode.TEXT, text.encode()).serialize(mask=False))
