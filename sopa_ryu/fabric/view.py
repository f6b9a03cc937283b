"""The fabric's versions as agents and switches follow them: the state, the difference between two, and who lacks one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from topologies import Failures


class View(NamedTuple):
    """A version of the fabric: the controller's epoch, the version, and the failures.

    In a cluster the epoch is the leader's term, which only rises, and ``cluster`` is the cluster's name; it is empty without one.
    """

    epoch: int
    version: int
    failures: Failures
    cluster: str = ""


def changes(before: Failures, after: Failures) -> tuple[dict[str, str], list[str]]:
    """Return what has failed, or has another reason than before, and what has healed."""
    failed = {name: reason for name, reason in after.items() if before.get(name) != reason}
    return failed, [name for name in before if name not in after]


class VersionTracker:
    """Counts for every version the followers that have not confirmed it yet.

    ``done`` is called with each version that every follower has confirmed, or that has no follower left.
    """

    def __init__(self, done: Callable[[int], None]) -> None:
        self._done = done
        self._waiting: dict[int, set[Hashable]] = {}

    def begin(self, version: int, followers: Iterable[Hashable]) -> int:
        """Note that a version is on its way to followers; return how many they are.

        Versions rise. A version that does not is of another count, whose versions nobody will confirm any more.
        """
        for former in [waited for waited in self._waiting if waited >= version]:
            del self._waiting[former]
        waiting = set(followers)
        if waiting:
            self._waiting[version] = waiting
        return len(waiting)

    def reached(self, follower: Hashable, version: int) -> None:
        """Note that a follower has confirmed a version, and with it every earlier one."""
        self._strike(follower, [waited for waited in self._waiting if waited <= version])

    def left(self, follower: Hashable) -> None:
        """Note that a follower is gone."""
        self._strike(follower, list(self._waiting))

    def _strike(self, follower: Hashable, versions: list[int]) -> None:
        for version in versions:
            self._waiting[version].discard(follower)
            if not self._waiting[version]:
                del self._waiting[version]
                self._done(version)
