"""All keys of a cluster as of a revision of the engine, as records. Pure."""

from __future__ import annotations

from typing import TypeVar

from sopa_ryu.cluster import records
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.cluster.records import (
    Charter,
    CommittedView,
    Drains,
    Leader,
    MemberRecord,
    Record,
    RecordError,
    RelayRecord,
    Term,
)

R = TypeVar("R", bound=Record)


class Mirror:
    """What the engine has, fed with what `Engine.read` and `Engine.watch` return.

    Attributes:
        revision: The engine's; 0 before the first contents.
        problems: From a key whose value SOPA did not write to what is wrong and what to do. Its record counts as missing.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.problems: dict[str, str] = {}
        self._kept: dict[str, Kept] = {}
        self._records: dict[str, Record] = {}

    def apply(self, contents: Contents) -> frozenset[str]:
        """Take in what a watch says: changes, or all keys, also of an engine that went back.

        Changes that came before what `refresh` has read are in that already.

        Returns:
            The keys whose value, revisions or lease have changed.
        """
        if not contents.whole and contents.revision < self.revision:
            return frozenset()
        news = dict(contents.keys)
        if contents.whole:
            news.update(dict.fromkeys(self._kept.keys() - news.keys()))
            self.revision = contents.revision
        self.revision = max(self.revision, contents.revision)
        changed = {key for key, kept in news.items() if kept != self._kept.get(key)}
        for key in changed:
            self._take(key, news[key])
        return frozenset(changed)

    def refresh(self, contents: Contents) -> frozenset[str]:
        """Take in all keys as they were read beside a watch, which may have been faster: then they are old, and nothing changes.

        Returns:
            As of `apply`.
        """
        return self.apply(contents) if contents.revision >= self.revision else frozenset()

    def _take(self, key: str, kept: Kept | None) -> None:
        self.problems.pop(key, None)
        self._records.pop(key, None)
        if kept is None:
            self._kept.pop(key, None)
            return
        self._kept[key] = kept
        try:
            self._records[key] = records.read(key, kept.value)
        except RecordError as error:
            self.problems[key] = str(error)

    def kept(self, key: str) -> Kept | None:
        """Return a key's value and revisions, also if its value is malformed; None if it does not exist."""
        return self._kept.get(key)

    @property
    def charter(self) -> Charter | None:
        """What the members agree on; None if it is missing or malformed, as for all that follow."""
        return self._one(records.CHARTER, Charter)

    @property
    def term(self) -> Term | None:
        """The latest term."""
        return self._one(records.TERM, Term)

    @property
    def latest_term(self) -> int:
        """The number of the latest leadership; 0 if none is known."""
        return self.term.term if self.term is not None else 0

    @property
    def leader(self) -> Leader | None:
        """The leader."""
        return self._one(records.LEADER, Leader)

    @property
    def view(self) -> CommittedView | None:
        """The committed view. Who follows it keeps the one before where this is None."""
        return self._one(records.VIEW, CommittedView)

    @property
    def drains(self) -> Drains | None:
        """The drains."""
        return self._one(records.DRAINS, Drains)

    @property
    def members(self) -> dict[str, MemberRecord]:
        """The members by name, in order."""
        return {record.name: record for record in self._all(MemberRecord)}

    @property
    def relays(self) -> dict[str, RelayRecord]:
        """The relays by name, in order."""
        return {record.name: record for record in self._all(RelayRecord)}

    def _one(self, key: str, kind: type[R]) -> R | None:
        record = self._records.get(key)
        return record if isinstance(record, kind) else None

    def _all(self, kind: type[R]) -> list[R]:
        return [record for _, record in sorted(self._records.items()) if isinstance(record, kind)]
