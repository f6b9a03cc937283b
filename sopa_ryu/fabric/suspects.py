"""What follows from a suspect link: a line in the log, an event, and by policy a drain, within bounds. Pure."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sopa_ryu.events.event import Event, EventKind, Note, ignored
from topologies import Clos, Failures, Level, Link, Switch

LOG = logging.getLogger("sopa.health")

SURE = 0.99
"""Certainty from which a link is taken out of use."""
CONFIRMED = 2
"""Evaluations in a row that have to agree before anything follows."""
MOST_DRAINED = 2
"""Links that are drained at once at most: more suspects at a time may have a cause that draining links does not remove."""
LOST_SIGHT = 3
"""Evaluations without a suspect before it is said to be good again."""


class SuspectPolicy(StrEnum):
    """What happens to a suspect."""

    WARN = "warn"
    DRAIN = "drain"


class Suspected(NamedTuple):
    """What the estimator says of one direction of a link; ``down`` is None if the losses do not tell."""

    name: str
    down: bool | None
    loss: float
    confidence: float
    hosts: int

    @property
    def direction(self) -> str:
        """The direction in words."""
        return {True: "downwards", False: "upwards", None: "in a direction that is not known"}[self.down]


@dataclass
class _Known:
    suspect: Suspected
    seen: int = 1
    missed: int = 0
    told: bool = False
    is_drained: bool = False
    refused: str | None = None


class Caretaker:
    """Follows what the estimator says. ``note`` gets the events; it may be set at any time."""

    def __init__(self, tree: Clos, policy: SuspectPolicy) -> None:
        self.tree, self.policy = tree, policy
        self.taken = 0
        self.note: Note = ignored
        self._known: dict[tuple[str, bool | None], _Known] = {}
        self._drained: set[str] = set()

    def decide(self, suspects: list[Suspected], failures: Failures, whole: bool = True) -> list[str]:
        """Follow one evaluation; return the links that are to be drained.

        Unless it is ``whole``, it is of the last seconds alone, and of what it does not name nothing is known.
        """
        drain: list[str] = []
        self._note(suspects, whole)
        self._drained &= failures.keys()
        for record in self._known.values():
            name = record.suspect.name
            if record.seen < CONFIRMED or record.is_drained or name in failures:
                continue
            refused = self._refusal(record.suspect, failures)
            if refused is None:
                self.taken += 1
                drain.append(name)
                self._drained.add(name)
                record.is_drained = True
                failures = failures.with_failed(name)
            if not record.told:
                its = record.suspect
                what = f"loses {its.loss:.2%} {its.direction}; losses reported by {its.hosts} hosts"
                self.note((Event(time.time(), EventKind.SUSPECT, name, what),))
            if not record.told or record.refused != refused or record.is_drained:
                record.refused = refused
                record.told = True
                self._warn(record)
        return drain

    def action(self, name: str) -> str | None:
        """Return what was done with a link: ``drained``, or nothing."""
        return "drained" if name in self._drained else None

    def confirmed(self) -> list[Suspected]:
        """Return the suspects that several evaluations agree on."""
        return [known.suspect for known in self._known.values() if known.seen >= CONFIRMED]

    def _note(self, suspects: list[Suspected], whole: bool) -> None:
        present = {(suspect.name, suspect.down): suspect for suspect in suspects}
        for key, suspect in present.items():
            known = self._known.get(key)
            if known is None:
                self._known[key] = _Known(suspect)
            else:
                known.suspect, known.seen, known.missed = suspect, known.seen + 1, 0
        for key in [key for key in self._known if whole and key not in present]:
            known = self._known[key]
            known.missed += 1
            if known.seen < CONFIRMED or known.missed >= LOST_SIGHT:
                del self._known[key]
                if known.told and not known.is_drained:
                    what = f"loses no more packets {known.suspect.direction}"
                    LOG.info("link %s %s", known.suspect.name, what)
                    self.note((Event(time.time(), EventKind.CLEARED, known.suspect.name, what),))

    def _refusal(self, suspect: Suspected, failures: Failures) -> str | None:
        """Return why a suspect is not taken out of use; None if it is."""
        if self.policy is SuspectPolicy.WARN:
            return "it stays in use (--sopa-suspect warn)"
        if suspect.confidence < SURE:
            return f"it stays in use, below a certainty of {SURE:.0%}"
        if len(self._drained) >= MOST_DRAINED:
            return f"it stays in use, as {MOST_DRAINED} links are drained for losing packets already"
        return needed(self.tree, failures, suspect.name)

    def _warn(self, known: _Known) -> None:
        suspect = known.suspect
        LOG.warning(
            "link %s loses %s of the packets %s (certainty %s, losses reported by %d hosts): %s. Check its optics, cable and ports",
            suspect.name,
            f"{suspect.loss:.2%}",
            suspect.direction,
            certainty(suspect.confidence),
            suspect.hosts,
            f"it is drained until sopa restore {suspect.name}" if known.is_drained else known.refused,
        )


def certainty(value: float) -> str:
    """Return a probability as a text that never says that something is sure.

    >>> certainty(0.97312), certainty(0.9999999)
    ('97.3%', 'above 99.9%')
    """
    return "above 99.9%" if value > 0.999 else f"{math.floor(1000 * value) / 10:g}%"


def needed(tree: Clos, failures: Failures, name: str) -> str | None:
    """Return why a link between switches cannot be spared; None if it can."""
    link = tree.link_by_name(name)
    assert isinstance(link.lower, Switch)
    uplinks = len(tree.uplinks(link.lower))
    left = uplinks - len(failures.lost_uplinks(link.lower) - tree.absent_uplinks.get(link.lower, frozenset())) - 1
    if left < 1 or 2 * left < uplinks:
        return f"it stays in use, since {tree.name(link.lower)} would have only {left} of {uplinks} uplinks left"
    after = failures.with_failed(name)
    for edge in _racks_below(tree, link):
        before, now = failures.choices_from(edge), after.choices_from(edge)
        for rack, choices in before.items():
            if choices and not now[rack]:
                return f"it stays in use: without it there is no path between {tree.name(edge)} and {tree.name(rack)}"
    return None


def _racks_below(tree: Clos, link: Link) -> list[Switch]:
    assert isinstance(link.lower, Switch)
    if link.lower.level is Level.EDGE:
        return [link.lower]
    return list(tree.switches_of(Level.EDGE, link.lower.pod))
