"""A member's lease, and its record under that lease: what says to the others that it is there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sopa_ryu.cluster import records
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.engine import Engine, EngineError, Kind
from sopa_ryu.cluster.gateway import Condition
from sopa_ryu.cluster.identity import Identity
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.patience import Patience
from sopa_ryu.cluster.records import FORMAT, MemberRecord

LOG = logging.getLogger("sopa.cluster")

LEADER, STANDBY = "leader", "standby"


class Enlistment:
    """The lease and the record of one member.

    Args:
        candidacy: Whose lease this is.
        seconds: For which a lease is asked.
        patience: Of the member's writes; a new lease is one, too.
        clock: Returns the seconds that leases are measured by.
        standing: Return the version that this member follows, and how many switches are connected.
    """

    def __init__(
        self,
        engine: Engine,
        mirror: Mirror,
        candidacy: Candidacy,
        identity: Identity,
        seconds: int,
        patience: Patience,
        clock: Callable[[], float],
        standing: Callable[[], tuple[int, int]],
    ) -> None:
        self._engine, self._mirror, self._candidacy = engine, mirror, candidacy
        self._identity, self._seconds, self._clock = identity, seconds, clock
        self._standing, self._patience = standing, patience
        self._entered: MemberRecord | None = None
        self._entered_at = 0
        self._former = 0
        self._since = int(time.time())

    @property
    def is_entered(self) -> bool:
        """Whether the engine has the record under the present lease."""
        return self._entered is not None

    def renew(self) -> None:
        """Renew the lease, or get one; raises `EngineError`."""
        mine, sent = self._candidacy, self._clock()
        if mine.lease and self._engine.renew(mine.lease):
            mine.renewed(sent)
            return
        if mine.lease:
            LOG.warning("member %s: its lease has ended: it stands by and asks for another", mine.name)
            self._former = mine.lease
            mine.lost()
            self._entered, self._entered_at = None, 0
        try:
            lease = self._engine.grant(self._seconds, self._patience.seconds)
        except EngineError as error:
            if error.late:
                self._patience.late()
            raise
        mine.granted(lease, self._engine.granted, sent)

    def enter(self) -> None:
        """Bring the record up to date; raises `EngineError`."""
        mine, me, lease = self._candidacy, self._identity, self._candidacy.lease
        version, switches = self._standing()
        role = LEADER if mine.term else STANDBY
        term = mine.term or self._mirror.latest_term
        record = MemberRecord(
            me.name, me.url, me.program, FORMAT, role, term, version, switches, self._since, me.secrets
        )
        if record == self._entered:
            return
        key, value = f"{records.MEMBERS}{me.name}", records.write(record)
        known = self._mirror.kept(key)
        if known is not None and known.lease == lease and known.value == value:
            self._entered, self._entered_at = record, known.modified  # the answer to its write was lost
            return
        # so that a write that its node has kept back does not come after a later one
        condition = Condition(key, modified=self._entered_before(key))
        began = time.monotonic()
        try:
            written = self._engine.write({key: value}, [condition], lease, seconds=self._patience.seconds)
        except EngineError as error:
            if error.unknown:
                self._patience.late()
            raise
        if mine.lease != lease:
            return  # it was lost meanwhile
        if written is not None:
            self._patience.took(time.monotonic() - began)
            self._entered, self._entered_at = record, written.revision
            return
        found = self._mirror.kept(key)
        if found is not None and found.lease not in (lease, self._former):
            raise EngineError(
                f"another member is named {me.name}: choose a name with --sopa-cluster-member, or wait until the lease of the one "
                "that ran before has ended",
                Kind.REFUSED,
            )

    def _entered_before(self, key: str) -> int:
        """Return the revision of this member's record in the engine; 0 if it has none yet."""
        known = self._mirror.kept(key)
        if self._mirror.revision < self._entered_at:
            return self._entered_at
        # one that is there already is its own, too, if the answer to its first write was lost
        is_own = known is not None and (self._entered is not None or known.lease == self._candidacy.lease)
        return known.modified if known is not None and is_own else 0
