"""Which packets of a bad link are lost or corrupted: draws by a seed and the number of the packet, in the lab and in ns-3. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import IntEnum

_WORD = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_ONE = 2**32


class DrawKind(IntEnum):
    """What happens to a packet; the numbers are those of ``bad_link.c``."""

    LOSS = 0
    CORRUPTION = 1


def drawn(seed: int, number: int) -> int:
    """Return the draw of that number from the sequence of a seed, 64 bits: splitmix64, as the program computes it.

    >>> f"{drawn(1234567, 0):016x}"
    '599ed017fb08fc85'
    """
    z = (seed + (number + 1) * _GAMMA) & _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
    return z ^ z >> 31


def stream(seed: int, name: str, towards: str, kind: DrawKind) -> int:
    """Return the seed of a direction's sequence: the directions of all links differ, and both kinds."""
    text = f"{seed} {name} {towards} {kind.name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def threshold(probability: float) -> int:
    """Return the value below which the upper 32 bits of a draw hit. Raises ValueError if the probability is not from 0 to 1."""
    if not 0 <= probability <= 1:
        raise ValueError(f"a probability is from 0 to 1, not {probability:g}")
    return round(probability * _ONE)


def hits(seed: int, probability: float, first: int = 0) -> Iterator[int]:
    """Yield the numbers of the packets, from a first one on, that a fault with this `stream` hits, without end."""
    limit = threshold(probability)
    number = first
    while limit:
        if drawn(seed, number) >> 32 < limit:
            yield number
        number += 1
