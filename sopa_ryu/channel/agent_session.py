"""One agent's session on the push channel, as the controller keeps it, and which sessions are pinged or cut off. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from sopa_ryu.channel.mcs import HostList, Variant
from sopa_ryu.fabric.view import View
from topologies import Host

ROUND_SECONDS = 1.0
PING_SECONDS = 10.0
PINGS_AT_ONCE, PINGS_A_SECOND = 8, 2000
CUT_SECONDS = 30.0
MAX_UNACKNOWLEDGED = 64
"""Versions of which the time of sending is kept: an agent that acknowledges none of so many is late since the first."""


class Phase(Enum):
    """State of a session's connection."""

    IDLE = auto()
    """Everything that was due has been written."""
    WRITING = auto()
    """Its writer writes what is due, or waits until the agent reads."""
    CLOSED = auto()
    """It is cut or the agent has left; nothing is sent or received any more."""


@dataclass(slots=True, eq=False)
class AgentSession:
    """One connected agent.

    Attributes:
        name: The host's.
        peer: The address that it connected from.
        first: The URL that comes first for its host, by its own account; empty if it is there.
        carrier: Where it writes the label, by its own account; None if it does not say.
        policy: Its policy, by its own account; None if it does not say.
        spray: Which flows it sprays, by its own account; None if it does not say.
        variant: The MCS that it runs; None if it does not.
        connection: What its messages are written to; opaque here.
        heard, pinged: When its last message arrived, and when it was last asked for one (monotonic seconds).
        ping_due: Whether the next message is a ping, if no version is due.
        sent: What was sent last; None if it needs a snapshot.
        acknowledged: The version that it acknowledged last; 0 before the first.
        acknowledged_ms: How long after it was sent that version was acknowledged.
        refused, refuses: Messages of the agent that were rejected here, and messages that it says it has rejected.
        mcs_sent: The list of hosts that run MCS that was sent last.
        mcs_sent_at: When that was.
        mcs_acknowledged: The number of the list that it acknowledged last.
        probes: Whether it probes paths and answers probes, by its own account.
        list_sent, list_reported: The number of the list of streams that was sent last, and of the one that it reported by last;
            0 before the first.
        reported_at, reports_left: When its last report came, and how many more are taken now.
        left: The links that its host has left, as its last report says.
    """

    host: Host
    name: str
    peer: str
    carrier: str | None
    connection: Any
    heard: float
    pinged: float
    first: str = ""
    spray: str | None = None
    phase: Phase = Phase.IDLE
    ping_due: bool = False
    sent: View | None = None
    acknowledged: int = 0
    acknowledged_ms: float | None = None
    refused: int = 0
    refuses: int = 0
    policy: str | None = None
    variant: Variant | None = None
    mcs_sent: HostList | None = None
    mcs_sent_at: float = 0.0
    mcs_acknowledged: int = 0
    probes: bool = False
    list_sent: int = 0
    list_reported: int = 0
    reported_at: float = 0.0
    reports_left: float = 1.0
    left: tuple[str, ...] = ()
    _sent_at: dict[int, float] = field(default_factory=dict)

    @property
    def traces(self) -> bool:
        """Whether it can be asked for traces, which are probes, too."""
        return self.probes

    def note_sent(self, view: View, now: float) -> None:
        """Record what is about to be written, and when."""
        self.sent = view
        if self._sent_at and next(reversed(self._sent_at)) >= view.version:
            # sent again, or a term that has begun at a lower version, as after a loss of the engine's data
            self._sent_at = {version: at for version, at in self._sent_at.items() if version < view.version}
        if len(self._sent_at) < MAX_UNACKNOWLEDGED:
            self._sent_at[view.version] = now

    def note_acknowledged(self, version: int, now: float) -> None:
        """Record an acknowledgement, which is one of every earlier version too."""
        self.acknowledged = version
        if version in self._sent_at:
            self.acknowledged_ms = round(1000 * (now - self._sent_at[version]), 3)
        for earlier in [sent for sent in self._sent_at if sent <= version]:
            del self._sent_at[earlier]

    def behind_since(self) -> float | None:
        """Return when the oldest version was sent that is not acknowledged; None if there is none."""
        return min(self._sent_at.values(), default=None)


class Silent(NamedTuple):
    """Sessions that have been silent.

    Attributes:
        pinged: For so long that they have to answer a ping.
        dead: Although they were pinged: they are cut off.
    """

    pinged: list[AgentSession]
    dead: list[AgentSession]


class Keepalive:
    """Rounds over all sessions.

    Pings are spread: thousands of agents that received a version at the same moment also fall silent at the same moment.

    Attributes:
        next_look: When `look` has something to do.
    """

    def __init__(self) -> None:
        self.next_look = 0.0
        self._unchecked: deque[AgentSession] = deque()

    def look(self, sessions: Iterable[AgentSession], now: float) -> Silent:
        """Go on with the round over all sessions until enough pings are due."""
        silent = Silent([], [])
        if now < self.next_look:
            return silent
        if not self._unchecked:
            self._unchecked.extend(sessions)
        while self._unchecked and len(silent.pinged) < PINGS_AT_ONCE:
            session = self._unchecked.popleft()
            if session.phase is Phase.CLOSED:
                continue
            if now - session.heard > CUT_SECONDS:
                silent.dead.append(session)
            elif now - max(session.heard, session.pinged) > PING_SECONDS:
                silent.pinged.append(session)
        self.next_look = now + (PINGS_AT_ONCE / PINGS_A_SECOND if self._unchecked else ROUND_SECONDS)
        return silent
