"""Events are found by time and element, outlive kills and full disks, are bounded, and no peer fills the log with them."""

import json
import logging
import random
import signal
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path

import eventlet
import pytest

from sopa_ryu.events import journal as journals
from sopa_ryu.events.event import Event, EventKind
from sopa_ryu.events.journal import Journal
from sopa_ryu.events.store import EventStore, Query, StoreError
from tests.helpers.records import files_up_to
from tests.helpers.waiting import eventually

WRITE_ON = """
import sys; from pathlib import Path; from sopa_ryu.events.event import *; from sopa_ryu.events.store import *
store = EventStore(Path(sys.argv[1]))
while True:
    print(store.write([Event(1.0, EventKind.FAILED, "a0_0-c0_0", "down")] * 7) + 6, flush=True)
"""


def some(count: int) -> list[Event]:
    draw = random.Random(count)
    names = ["a0_0", "c0_0", "a0_0-c0_0", None]
    return [Event(1000.0 + n / 8, EventKind.HEALED, draw.choice(names), "down", version=n) for n in range(count)]


def test_queries_return_what_a_list_of_all_says_page_by_page(tmp_path: Path) -> None:
    store, events = EventStore(tmp_path), some(300)
    assert store.read(Query()) == ([], 0, False)
    assert [store.write(part) for part in (events[:100], events[100:])] == [1, 101]
    for since in (0.0, 1000.0, 1012.3, 1037.375, 2000.0):
        for element in (None, "c0_0", "nothing"):
            wanted = [event for event in events if event.at >= since and element in (None, event.element)]
            found, after, more = list[Event](), 0, True
            while more:
                page, after, more = EventStore(tmp_path).read(Query(since, element, after, 40))
                found += [event for _, event in page]
            assert (found, after) == (wanted, 300)
    store.close()


def test_what_was_said_to_be_written_is_there_after_sigkill_and_read_meanwhile(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE_ON, tmp_path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [int(line) for line in islice(writer.stdout, 20)]
        assert EventStore(tmp_path).read(Query()).last >= said[-1]
        writer.send_signal(signal.SIGKILL)
        said += map(int, writer.stdout.read().split())
    kept = EventStore(tmp_path).read(Query())
    assert (len(kept.events) % 7, len(kept.events) >= said[-1]) == (0, True)
    ahead = tmp_path / "events.db-wal"
    ahead.write_bytes(ahead.read_bytes()[:-1000])  # as after a power cut
    with closing(EventStore(tmp_path)) as store:
        first = store.write(some(1))
    assert [event for _, event in EventStore(tmp_path).read(Query(after=first - 1)).events] == some(1)


def test_the_oldest_give_way_to_the_bound_in_bytes(tmp_path: Path) -> None:
    with closing(EventStore(tmp_path, 10 << 20)) as store:
        for _ in range(20):
            store.write([event._replace(cause="x" * 200) for event in some(1000)])
    assert store.file.stat().st_size < 4 << 20
    assert store.read(Query(limit=1)).events[0][0] > 5000


def test_a_full_disk_is_said_once_and_hurts_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(journals, "MAX_UNWRITTEN", 30)
    caplog.set_level(logging.INFO, "sopa.events")
    journal = Journal(tmp_path)
    journal.store.write(some(1))
    journal.store.close()
    workers = [eventlet.spawn(work) for work in (journal.take, journal.keep)]
    with files_up_to(10_000):
        journal.note(some(40))
        eventually(lambda: "cannot be written" in caplog.text, sleep=eventlet.sleep)
        eventlet.sleep(0.1)
    eventually(lambda: journal.find(Query()).last, 32, sleep=eventlet.sleep)
    for worker in workers:
        worker.kill()
    assert (caplog.text.count("cannot be written"), caplog.text.count("is written again")) == (1, 1)
    assert journal.find(Query()).events[-1][1].cause == "10 events could not be written"
    journal.close()
    journal.store.file.write_bytes(b"no database" * 500)
    for name in ("events.db-wal", "events.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(StoreError, match=r"the file is now events\.refused, events begin anew"):
        journal.store.write(some(1))
    assert journal.store.write(some(1)) == 1
    journal.close()


def test_each_event_is_a_line_of_json_and_what_a_peer_repeats_is_paced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.events")
    journal = Journal(tmp_path)
    journal.note(Event(1.0, EventKind.AGENT, f"h0_0_{n % 2}", actor="192.0.2.1") for n in range(200))
    journal.note([Event(2.0, EventKind.DRAINED, "c0_0", 'a "fan"\n', "ann from 192.0.2.9")] * 100)
    journal.close()
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    its = {"at": 2.0, "kind": "drained", "cause": 'a "fan"?', "actor": "ann from 192.0.2.9", "version": None}
    assert lines[-1] == {"element": "c0_0", **its}
    assert len(lines) == journal.find(Query()).last == 2 * 30 + 100
