"""Flap damping: what fails is avoided at once, what comes back is trusted again only after a while. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class HoldDown:
    """How long each link or switch that has come back stays out of use.

    The first time it is ``seconds``; each further failure before the element has been in use for ``longest`` seconds doubles it,
    up to ``longest`` (as the maximum suppress time of RFC 2439, section 4.2, bounds what a flapping route can cost).

    Parameters
    ----------
    seconds : float
        The first hold-down; 0 for none at all.
    longest : float
        The longest one, in seconds.
    """

    seconds: float
    longest: float
    _flaps: dict[str, int] = field(default_factory=dict)
    _released: dict[str, float] = field(default_factory=dict)

    def failed(self, name: str, now: float) -> None:
        """Note that an element has failed."""
        released = self._released.get(name)
        if name in self._flaps and (released is None or now - released < self.longest):
            self._flaps[name] += 1
        else:
            self._flaps[name] = 0
        self._released.pop(name, None)

    def back(self, name: str, now: float) -> float:
        """Until when an element that has come back just now stays out of use."""
        # 2^32 times anything is beyond every bound
        until = now + min(self.longest, self.seconds * (1 << min(32, self._flaps.get(name, 0))))
        self._released[name] = until
        return until

    def forget_old(self, now: float) -> None:
        """Drop what has been in use long enough to be as good as new."""
        for name in [name for name, released in self._released.items() if now - released >= self.longest]:
            del self._released[name]
            self._flaps.pop(name, None)
