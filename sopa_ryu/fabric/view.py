"""The state of the fabric as agents have it, and the difference between two versions. Pure."""

from __future__ import annotations

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
