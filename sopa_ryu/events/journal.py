"""Has events written to the log and to disk, in green threads of their own: who notes one waits for neither."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from eventlet import sleep, tpool
from eventlet.event import Event as Signal

from sopa_ryu.events.event import OF_PEERS, Event, EventKind, told
from sopa_ryu.events.store import EventStore, Found, Query, StoreError
from sopa_ryu.runtime.log_pace import Pace
from topologies.aliases import NONE, Aliases

LOG = logging.getLogger("sopa.events")

FLUSH_SECONDS = 0.05
"""So long events are gathered: a process that is killed loses those, and the time of one write."""
RETRY_SECONDS = 5.0
"""After events could not be written."""
SAID_AT_ONCE, WRITTEN_AT_ONCE = 50, 200
"""Events before others have their turn: some 2 ms."""
MAX_UNWRITTEN = 10_000
"""What comes then, while the disk is full, is only counted."""
tpool.set_num_threads(2)  # one that writes, and one that reads


class Journal:
    """The events of a controller whose state directory is ``directory``; `take` and `keep` are to be run as green threads."""

    def __init__(self, directory: Path, aliases: Callable[[], Aliases] = lambda: NONE) -> None:
        self.store = EventStore(directory)
        self._aliases = aliases
        self._noted: deque[Iterable[Event]] = deque()
        self._unwritten: deque[Event] = deque()
        self._left_out = 0
        self._pace = Pace()
        self._is_noted, self._is_taken = Signal(), Signal()
        self._is_ill = False

    def note(self, events: Iterable[Event]) -> None:
        """Have events kept; what is given is iterated later."""
        self._noted.append(events)
        if not self._is_noted.ready():
            self._is_noted.send()

    def find(self, query: Query) -> Found:
        """Return the events of a query; other green threads go on meanwhile. Raises `StoreError`."""
        found: Found = tpool.execute(self.store.read, query)
        return found

    def take(self) -> None:
        """Log events as they come, one JSON object a line, and pass them on to `keep`, until killed."""
        while True:
            self._is_noted.wait()
            sleep(FLUSH_SECONDS)
            self._is_noted = Signal()
            for number, event in enumerate(self._taken(), 1):
                self._say(event)
                if not number % SAID_AT_ONCE:
                    sleep(0)
            if not self._is_taken.ready():
                self._is_taken.send()

    def _taken(self) -> Iterator[Event]:
        """Yield what is noted, without what a peer repeats, and have it written."""
        while self._noted:
            for event in self._noted.popleft():
                its = event.bounded()
                if event.kind in OF_PEERS:
                    missed = self._pace.missed(event.kind, event.element or "")
                    if missed is None:
                        continue
                    if missed:
                        its = its._replace(cause=f"{its.cause or ''} ({missed} more were left out)".lstrip())
                if len(self._unwritten) < MAX_UNWRITTEN:
                    self._unwritten.append(its)
                else:
                    self._left_out += 1
                yield its

    def _say(self, event: Event) -> None:
        body = told(0, event, self._aliases())
        element = json.dumps(body.pop("element"))
        del body["id"]
        # the element apart, as log lines are paced by their first value
        LOG.info('{"element": %s, %s', element, json.dumps(body)[1:])

    def keep(self) -> None:
        """Write events to disk, until killed."""
        while True:
            self._is_taken.wait()
            self._is_taken = Signal()
            while self._unwritten:
                batch = [event for event, _ in zip(self._unwritten, range(WRITTEN_AT_ONCE), strict=False)]
                try:
                    tpool.execute(self.store.write, batch)
                except StoreError as error:
                    self._ill(error)
                    sleep(RETRY_SECONDS)
                    continue
                self._written(len(batch))

    def _ill(self, error: StoreError) -> None:
        if not self._is_ill:
            LOG.error("%s. Nothing else is affected. Up to %d events wait until there is room", error, MAX_UNWRITTEN)
        self._is_ill = True

    def _written(self, count: int) -> None:
        last = [self._unwritten.popleft() for _ in range(count)][-1]
        if self._is_ill:
            LOG.info("%s is written again", self.store.file)
        self._is_ill = False
        if self._left_out and not self._unwritten:
            self._unwritten.append(Event(last.at, EventKind.LEFT_OUT, cause=f"{self._left_out} events could not be written"))
            self._left_out = 0

    def close(self) -> None:
        """Write what is still to be written, in this thread: the controller stops."""
        for event in self._taken():
            self._say(event)
        try:
            if self._unwritten:
                self.store.write(list(self._unwritten))
        except StoreError as error:
            self._ill(error)
        self.store.close()
