"""What a member writes when an answer is lost, and when a write is done long after it was given up: on an engine in memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sopa_ryu.cluster import records
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.commits import Commits
from sopa_ryu.cluster.engine import EngineError, Kind
from sopa_ryu.cluster.enlistment import Enlistment
from sopa_ryu.cluster.gateway import Written
from sopa_ryu.cluster.identity import Identity
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.patience import Patience
from tests.unit.cluster.test_member_writes import MINE, MemoryEngine, proposal

RECORD = "members/m1"


class Unsure(MemoryEngine):
    """Gives no answer to the first write of a key, which was done, or is done later as `late`."""

    def __init__(self, key: str, done: bool = False) -> None:
        super().__init__()
        self.late: Callable[[], Written | None] | None = None
        self._key, self._done = key, done

    def write(self, puts: Any, *rest: Any, **options: Any) -> Written | None:
        if self.late is None and self._key in puts:
            self.late = partial(super().write, puts, *rest, **options)
            if self._done:
                self.late()
            raise EngineError("the node has stopped", Kind.UNREACHABLE, unknown=True)
        return super().write(puts, *rest, **options)

    def value(self, key: str) -> Any:
        return records.read(key, self.keys[key].value)


def candidate() -> Candidacy:
    its = Candidacy("m1")
    its.granted(MINE, 10.0, 0.0)
    return its


@pytest.mark.parametrize("done", [True, False])
def test_a_record_is_kept_up_to_date_whatever_has_become_of_its_first_write(done: bool) -> None:
    engine, mirror, version = Unsure(RECORD, done), Mirror(), [1]
    me = Identity("m1", "http://m1", "1", "")
    enlistment = Enlistment(engine, mirror, candidate(), me, 10, Patience(), lambda: 0.0, lambda: (version[0], 20))  # type: ignore[arg-type]
    with pytest.raises(EngineError):
        enlistment.enter()
    for version[0] in (1, 7, 8):
        mirror.apply(engine.read())
        enlistment.enter()
        assert engine.value(RECORD).version == version[0]
    assert engine.late is not None
    assert engine.late() is None  # it does not replace the present one
    assert engine.value(RECORD).version == 8


def leading(engine: Unsure) -> Commits:
    """Return what a leader of term 5 writes by."""
    engine.name("m1", 5, MINE)
    its = candidate()
    its.lead(5, engine.keys["leader"].created)
    return Commits(engine, Mirror(), its, Patience(), lambda: None)  # type: ignore[arg-type]


def test_a_version_that_comes_late_does_not_follow_a_later_one() -> None:
    engine = Unsure("view")
    commits = leading(engine)
    with pytest.raises(EngineError):
        commits.commit(proposal(1))
    for version in (2, 3):
        assert commits.commit(proposal(version))
        assert engine.late is not None
        assert engine.late() is None
        assert engine.value("view").version == version


def test_drains_that_come_late_do_not_replace_the_present_ones() -> None:
    engine = Unsure("drains")
    commits = leading(engine)
    with pytest.raises(EngineError):
        commits.write_drains(["c0_0"])
    for names in (("c0_0", "c0_1"), ()):
        commits.write_drains(names)
        assert engine.late is not None
        assert engine.late() is None
        assert engine.value("drains").names == names
