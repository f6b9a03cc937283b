"""How many packets of a burst share a label: what `--segments auto` decides. Pure; docs/hosts.md has the measurements."""

from __future__ import annotations

AUTO = 0
"""In place of a number of packets: let the link's speed decide."""
MAX_SEGMENTS = 44
"""As many packets of 1,500 bytes as TCP hands over at once (64 KB)."""
MAX_MBIT_BY_PACKET = 25_000
"""Two processors' worth of packets, each with its own label."""


def segments_for(mbit: int | None) -> int:
    """Return the packets of a burst that should share a label on a link of that speed in Mbit/s; 1 if it is not known.

    Bursts collide in the fabric's queues, nearly as much from 4 packets on as with 44; and few packets spare the host little.

    Examples
    --------
    >>> [segments_for(mbit) for mbit in (None, 1_000, 10_000, 25_000, 40_000, 100_000)]
    [1, 1, 1, 1, 44, 44]
    """
    return 1 if mbit is None or mbit <= MAX_MBIT_BY_PACKET else MAX_SEGMENTS
