"""Flap damping: an element that fails is excluded immediately, one that comes back is used again only after a while. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Element = TypeVar("Element", bound=Hashable)


@dataclass
class HoldDown(Generic[Element]):
    """How long each link or switch that has come back stays excluded.

    The first time it is ``seconds``; each further failure before the element has been in use for ``longest`` seconds doubles it,
    up to ``longest`` (as the maximum suppress time of RFC 2439, section 4.2, bounds what a flapping route can cost).
    """

    seconds: float
    """The first hold-down; 0 for none at all."""
    longest: float
    """The longest one, in seconds."""
    _flaps: dict[Element, int] = field(default_factory=dict)
    _released: dict[Element, float] = field(default_factory=dict)

    def failed(self, element: Element, now: float) -> None:
        """Note that an element has failed."""
        released = self._released.get(element)
        if element in self._flaps and (released is None or now - released < self.longest):
            self._flaps[element] += 1
        else:
            self._flaps[element] = 0
        self._released.pop(element, None)

    def back(self, element: Element, now: float) -> float:
        """Return until when an element that has come back just now stays excluded."""
        # 2^32 times anything is beyond every bound
        until = now + min(self.longest, self.seconds * (1 << min(32, self._flaps.get(element, 0))))
        self._released[element] = until
        return until

    def forget_old(self, now: float) -> None:
        """Forget elements that have been in use for the longest hold-down."""
        for element in [element for element, released in self._released.items() if now - released >= self.longest]:
            del self._released[element]
            self._flaps.pop(element, None)
