"""Events on disk, in SQLite: bounded by bytes, found by time and element, whole after SIGKILL and on a full disk."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sopa_ryu.events.event import Event, EventKind

FILE, REFUSED = "events.db", ".refused"
MAX_BYTES = 200_000_000
"""Some 1.5 million events: the oldest give way."""
WRITE_AHEAD_BYTES = 8 << 20
DROPPED = 5000
"""So many of the oldest give way at once."""
MAX_PAGE = 1000
_BUSY_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, kind TEXT NOT NULL,
    element TEXT, cause TEXT, actor TEXT, version INTEGER
);
CREATE INDEX IF NOT EXISTS events_at ON events (at);
CREATE INDEX IF NOT EXISTS events_element ON events (element) WHERE element IS NOT NULL;
"""


class StoreError(RuntimeError):
    """The events cannot be written or read now; the text says where and why."""


class Query(NamedTuple):
    """Which events: not before ``since`` (seconds since 1970), of one element or any, with a higher id than ``after``."""

    since: float = 0.0
    element: str | None = None
    after: int = 0
    limit: int = MAX_PAGE


class Found(NamedTuple):
    """The events of a query, the oldest first, and whether there are more.

    ``last`` is the id up to which all were looked at: the next query's ``after``.
    """

    events: list[tuple[int, Event]]
    last: int
    more: bool


class EventStore:
    """The events of one state directory; `StoreError` of a method means that nothing was done, and may be tried again.

    One thread writes at a time; others may read meanwhile, and so may other processes.
    """

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES) -> None:
        self.file = directory / FILE
        self._max_bytes = max_bytes
        self._writer: sqlite3.Connection | None = None

    def write(self, events: Sequence[Event]) -> int:
        """Keep events, which are on disk when this returns; return the id of the first. Its ids rise by one."""
        try:
            writer = self._writer = self._writer or self._open()
            with writer:
                row = writer.execute("SELECT seq FROM sqlite_sequence").fetchone()
                first = (row[0] if row else 0) + 1
                writer.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [(first + n, round(1000 * at), kind.value, *rest) for n, (at, kind, *rest) in enumerate(events)],
                )
            if self._used(writer) > self._max_bytes - WRITE_AHEAD_BYTES:
                with writer:
                    writer.execute("DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT ?)", (DROPPED,))
        except sqlite3.Error as error:
            self.close()
            aside = ""
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                aside = f": the file is now {self._set_aside().name}, events begin anew"
            raise StoreError(f"{self.file} cannot be written: {error}{aside}") from error
        return int(first)

    def read(self, query: Query) -> Found:
        """Return the first events of a query, as many as it asks for and `MAX_PAGE` at most."""
        limit = min(query.limit, MAX_PAGE)
        if not self.file.exists():
            return Found([], 0, False)
        try:
            with contextlib.closing(self._connect("ro")) as reader, reader:
                highest = reader.execute("SELECT max(id) FROM events").fetchone()[0] or 0
                since = round(1000 * query.since)
                # the first by time has the lowest id, unless the clock was set back
                first = reader.execute("SELECT id FROM events WHERE at >= ? ORDER BY at, id LIMIT 1", (since,)).fetchone()
                if first is None:
                    return Found([], highest, False)
                of_element = "" if query.element is None else "AND element = ?"
                which = (max(query.after + 1, first[0]), since, *(() if query.element is None else (query.element,)))
                rows = reader.execute(
                    f"SELECT * FROM events WHERE id >= ? AND +at >= ? {of_element} ORDER BY id LIMIT {limit + 1}", which
                ).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.file} cannot be read: {error}") from error
        more = len(rows) > limit
        events = [(number, Event(at / 1000, EventKind(kind), *rest)) for number, at, kind, *rest in rows[:limit]]
        return Found(events, events[-1][0] if more else highest, more)

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._writer is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writer.close()
            self._writer = None

    def _open(self) -> sqlite3.Connection:
        writer = self._connect("rwc")
        try:
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("PRAGMA synchronous = FULL")
            writer.execute(f"PRAGMA journal_size_limit = {WRITE_AHEAD_BYTES}")
            writer.executescript(_SCHEMA)
        except sqlite3.Error:
            writer.close()
            raise
        return writer

    def _connect(self, mode: str) -> sqlite3.Connection:
        # as it is used by one thread of a pool after the other
        uri = f"{self.file.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, timeout=_BUSY_SECONDS, uri=True, check_same_thread=False)

    @staticmethod
    def _used(writer: sqlite3.Connection) -> int:
        pages, free, size = (
            writer.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _set_aside(self) -> Path:
        aside = self.file.with_suffix(REFUSED)
        with contextlib.suppress(OSError):
            self.file.replace(aside)
            for more in ("-wal", "-shm"):
                Path(f"{self.file}{more}").unlink(missing_ok=True)
        return aside
