"""What the engine has, as a member or relay follows it."""

import pytest

from sopa_ryu.cluster import records
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.cluster.mirror import Mirror


def kept(record: records.Record, created: int, modified: int, lease: int = 0) -> Kept:
    return Kept(records.write(record), created, modified, lease)


TERM, LEADER = records.Term(7), records.Leader("m1", 7, "http://192.0.2.1:8080")


@pytest.fixture
def mirror() -> Mirror:
    its = Mirror()
    its.apply(Contents(9, {"term": kept(TERM, 2, 9), "leader": kept(LEADER, 9, 9, 77)}, whole=True))
    return its


def test_records_come_with_their_revisions(mirror: Mirror) -> None:
    assert (mirror.revision, mirror.term, mirror.leader) == (9, TERM, LEADER)
    assert mirror.kept("leader") == kept(LEADER, 9, 9, 77)
    assert mirror.view is mirror.charter is mirror.drains is None
    assert mirror.members == mirror.relays == {}


def test_a_change_says_which_keys_have_changed(mirror: Mirror) -> None:
    relay = records.RelayRecord("r1", "http://192.0.2.4:8080", "3.0", 1, 7, 1, 0)
    changed = mirror.apply(Contents(12, {"leader": None, "relays/r1": kept(relay, 11, 11)}))
    assert changed == {"leader", "relays/r1"}
    assert mirror.leader is None
    assert mirror.relays == {"r1": relay}
    assert mirror.apply(Contents(12, {"relays/r1": kept(relay, 11, 11), "leader": None})) == frozenset()
    assert mirror.apply(Contents(12, {})) == frozenset()
    assert mirror.revision == 12


def test_the_same_value_written_again_is_a_change(mirror: Mirror) -> None:
    # a leader that is leader again has another create_revision
    assert mirror.apply(Contents(14, {"leader": kept(LEADER, 14, 14, 78)})) == {"leader"}


def test_whole_contents_replace_what_was_known_also_at_a_lower_revision(mirror: Mirror) -> None:
    assert mirror.apply(Contents(3, {"term": kept(TERM, 2, 3)}, whole=True)) == {"term", "leader"}
    assert (mirror.revision, mirror.leader, mirror.term) == (3, None, TERM)


def test_a_malformed_record_is_reported_until_it_is_put_right(mirror: Mirror) -> None:
    malformed = {"leader": Kept("{}", 9, 10, 77), "junk": Kept("", 10, 10, 0)}
    assert mirror.apply(Contents(10, malformed)) == malformed.keys()
    assert mirror.leader is None
    assert mirror.kept("leader") is not None
    assert set(mirror.problems) == {"leader", "junk"}
    assert "the key leader is not as SOPA writes it: it has no name" in mirror.problems["leader"]
    mirror.apply(Contents(11, {"leader": kept(LEADER, 9, 11, 77), "junk": None}))
    assert mirror.problems == {}
    assert mirror.leader == LEADER


def test_what_was_read_beside_a_watch_does_not_undo_later_changes(mirror: Mirror) -> None:
    mirror.apply(Contents(10, {"leader": None}))
    read_at_10 = Contents(10, {"term": kept(TERM, 2, 9)}, whole=True)
    mirror.apply(Contents(12, {"leader": kept(LEADER, 12, 12, 77)}))
    assert mirror.refresh(read_at_10) == frozenset()
    assert mirror.leader is not None
    assert mirror.revision == 12
    # and the other way round: a watch that is slower does not undo what was read
    assert mirror.refresh(Contents(15, {"leader": kept(LEADER, 15, 15, 78)}, whole=True)) == {"leader", "term"}
    assert mirror.apply(Contents(14, {"leader": None})) == frozenset()
    assert mirror.kept("leader") == kept(LEADER, 15, 15, 78)
    # an engine that went back is followed by the watch
    assert mirror.apply(Contents(3, {"term": kept(TERM, 2, 3)}, whole=True)) == {"term", "leader"}
    assert mirror.revision == 3
