"""How many packets of a burst share a label: what `--segments auto` decides. Pure; docs/hosts.md has the measurements."""

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

    Examples
    --------
    >>> [segments_for(mbit) for mbit in (None, 1_000, 10_000, 25_000, 40_000, 100_000)]
    [1, 1, 1, 1, 16, 44]
    """
    if mbit is None:
        return 1
    return next((segments for limit, segments in _BY_SPEED if mbit <= limit), MAX_SEGMENTS)
