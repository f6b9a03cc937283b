"""What a leader writes to the engine: the versions and the drains, each write fenced by the revision that made it leader."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from sopa_ryu.cluster import records
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.engine import Engine, EngineError, Kind
from sopa_ryu.cluster.gateway import Condition
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.patience import LAST_SECONDS, SLOW_SECONDS, Patience
from sopa_ryu.cluster.records import CommittedView, Drains
from sopa_ryu.fabric.commitment import Proposal
from sopa_ryu.runtime.listeners import SparingLog

LOG = logging.getLogger("sopa.cluster")


class DeposedError(Exception):
    """The engine names another leader, or none."""


class Commits:
    """The writes of one member while it leads.

    Args:
        candidacy: Whose leadership fences the writes.
        changed: Called when what was read beside the watch has changed the mirror.

    Attributes:
        seconds: Called with the seconds that a version has waited for the engine.
    """

    def __init__(
        self, engine: Engine, mirror: Mirror, candidacy: Candidacy, patience: Patience, changed: Callable[[], None]
    ) -> None:
        self.seconds: Callable[[float], None] = lambda seconds: None
        self._engine, self._mirror, self._candidacy = engine, mirror, candidacy
        self._patience = patience
        self._changed = changed
        self._view_at: int | None = None
        self._waits_since: float | None = None
        self._say = SparingLog(LOG).warning

    def begin(self) -> None:
        """Begin a leadership: what the engine's view was before is not known."""
        self._view_at = self._waits_since = None

    def commit(self, proposal: Proposal) -> bool:
        """Commit a version; return False if another attempt has to be made, under another number.

        Raises:
            EngineError: If `EngineError.unknown`, it may be committed all the same.
            DeposedError
        """
        began = time.monotonic()
        since = self._waits_since = began if self._waits_since is None else self._waits_since
        record = CommittedView(proposal.term, proposal.version, dict(proposal.failures))
        if self._view_at is None:
            self.read()
            self._view_at = self._revision_of("view")
        # without the second a write whose node has stopped, and goes on later, would come after this one
        conditions = [
            Condition("leader", created=self._candidacy.created),
            Condition("view", modified=self._view_at),
        ]
        try:
            written = self._engine.write({"view": records.write(record)}, conditions, seconds=self._patience.seconds)
        except EngineError as error:
            self._view_at = None
            if error.unknown:
                self._patience.late()
            raise
        if written is None:
            self._view_at = None
            if self.is_named():
                return False  # an earlier write has come after all
            raise DeposedError
        now = time.monotonic()
        self._view_at, self._waits_since = written.revision, None
        self._patience.took(now - began)
        self.seconds(now - since)
        if now - since >= SLOW_SECONDS:
            self._say(
                "slow",
                "cluster %s: etcd took %.1f s to keep version %d: failures reach switches and agents so much later; look for `slow "
                "fdatasync` in etcd's log, and give it a faster disk (docs/operating.md, section 13)",
                self._engine.address.name,
                now - since,
                proposal.version,
            )
        return True

    def write_drains(self, names: Iterable[str]) -> None:
        """Keep the names of all drained elements in the engine; raises `EngineError`."""
        mine = self._candidacy
        record = Drains(mine.term, tuple(sorted(names)))
        while self.is_named():
            conditions = [
                Condition("leader", created=mine.created),
                Condition("drains", modified=self._revision_of("drains")),
            ]
            if self._engine.write({"drains": records.write(record)}, conditions, seconds=LAST_SECONDS) is not None:
                return
        raise EngineError("the engine names another leader", Kind.REFUSED)

    def is_named(self) -> bool:
        """Return True if the engine, asked now, names this leadership."""
        self.read()
        kept = self._mirror.kept("leader")
        return kept is not None and kept.created == self._candidacy.created

    def read(self) -> None:
        """Take in what the engine has now, unless the watch has brought later changes meanwhile; raises `EngineError`."""
        if self._mirror.refresh(self._engine.read(self._patience.seconds)):
            self._changed()

    def _revision_of(self, key: str) -> int:
        """Return the revision of a key's last write, as far as this member knows; 0 if there is none."""
        kept = self._mirror.kept(key)
        return kept.modified if kept is not None else 0
