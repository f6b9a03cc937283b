"""What a member writes to real nodes of etcd when an answer is lost, and when a write is done long after it was given up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from ryu.lib import hub

from sopa_ryu.cluster import patience
from sopa_ryu.cluster.address import EngineAddress, parse
from sopa_ryu.cluster.engine import Engine, EngineError, Kind, Written
from sopa_ryu.cluster.member import Hands, Identity, Member
from sopa_ryu.cluster.records import FORMAT, Charter, CommittedView
from sopa_ryu.fabric.commitment import Proposal
from tests.cluster.conftest import Connect
from tests.helpers.waiting import eventually
from topologies import Failures, FatTree
from topologies.lab.etcd import PrivateEtcd

LEASE_SECONDS = 12
"""A member that lost it would propose what it has proposed before anew."""
PATIENCE_SECONDS = 20.0
"""For each node; a member whose writes were given up would propose anew, too."""
POLL_SECONDS = 0.05
TREE = FatTree(4)


class Forgetful(Engine):
    """Loses the answer to its first write, which was done."""

    lost = False

    def write(self, *values: Any, **options: Any) -> Written | None:
        written = super().write(*values, **options)
        if not self.lost:
            self.lost = True
            raise EngineError("the answer was lost", Kind.UNREACHABLE, unknown=True)
        return written


class Late(Engine):
    """Keeps its first write of a key back until `release`, as a node that has stopped does, whose client gives up meanwhile."""

    def __init__(self, address: EngineAddress, key: str) -> None:
        super().__init__(address, timeout=PATIENCE_SECONDS)
        self._key = key
        self.kept_back: tuple[Any, Any] | None = None

    def write(self, *values: Any, **options: Any) -> Written | None:
        if self.kept_back is None and self._key in values[0]:
            self.kept_back = values, options
            raise EngineError("the node has stopped", Kind.UNREACHABLE, unknown=True)
        return super().write(*values, **options)

    def release(self) -> Written | None:
        """Do the write after all."""
        assert self.kept_back is not None
        values, options = self.kept_back
        return super().write(*values, **options)


class Standing:
    """What a member asks the application for: a controller that always follows, and has versions to commit up to `wanted`."""

    def __init__(self) -> None:
        self.version = 1
        self.wanted = 0
        self.term = 0
        self.given = 0
        self.done: list[int] = []

    def standing(self) -> tuple[int, int]:
        return self.version, 20

    def follow(self, view: CommittedView) -> None: ...

    def drain_all(self, names: Iterable[str]) -> None: ...

    def stand_by(self, leader: str | None) -> None: ...

    def relays(self, acknowledged: int | None, agents: int) -> None: ...

    def lead(self, term: int) -> None:
        self.term = term

    def highest_generation(self) -> int:
        return 0

    def drained(self) -> frozenset[str]:
        return frozenset()

    def proposal(self) -> Proposal | None:
        if len(self.done) >= self.wanted:
            return None
        self.given += 1
        return Proposal(self.term, self.given, Failures(TREE), 0.0)

    def committed(self, proposal: Proposal) -> None:
        self.done.append(proposal.version)


@contextmanager
def taking_part(engine: Engine, standing: Standing) -> Iterator[Member]:
    """A member that keeps its lease and its record, follows the engine, and leads."""
    identity = Identity("c1", "http://192.0.2.1:8080", "1", "secret")
    member = Member(engine, identity, Charter(FORMAT, {}, "mac"), LEASE_SECONDS, cast(Hands, standing))

    def follow() -> None:
        """As `Member.watch`, which holds up other green threads where sockets are not eventlet's."""
        while True:
            member.mirror.apply(engine.read())
            member.look()
            hub.sleep(POLL_SECONDS)

    threads = [hub.spawn(work) for work in (member.keep_lease, member.keep_record, follow, member.act)]
    try:
        yield member
    finally:
        for thread in threads:
            hub.kill(thread)
        engine.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members give up no write by themselves."""
    for name in ("FIRST_SECONDS", "LAST_SECONDS"):
        monkeypatch.setattr(patience, name, PATIENCE_SECONDS)


@pytest.fixture
def reader(etcd: PrivateEtcd, connect: Connect) -> Engine:
    """Another client of the engine."""
    return connect(etcd)


def value(reader: Engine, key: str) -> dict[str, Any]:
    """Return the value of a key; nothing without it."""
    kept = reader.read().keys.get(key)
    found: dict[str, Any] = json.loads(kept.value) if kept is not None else {}
    return found


def test_a_record_whose_first_answer_was_lost_is_kept_up_to_date(etcd: PrivateEtcd, reader: Engine) -> None:
    standing = Standing()
    with taking_part(Forgetful(parse(etcd.address()), timeout=PATIENCE_SECONDS), standing):
        eventually(lambda: value(reader, "members/c1").get("version"), 1, sleep=hub.sleep)
        standing.version = 7
        eventually(lambda: value(reader, "members/c1").get("version"), 7, sleep=hub.sleep)


def test_a_record_that_comes_late_does_not_replace_the_present_one(etcd: PrivateEtcd, reader: Engine) -> None:
    standing, engine = Standing(), Late(parse(etcd.address()), "members/c1")
    with taking_part(engine, standing):
        eventually(lambda: engine.kept_back, sleep=hub.sleep)
        standing.version = 7
        eventually(lambda: value(reader, "members/c1").get("version"), 7, sleep=hub.sleep)
        assert engine.release() is None
        assert value(reader, "members/c1")["version"] == 7


def test_a_version_that_comes_late_does_not_follow_a_later_one(etcd: PrivateEtcd, reader: Engine) -> None:
    standing, engine = Standing(), Late(parse(etcd.address()), "view")
    with taking_part(engine, standing) as member:
        standing.wanted = 1
        eventually(lambda: standing.done, [2], sleep=hub.sleep)
        assert engine.release() is None
        assert value(reader, "view")["version"] == 2
        standing.wanted = 2
        member.look()
        eventually(lambda: standing.done, [2, 3], sleep=hub.sleep)
        assert value(reader, "view")["version"] == 3


def test_drains_that_come_late_do_not_replace_the_present_ones(etcd: PrivateEtcd, reader: Engine) -> None:
    standing, engine = Standing(), Late(parse(etcd.address()), "drains")
    with taking_part(engine, standing) as member:
        eventually(lambda: standing.term, sleep=hub.sleep)
        with pytest.raises(EngineError, match="the node has stopped"):
            member.write_drains(["c0_0"])
        member.write_drains(["c0_0", "c0_1"])
        assert engine.release() is None
        member.write_drains([])
        assert value(reader, "drains")["names"] == []


def test_a_version_written_by_hand_meanwhile_is_replaced(etcd: PrivateEtcd, reader: Engine) -> None:
    standing, engine = Standing(), Engine(parse(etcd.address()), timeout=PATIENCE_SECONDS)
    with taking_part(engine, standing) as member:
        standing.wanted = 1
        eventually(lambda: standing.done, [1], sleep=hub.sleep)
        reader.write({"view": reader.read().keys["view"].value})
        standing.wanted = 2
        member.look()
        eventually(lambda: value(reader, "view").get("version"), standing.given, sleep=hub.sleep)
        eventually(lambda: standing.done[-1:], [standing.given], sleep=hub.sleep)
