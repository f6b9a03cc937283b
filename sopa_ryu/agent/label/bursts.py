"""How many packets of a burst share a label: what `--segments auto` and CFR decide. Pure; docs/hosts.md has the measurements."""

from __future__ import annotations

AUTO = 0
"""In place of a number of packets: let the link's speed decide."""
MAX_SEGMENTS = 44
"""As many packets of 1,500 bytes as TCP hands over at once (64 KB)."""
_BY_SPEED = ((25_000, 1), (50_000, 16))
"""Up to so many Mbit/s so many packets: what two processors send."""


def segments_for(mbit: int | None) -> int:
    """Return the packets of a burst that should share a label on a link of that speed in Mbit/s; 1 if it is not known.

    The fewest with which two processors fill the link: the longer a burst, the more it collides with others in the fabric.

    >>> [segments_for(mbit) for mbit in (None, 1_000, 10_000, 25_000, 40_000, 100_000)]
    [1, 1, 1, 1, 16, 44]
    """
    if mbit is None:
        return 1
    return next((segments for limit, segments in _BY_SPEED if mbit <= limit), MAX_SEGMENTS)


_FRAME_BYTES = 1514
_BURSTS_IN_SLOT = 8
"""What is left of a slot's budget when no further burst fits into it is half a burst: so many of them cost a sixteenth."""


def segments_in(budget: int) -> int:
    """Return the packets of a burst for slots of so many bytes of frames.

    >>> [segments_in(budget) for budget in (1514, 15_140, 121_120, 1_000_000)]
    [1, 1, 10, 44]
    """
    return min(MAX_SEGMENTS, max(1, budget // _FRAME_BYTES // _BURSTS_IN_SLOT))
