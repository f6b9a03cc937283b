"""Who has yet to follow a version of the fabric. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable


class VersionTracker:
    """Counts, for every version that is on its way, who has not followed yet.

    Parameters
    ----------
    done : callable
        Told each version that everybody who had to has followed, or left.
    """

    def __init__(self, done: Callable[[int], None]) -> None:
        self._done = done
        self._waiting: dict[int, set[Hashable]] = {}

    def begin(self, version: int, everybody: Iterable[Hashable]) -> int:
        """A version is on its way to these; how many they are."""
        waiting = set(everybody)
        if waiting:
            self._waiting[version] = waiting
        return len(waiting)

    def reached(self, who: Hashable, version: int) -> None:
        """Somebody has followed that version, and with it every earlier one."""
        self._strike(who, [waited for waited in self._waiting if waited <= version])

    def left(self, who: Hashable) -> None:
        """Somebody is no longer there to be waited for."""
        self._strike(who, list(self._waiting))

    def _strike(self, who: Hashable, versions: list[int]) -> None:
        for version in versions:
            self._waiting[version].discard(who)
        self._complete(versions)

    def _complete(self, versions: list[int]) -> None:
        for version in versions:
            if not self._waiting[version]:
                del self._waiting[version]
                self._done(version)
