"""How long the engine may take for a write. Pure."""

from __future__ import annotations

FIRST_SECONDS, LAST_SECONDS = 1.0, 8.0
SLOW_SECONDS = 0.5
"""A version that has waited for the engine for so long is worth a warning: a failure is to be known to all by then."""


class Patience:
    """The time that one node of the engine has for a write: twice as long after each that did not end in time.

    A node that has stopped is left for the next one; an engine whose disks are slow needs more time.

    Attributes:
        seconds: For the next write.
    """

    def __init__(self) -> None:
        self.seconds = FIRST_SECONDS

    def late(self) -> None:
        """Note that a write did not end in time.

        >>> patience = Patience()
        >>> patience.late(), patience.late(), patience.seconds
        (None, None, 4.0)
        """
        self.seconds = min(2 * self.seconds, LAST_SECONDS)

    def took(self, seconds: float) -> None:
        """Note how long a write took that was done."""
        self.seconds = min(max(FIRST_SECONDS, 2 * seconds), LAST_SECONDS)
