"""Events: what is kept of everything that happens to the fabric. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from sopa_ryu.runtime.foreign_text import printable
from topologies import Failures, Reason
from topologies.aliases import NONE, Aliases

MAX_TEXT = 240
"""Characters of a cause or an actor."""


class EventKind(StrEnum):
    """What an event is, as REST, the command line and the journal name it."""

    STARTED = "started"
    STOPPED = "stopped"
    FAILED = "failed"
    HEALED = "healed"
    SUSPECT = "suspect"
    CLEARED = "cleared"
    """A link loses packets; it loses no more."""
    DRAINED = "drained"
    RESTORED = "restored"
    CONNECTED = "switch connected"
    LOST = "switch lost"
    AGENT = "agent connected"
    AGENT_LEFT = "agent left"
    LEADER = "leader"
    REFUSED = "refused"
    LEFT_OUT = "left out"
    """Events could not be kept: the disk was full for too long."""


OF_PEERS = frozenset({EventKind.CONNECTED, EventKind.LOST, EventKind.AGENT, EventKind.AGENT_LEFT, EventKind.REFUSED})
"""What a peer can repeat at will. Failures are held down, and drains need a token."""


class Event(NamedTuple):
    """One thing that has happened. ``at`` is in seconds since 1970; ``element`` is a switch, link or host."""

    at: float
    kind: EventKind
    element: str | None = None
    cause: str | None = None
    actor: str | None = None
    """Who has done it: a token's name and its client's address, an agent's address, a member of the cluster."""
    version: int | None = None

    def bounded(self) -> Event:
        """Return it with texts that are safe to print, of bounded length."""
        cause, actor = (text and printable(text, MAX_TEXT) for text in (self.cause, self.actor))
        return self._replace(cause=cause, actor=actor)


def told(number: int, event: Event, aliases: Aliases = NONE) -> dict[str, Any]:
    """Return an event as REST and the journal have it."""
    body = {"id": number, **event._asdict(), "at": round(event.at, 3), "kind": str(event.kind)}
    return body | aliases.beside(event.element or "")


Note = Callable[[Iterable[Event]], None]
"""Has events kept. It returns at once; what it is given is iterated later."""


def ignored(_events: Iterable[Event]) -> None:
    """Keep no events."""


def of_version(at: float, version: int, before: Failures, after: Failures) -> Iterator[Event]:
    """Yield what failed and healed with a version, but for drains and their ends, which have events of their own.

    >>> from topologies import FatTree
    >>> was = Failures(FatTree(4), {"a0_0-c0_1": "down", "c0_0": "silent"})
    >>> now = Failures(FatTree(4), {"c0_0": "drained", "a0_0": "down"})
    >>> [(event.kind.value, event.element, event.cause) for event in of_version(0.0, 7, was, now)]
    [('failed', 'a0_0', 'down'), ('healed', 'c0_0', 'silent; still drained'), ('healed', 'a0_0-c0_1', 'down')]
    """
    for name, reason in after.items():
        was = before.get(name)
        if reason == was or (reason == Reason.DRAINED and was is None):
            continue
        if reason == Reason.DRAINED:
            yield Event(at, EventKind.HEALED, name, f"{was}; still drained", version=version)
        else:
            yield Event(at, EventKind.FAILED, name, reason if was is None else f"{reason}; was {was}", version=version)
    for name in before:
        if name not in after and before[name] != Reason.DRAINED:
            yield Event(at, EventKind.HEALED, name, before[name], version=version)
