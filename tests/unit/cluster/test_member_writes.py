"""A member's writes on an engine in memory: each is fenced by its leadership, and who is not named leads no longer."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sopa_ryu.cluster import records
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.commits import Commits, DeposedError
from sopa_ryu.cluster.gateway import Contents, Kept, Written
from sopa_ryu.cluster.identity import Identity
from sopa_ryu.cluster.member import Member
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.patience import Patience
from sopa_ryu.cluster.records import Charter, CommittedView, Leader
from sopa_ryu.fabric.commitment import Proposal
from topologies import Failures, FatTree

TREE = FatTree(4)
CHARTER = Charter(records.FORMAT, TREE.document(), "mac")
MINE, THEIRS = 11, 22  # leases


class MemoryEngine:
    def __init__(self) -> None:
        self.address = SimpleNamespace(name="sopa")
        self.keys: dict[str, Kept] = {}
        self.revision = 1

    def read(self, patience: float | None = None) -> Contents:
        return Contents(self.revision, dict(self.keys), whole=True)

    def write(
        self, puts: Mapping[str, str], unless: Any = (), lease: int = 0, deletes: Any = (), seconds: float = 0
    ) -> Written | None:
        for its in unless:
            kept = self.keys.get(its.key, Kept("", 0, 0, 0))
            if its.created not in (None, kept.created) or its.modified not in (None, kept.modified):
                return None
        self.revision += 1
        for key in deletes:
            self.keys.pop(key, None)
        for key, value in puts.items():
            created = self.keys[key].created if key in self.keys else self.revision
            self.keys[key] = Kept(value, created, self.revision, lease if records.leased(key) else 0)
        return Written(self.revision)

    def name(self, leader: str, term: int, lease: int) -> None:
        self.write({}, deletes=["leader"])
        self.write({"leader": records.write(Leader(leader, term, f"http://{leader}"))}, lease=lease)


class Hands:
    """What the application is told; it does nothing."""

    def __init__(self) -> None:
        self.led: list[int] = []
        self.stands_by = False
        self.standing, self.highest_generation, self.drained = (lambda: (1, 20)), (lambda: 0), frozenset

    def lead(self, term: int) -> None:
        self.led.append(term)

    def stand_by(self, leader: str | None) -> None:
        self.stands_by = True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def proposal(version: int) -> Proposal:
    return Proposal(5, version, Failures(TREE), 0.0)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def commits(engine: MemoryEngine) -> Commits:
    """Those of a leader of term 5."""
    engine.name("m1", 5, MINE)
    candidacy = Candidacy("m1")
    candidacy.granted(MINE, 10.0, 0.0)
    candidacy.lead(5, engine.keys["leader"].created)
    return Commits(engine, Mirror(), candidacy, Patience(), lambda: None)  # type: ignore[arg-type]


def test_nothing_is_committed_under_a_leadership_that_is_over(engine: MemoryEngine, commits: Commits) -> None:
    assert commits.commit(proposal(2))
    view = engine.keys["view"]
    engine.name("m1", 6, THEIRS)
    with pytest.raises(DeposedError):
        commits.commit(proposal(3))
    assert engine.keys["view"] == view


def test_a_write_that_has_come_late_is_not_overwritten_unseen(engine: MemoryEngine, commits: Commits) -> None:
    assert commits.commit(proposal(2))
    engine.write({"view": records.write(CommittedView(5, 7, {}))})
    assert not commits.commit(proposal(3))
    assert engine.keys["view"].value == records.write(CommittedView(5, 7, {}))
    assert commits.commit(proposal(8))


class Leading:
    def __init__(self, engine: MemoryEngine, charter: Charter = CHARTER) -> None:
        self.engine, self.hands = engine, Hands()
        identity = Identity("m1", "http://m1", "1", "")
        self.member = Member(engine, identity, CHARTER, 10, self.hands, clock=lambda: 100.0)  # type: ignore[arg-type]
        engine.write({"charter": records.write(charter)})
        self.member.candidacy.granted(MINE, 10.0, 100.0)
        engine.name("m1", 5, MINE)
        self.act()

    def act(self) -> None:
        self.member.mirror.apply(self.engine.read())
        self.member._act()


def test_who_is_named_under_its_lease_leads_and_who_is_named_no_longer_does_not(engine: MemoryEngine) -> None:
    its = Leading(engine)
    assert (its.hands.led, its.member.is_leader) == ([5], True)
    engine.name("m2", 6, THEIRS)
    its.act()
    assert (its.member.is_leader, its.hands.stands_by) == (False, True)


def test_who_steps_down_ends_its_own_leadership_only(engine: MemoryEngine) -> None:
    its = Leading(engine)
    its.member.step_down()
    engine.name("m2", 6, THEIRS)
    its.member._act()
    assert engine.keys["leader"].value == records.write(Leader("m2", 6, "http://m2"))
    engine.name("m1", 7, MINE)
    its = Leading(engine)
    its.member.step_down()
    its.act()
    assert "leader" not in engine.keys


def test_a_member_of_another_fabric_does_not_take_part(engine: MemoryEngine) -> None:
    its = Leading(engine, CHARTER._replace(fabric=FatTree(6).document()))
    assert (its.hands.led, its.member.is_leader) == ([], False)
