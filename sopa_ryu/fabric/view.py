"""What agents know of the fabric, and the difference between two versions of it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from topologies import Failures


class View(NamedTuple):
    """What an agent knows of the fabric: the controller's epoch, the version, and what has failed."""

    epoch: int
    version: int
    failures: Failures


def changes(before: Failures, after: Failures) -> tuple[dict[str, str], list[str]]:
    """What has failed, or for another reason than before, and what has healed."""
    failed = {name: reason for name, reason in after.items() if before.get(name) != reason}
    return failed, [name for name in before if name not in after]
