"""Whether a member leads, may command, or campaigns: its lease, its term and the clock. Pure.

Times are seconds of a clock that goes on while the process or the machine stands still (`CLOCK_BOOTTIME`), unlike those of the
core.
"""

from __future__ import annotations

import math

from sopa_ryu.channel.messages import MAX_NUMBER

MARGIN = 0.1
"""A leader stops so much of its lease before the engine may give it to another: for what is on its way."""
RENEWALS = 4
"""So often is a lease renewed in its time."""
CUT_OFF_SECONDS = 3.0
"""A leader that has had fewer than half of another member's switches for so long leaves the leadership to that one."""
REST_LEASES = 5
"""So many leases does a member that was asked to step down not campaign for."""


class Candidacy:
    """One member's lease and leadership.

    Attributes:
        lease: The engine's id of the lease that holds the member's keys; 0 without one.
        term: Of the own leadership; 0 while this member does not lead.
        created: The revision at which the own leadership began, which each of its writes is fenced by.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lease = 0
        self.term = 0
        self.created = 0
        self._leads_by = 0
        self._seconds = 0.0
        self._until = -math.inf
        self._rests_until = -math.inf
        self._cut_off_since: float | None = None

    # -- the lease ----------------------------------------------------------------------------------------------------

    def granted(self, lease: int, seconds: float, sent: float) -> None:
        """Note a new lease, which was asked for at a time; a leadership under another one is over."""
        self.lease, self._seconds, self._until = lease, seconds, -math.inf
        self.renewed(sent)

    def renewed(self, sent: float) -> None:
        """Note that the engine has renewed the lease; the time counts from when that was asked for."""
        self._until = max(self._until, sent + self._seconds * (1 - MARGIN))

    def lost(self) -> None:
        """Note that the engine does not have the lease any more."""
        self.lease, self._until = 0, -math.inf

    @property
    def renewal_seconds(self) -> float:
        """Seconds from one renewal of the lease to the next."""
        return self._seconds / RENEWALS

    def has_lease(self, now: float) -> bool:
        """Tell whether the engine still has the lease, for sure."""
        return self.lease != 0 and now < self._until

    # -- the leadership -----------------------------------------------------------------------------------------------

    def may_lead(self, now: float) -> bool:
        """Tell whether this member may begin to lead if the engine names it.

        With less of its lease left than passes between two renewals it waits for the next: it would lose the leadership at once.
        """
        return not self.term and self.has_lease(now + self.renewal_seconds)

    def may_campaign(self, now: float) -> bool:
        """Tell whether this member may become the leader if there is none."""
        return self.may_lead(now) and now >= self._rests_until

    def lead(self, term: int, created: int) -> None:
        """Note that the engine names this member as the leader, under its present lease."""
        self.term, self.created, self._leads_by = term, created, self.lease

    def stand_by(self) -> None:
        self.term = self.created = 0
        self._cut_off_since = None

    def is_cut_off(self, own: int, best: int, now: float) -> bool:
        """Tell whether a leader with ``own`` switches should leave the leadership to a standby, of which one has ``best``."""
        if 2 * own >= best:
            self._cut_off_since = None
            return False
        if self._cut_off_since is None:
            self._cut_off_since = now
        return now - self._cut_off_since >= CUT_OFF_SECONDS

    def rest(self, now: float) -> None:
        """Leave the leadership to others for a while."""
        self._rests_until = now + REST_LEASES * self._seconds

    def may_command(self, now: float) -> bool:
        """Tell whether what this member sends is the leader's."""
        return self.term != 0 and self.lease == self._leads_by and self.has_lease(now)

    @staticmethod
    def next_term(last: int, milliseconds: int, generation: int) -> int:
        """Return the next leadership's term: above the last (0: none is known) and above all generation ids known of switches.

        ``milliseconds`` are since 1970, by this machine's clock.

        What would lead to a number that no member could read (`records.Term`) is left out.

        >>> Candidacy.next_term(0, 1000, 0), Candidacy.next_term(2000, 1000, 0), Candidacy.next_term(2000, 1000, 3000)
        (1000, 2001, 3001)
        >>> Candidacy.next_term((1 << 63) - 1, 1000, 1 << 63)
        1000
        """
        return max(milliseconds, *(number + 1 if number < MAX_NUMBER else 0 for number in (last, generation)))
