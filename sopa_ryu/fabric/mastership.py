"""Which controller is the master of a switch, this one or another: claims, generation ids and role checks. Pure.

A switch refuses the claim of a controller whose id is behind the latest that it knows (OpenFlow 1.3, section 6.3.4). The ids are
numbers of 64 bits that wrap around: one is ahead of another if the distance to it is less than half of all numbers.

What one switch says of ids and masters concerns that switch. It concerns all if most switches say so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from sopa_ryu.fabric.messages import SwitchConnection
from sopa_ryu.fabric.pacing import Pacer
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import ANOTHER_MASTER, AnotherMasterError, SwitchError, SwitchPhase, SwitchSession
from topologies import Switch

LOG = logging.getLogger("sopa")

_NUMBERS = 1 << 64
MAX_AHEAD_MS = 3_600_000
"""An id is a time in milliseconds since 1970: another controller's clock may be so far ahead of this one's."""
ROLE_CHECK_SECONDS = 5.0
ROLE_CHECKS_PER_SECOND = 200
"""A round of a large fabric takes as long as it takes at this rate: one switch with another master has all others asked."""
MASTERED = frozenset({SwitchPhase.READING, SwitchPhase.WAITING, SwitchPhase.INSTALLING, SwitchPhase.IN_FORCE, SwitchPhase.UPDATING})
"""Phases of a switch whose master this controller is, as far as it knows."""


class Generation:
    """The id that switches are claimed with, first the epoch: of two controllers the one that was started later is the master.

    >>> own = Generation(7)
    >>> own.is_behind(7), own.is_behind(8), own.is_behind((1 << 64) - 1)
    (False, True, False)
    >>> own.exceed(8)
    >>> own.number
    9
    >>> last = Generation((1 << 64) - 2)
    >>> last.exceed((1 << 64) - 1)
    >>> last.number
    0
    """

    def __init__(self, first: int) -> None:
        self.number = first % _NUMBERS

    def is_behind(self, theirs: int) -> bool:
        """Tell whether a switch that knows an id refuses this one."""
        return self.ahead(theirs) > 0

    def ahead(self, theirs: int) -> int:
        """Return the signed distance to an id: negative if it is behind."""
        return (theirs - self.number + _NUMBERS // 2) % _NUMBERS - _NUMBERS // 2

    def exceed(self, theirs: int) -> None:
        """Continue after an id that a switch knows."""
        if self.is_behind(theirs):
            self.number = (theirs + 1) % _NUMBERS


class Mastership:
    """The switches that are this controller's, and the connected ones that are another's (`mastered_elsewhere`).

    ``known`` are the generation ids that the connected switches knew.
    """

    def __init__(self, state: FabricState, sessions: Mapping[Switch, SwitchSession], generation: Generation) -> None:
        self.state = state
        self.generation = generation
        self.mastered_elsewhere: dict[Switch, SwitchConnection] = {}
        self.known: dict[Switch, int] = {}
        self._sessions = sessions
        self._others_asked: set[Switch] = set()
        self._role_checks = Pacer[Switch](ROLE_CHECK_SECONDS)

    @property
    def is_deposed(self) -> bool:
        """Whether another controller is the master of more switches than this one."""
        mastered = sum(session.phase in MASTERED for session in self._sessions.values()) if self.mastered_elsewhere else 0
        return len(self.mastered_elsewhere) > mastered

    @property
    def is_outranked(self) -> bool:
        """Whether another controller is the master of most switches of the fabric."""
        return 2 * len(self.mastered_elsewhere) > self.state.tree.switch_count

    def leave(self, connection: SwitchConnection) -> list[Switch]:
        """Forget a closed connection; return its switches whose master was another controller."""
        switches = [switch for switch, known_by in self.mastered_elsewhere.items() if known_by is connection]
        for switch in switches:
            del self.mastered_elsewhere[switch]
        return switches

    def weigh(self, session: SwitchSession) -> list[SwitchSession]:
        """Compare the generation id that a switch knows with the own one; return the switches that its claim has to wait for.

        One that is ahead is of a controller that was started later, or of an earlier one whose clock was ahead. In the first case
        other switches are that controller's, too: they are asked first. In the second the own id continues after it.
        `AnotherMasterError` if another controller has switches already, `SwitchError` if the id does not count.
        """
        theirs = self.counted(session)
        if theirs is None:
            return []
        if self.mastered_elsewhere:
            raise AnotherMasterError(ANOTHER_MASTER)
        if self.state.settled and session.switch not in self._others_asked:
            asked = self.ask_others(session)
            if asked:
                self._others_asked.add(session.switch)
                return asked
        self._others_asked.discard(session.switch)
        self.generation.exceed(theirs)
        LOG.warning(
            "switch %s knows generation id %d, which is ahead of this controller's. The controller goes on with %d. Check this "
            "machine's clock",
            session.name,
            theirs,
            self.generation.number,
        )
        return []

    def counted(self, session: SwitchSession) -> int | None:
        """Return the generation id that a switch knows if it is ahead of the own one; None if it is not.

        `SwitchError` if it does not count: it is further ahead than another controller's clock can be, and most switches of the
        fabric, connected or not, do not know one like it.
        """
        theirs = session.generation
        if theirs is None:
            self.known.pop(session.switch, None)
            return None
        self.known[session.switch] = theirs
        if not self.generation.is_behind(theirs):
            return None
        ahead = sorted(map(self.generation.ahead, self.known.values()), reverse=True)
        most = self.state.tree.switch_count // 2
        usual = max(self.generation.ahead(time.time_ns() // 1_000_000), ahead[most] if most < len(ahead) else 0)
        if self.generation.ahead(theirs) > usual + MAX_AHEAD_MS:
            raise SwitchError(
                f"it knows generation id {theirs}, which no clock explains and most switches do not know: this controller cannot "
                "be its master. Restart ovs-vswitchd there. If most switches say so, check this machine's clock"
            )
        return theirs

    def ask_others(self, but: SwitchSession) -> list[SwitchSession]:
        """Have the other switches asked for this controller's role there; return them."""
        others = [other for other in self._sessions.values() if other is not but and other.phase is SwitchPhase.IN_FORCE]
        for other in others:
            other.check_role()
        return others

    def tick(self, now: float) -> SwitchSession | None:
        """Return the switch that has to be asked for this controller's role there now, if there is one."""
        self._role_checks.interval = max(ROLE_CHECK_SECONDS, len(self._sessions) / ROLE_CHECKS_PER_SECOND)
        switch = self._role_checks.due(self._sessions.keys(), now)
        if switch is None or self._sessions[switch].phase is not SwitchPhase.IN_FORCE:
            return None
        self._sessions[switch].check_role()
        return self._sessions[switch]

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do, in monotonic seconds."""
        return self._role_checks.at
