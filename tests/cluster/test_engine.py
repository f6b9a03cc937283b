"""The client of the engine, with real nodes of etcd that are killed, stopped, full and compacted."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Condition, Contents, Engine, EngineError, Kind, Written
from sopa_ryu.cluster.view import Mirror
from tests.cluster.conftest import Connect, failure
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from topologies.lab.etcd import PrivateEtcd

SOON = 1.0  # for an answer of a node that may be gone
LONG = 60  # a lease that does not end by itself
LEADER = records.write(records.Leader("m1", 5, "http://192.0.2.1:8080"))
TERM = records.write(records.Term(5))
T = TypeVar("T")


def lead(engine: Engine, lease: int) -> int:
    return engine.write({"term": TERM, "leader": LEADER}, [Condition("leader", created=0)], lease).revision


def view(version: int) -> dict[str, str]:
    return {"view": records.write(records.CommittedView(5, version, {}))}


def following(engine: Engine, revision: int) -> Iterator[Contents]:
    """Yield the changes after a revision, though nodes are slow to answer or choose who orders writes."""
    while True:
        try:
            for contents in engine.watch(revision):
                revision = contents.revision
                yield contents
        except EngineError:
            continue


def until(watched: Iterator[Contents], key: str) -> Contents:
    return next(contents for contents in watched if key in contents.keys or contents.whole)


def test_the_write_of_a_deposed_leader_is_refused(etcd: PrivateEtcd, connect: Connect) -> None:
    old, new = connect(etcd), connect(etcd, first=1)
    lease = old.grant(LONG)
    revision = lead(old, lease)
    held = [Condition("leader", created=revision)]
    assert old.write(view(1), held) is not None
    assert new.write({"leader": "taken"}, [Condition("leader", created=0)]) is None

    old.revoke(lease)
    assert lead(new, new.grant(LONG)) > revision
    assert old.write(view(2), held) is None
    assert new.read().keys["view"].value == view(1)["view"]
    term = new.read().keys["term"]
    assert new.write({"term": "8"}, [Condition("term", modified=term.modified - 1)]) is None
    assert new.write({"term": "8"}, [Condition("term", modified=term.modified)]) is not None


def test_a_lease_ends_with_its_keys_and_the_term_stays(etcd: PrivateEtcd, connect: Connect) -> None:
    engine = connect(etcd)
    assert engine.renew(engine.grant(LONG))
    assert engine.granted >= LONG
    short = [0]

    def written() -> Written | None:
        short[0] = engine.grant(2)
        return engine.write({"term": TERM, "leader": LEADER}, lease=short[0])

    revision = eventually(written, lambda its: its is not None).revision
    assert until(connect(etcd, first=1).watch(revision), "leader").keys == {"leader": None}
    assert set(engine.read().keys) == {"term"}
    assert not engine.renew(short[0])
    assert engine.write({"leader": LEADER}, lease=short[0]) is None
    engine.revoke(short[0])


def test_a_watch_shows_every_change_though_its_node_is_killed(etcd: PrivateEtcd, connect: Connect) -> None:
    watching, writing = connect(etcd, timeout=SOON), connect(etcd, first=1, timeout=SOON)
    revision = _patiently(writing.read).revision
    # one for each change, so that several in one message are not one
    keys = [f"relays/{number}" for number in range(300)]
    progress = threading.Event()

    def write() -> None:
        for key in keys:
            _patiently(partial(writing.write, {key: "{}"}))  # the killed node had been the one that orders writes
            if key == keys[100]:
                progress.set()

    thread = threading.Thread(target=write)
    thread.start()
    killed, seen = False, set[str]()
    for contents in following(watching, revision):
        assert not contents.whole
        seen |= contents.keys.keys()
        if progress.is_set() and not killed:
            killed = True
            etcd.kill(0)
        if keys[-1] in seen:
            break
    thread.join()
    assert killed
    assert seen == set(keys)


def test_a_stopped_node_is_left(etcd: PrivateEtcd, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    engine, other = connect(etcd, timeout=SOON), connect(etcd, first=1, timeout=SOON)
    revision = _patiently(engine.read).revision
    watched = following(engine, revision)
    assert next(watched).keys == {}
    etcd.pause(0)
    _patiently(lambda: other.write(view(7)))
    assert until(watched, "view").keys["view"] is not None
    lease = _patiently(lambda: engine.grant(LONG))
    assert _patiently(lambda: engine.renew(lease))
    assert f"{etcd.endpoints[0]}: it does not answer in time" in caplog.text


def test_without_quorum_it_says_so_and_goes_on_afterwards(etcd: PrivateEtcd, connect: Connect) -> None:
    engine = connect(etcd, first=2, timeout=SOON)
    lease = _patiently(lambda: engine.grant(LONG))
    revision = _patiently(engine.read).revision
    for node in (0, 1):
        etcd.kill(node)
    with pytest.raises(EngineError):
        until(engine.watch(revision), "view")
    for ask in (engine.read, lambda: engine.write(view(1)), lambda: engine.renew(lease)):
        error = eventually(partial(_failure, ask), lambda error: error and error.kind == Kind.NO_QUORUM)
        assert "no leader" in str(error)
        assert "endpoint status" in str(error)

    etcd.restart(0)
    _patiently(lambda: engine.write(view(1)))


def test_the_outcome_of_a_write_without_an_answer_is_unknown(etcd: PrivateEtcd, connect: Connect) -> None:
    def failed() -> EngineError | None:
        """Return why a write failed that was sent to the node that orders writes, without the others."""
        orders = eventually(etcd.leader, lambda node: node is not None)
        engine = connect(etcd, first=orders, timeout=SOON)
        _patiently(lambda: engine.write(view(1)))
        others = {0, 1, 2} - {orders}
        for node in others:
            etcd.pause(node)
        error = _failure(lambda: engine.write(view(2)))
        for node in others:
            etcd.resume(node)
        return error

    # another node may have begun to order writes meanwhile
    error = eventually(failed, lambda error: error is not None and error.unknown)
    assert "is not known" in str(error)
    # it was in the log of the node that orders writes: this time it is carried out
    engine = connect(etcd)
    eventually(lambda: _patiently(engine.read).keys["view"].value, view(2)["view"])


def test_a_write_that_was_not_sent_is_not_unknown(lone_etcd: PrivateEtcd, connect: Connect) -> None:
    engine = connect(lone_etcd)
    lone_etcd.kill(0)
    error = failure(lambda: engine.write(view(2)))
    assert (error.kind, error.unknown) == (Kind.UNREACHABLE, False)
    assert f"{lone_etcd.endpoints[0]}: Connection refused" in str(error)


def test_a_full_database_refuses_writes_only(tmp_path: Path, connect: Connect) -> None:
    with PrivateEtcd(tmp_path, 1, quota=1 << 20) as etcd:
        engine = connect(etcd)
        lease = engine.grant(LONG)
        error = eventually(lambda: _failure(lambda: engine.write({"notes": "x" * 200_000})))
        assert (error.kind, error.unknown) == (Kind.FULL, False)
        assert "alarm disarm" in str(error)
        assert engine.renew(lease)
        assert "notes" in engine.read().keys

        # as docs/controllers.md says
        etcd.ctl("compact", str(engine.read().revision))
        etcd.ctl("defrag")
        etcd.ctl("alarm", "disarm")
        assert engine.write(view(1)) is not None


def test_a_value_that_is_too_large_is_refused_with_the_option_to_change(etcd: PrivateEtcd, connect: Connect) -> None:
    error = failure(lambda: connect(etcd).write({"view": "x" * 3_000_000}, seconds=PATIENCE_SECONDS))
    assert ("--max-request-bytes" in str(error), error.unknown) == (True, False)


def test_a_watch_from_a_compacted_revision_begins_with_all_keys(etcd: PrivateEtcd, connect: Connect) -> None:
    engine, mirror = connect(etcd), Mirror()
    engine.write({**view(1), "drains": "{}"})
    mirror.apply(engine.read())
    since = mirror.revision
    engine.write(view(2), deletes=["drains"])
    engine.write(view(3))
    etcd.ctl("compact", str(engine.read().revision))
    contents = until(engine.watch(since), "view")
    assert contents.whole
    assert mirror.apply(contents) == {"view", "drains"}
    assert mirror.view == records.CommittedView(5, 3, {})
    assert mirror.kept("drains") is None


def test_a_watch_shows_that_the_engine_has_lost_its_data(lone_etcd: PrivateEtcd, connect: Connect) -> None:
    engine, mirror = connect(lone_etcd), Mirror()
    for version in range(1, 4):
        engine.write(view(version))
    mirror.apply(engine.read())
    revision = mirror.revision
    lone_etcd.kill(0)
    lone_etcd.start()
    assert mirror.apply(until(engine.watch(revision), "view")) == {"view"}
    assert mirror.revision < revision
    assert mirror.view is None


def test_close_ends_a_watch_of_another_thread(etcd: PrivateEtcd, connect: Connect) -> None:
    engine = connect(etcd)
    watched = engine.watch(engine.read().revision)
    next(watched)
    rest: list[Contents] = []
    thread = threading.Thread(target=lambda: rest.extend(watched))
    thread.start()
    engine.close()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert failure(engine.read).kind == Kind.UNREACHABLE


def test_nodes_of_two_engines_are_not_taken_for_one(etcd: PrivateEtcd, lone_etcd: PrivateEtcd) -> None:
    engine = Engine(parse(f"etcd://{etcd.endpoints[0]},{lone_etcd.endpoints[0]}"), timeout=PATIENCE_SECONDS)
    try:
        engine.write(view(1))
        etcd.kill(0)
        for ask in (engine.read, lambda: engine.write(view(2)), lambda: next(engine.watch(1))):
            error = failure(ask)
            assert (error.kind, "another engine" in str(error)) == (Kind.REFUSED, True)
        assert lone_etcd.ctl("get", "--prefix", "/") == ""
    finally:
        engine.close()


def _patiently(ask: Callable[[], T]) -> T:
    """Return an answer, though nodes are slow or choose who orders writes."""
    answers: list[T] = []
    eventually(lambda: _failure(lambda: answers.append(ask())), None)
    return answers[0]


def _failure(ask: Callable[[], object]) -> EngineError | None:
    try:
        ask()
    except EngineError as error:
        return error
    return None
