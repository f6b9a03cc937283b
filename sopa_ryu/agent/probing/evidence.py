"""What path health knows of a section or a stream, and how probable it is by chance. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from sopa_ryu.agent.paths.avoided import Section, WayTo
from sopa_ryu.agent.probing.loss_window import Target

MIN_LOSS = 0.01
"""The share of losses that a fabric may have without any path being dead: three in a row are less probable than `CHANCE` then."""
MAX_LUCK = 0.02
"""The probability at most that chance has put all losses of that time in one section: where others come through, too, it is this
host that is ill."""
USUAL_SECONDS = 2.0
"""The time over which the usual share of losses is taken."""
ENOUGH, MAX_ENOUGH, TOLD_ENOUGH = 20, 1000, 5
"""Probes in a row that have come through a dead section, a lossy one at most, and one that a router has said to be gone, when it is
put back."""


@dataclass
class LossRun:
    """Losses in a section since a probe has come through it."""

    since: float
    passed: int
    missed: int
    """Probes that had come through anywhere, and were lost, by then."""
    counted: int = 0
    """Its losses among those of `missed`."""
    ways: set[WayTo] = field(default_factory=set)
    weights: dict[IPv4Address, float] = field(default_factory=dict)
    """By the host that they went to."""


@dataclass
class Probed:
    """A stream that was probed, and when its last fate was known."""

    target: Target
    sections: tuple[Section, ...]
    at: float = 0.0


@dataclass(slots=True)
class Queue:
    """What is known of the queues on a path: its last delay, when that was crowded, and until when losses are of one burst."""

    delay: float = 0.0
    crowded_at: float = -math.inf
    burst_ends: float = -math.inf


class Usual:
    """The usual share of losses, with a memory of `USUAL_SECONDS`."""

    def __init__(self) -> None:
        self._at = 0.0
        self._passed = self._lost = 0.0

    def note(self, lost: bool, now: float) -> None:
        """Note a probe."""
        fade = math.exp((self._at - now) / USUAL_SECONDS)
        self._at = now
        self._passed, self._lost = self._passed * fade + (not lost), self._lost * fade + lost

    def share(self, without: int) -> float:
        """Return it, with so many losses less, and `MIN_LOSS` at least."""
        lost = max(0.0, self._lost - without)
        return max(MIN_LOSS, lost / (lost + self._passed)) if lost else MIN_LOSS


@dataclass
class Left:
    """A section that is avoided."""

    share: float
    """1 of a dead one."""
    at: float
    hold: float
    heard: float
    told: bool = False
    """By a router, whose word was no chance."""
    rows: dict[IPv4Address, tuple[int, float]] = field(default_factory=dict)
    """Probes in a row that have come through to a host, and when the first of them did. A host may lie about losses, but cannot
    answer what has not arrived: what one loses ends no other's row."""

    @property
    def through(self) -> int:
        """All that have come through since their host's last loss."""
        return sum(count for count, _ in self.rows.values())

    def is_good(self, now: float) -> bool:
        """Tell whether enough have come through, for as long as it was left."""
        return self.through >= self.enough and now - min(since for _, since in self.rows.values()) >= self.hold

    @property
    def dead(self) -> bool:
        return self.share >= 1

    @property
    def enough(self) -> int:
        if self.told:
            return TOLD_ENOUGH
        return ENOUGH if self.dead else min(MAX_ENOUGH, max(ENOUGH, math.ceil(3 / self.share)))


def luck(row: int, passed: int, missed: int) -> float:
    """Return the probability that all of ``row`` probes are among the lost ones, if each is as likely to be as the others.

    Args:
        row: Probes that are all lost.
        passed, missed: Of the others meanwhile.

    References:
        Fisher: The Design of Experiments, 1935, section 6 (the exact test).

    >>> luck(3, 6, 0) <= MAX_LUCK < luck(3, 4, 0)
    True
    >>> luck(20, 0, 0)
    1.0
    """
    return math.prod((missed + row - n) / (missed + row + passed - n) for n in range(row))
