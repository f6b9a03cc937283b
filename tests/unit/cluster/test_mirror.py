"""What the engine has, as a member or relay follows it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.cluster import records
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.cluster.view import Mirror

GOOD: dict[str, records.Record] = {
    "term": records.Term(7),
    "leader": records.Leader("m1", 7, "http://192.0.2.1:8080"),
    "relays/r1": records.RelayRecord("r1", "http://192.0.2.4:8080", "3.0", 1, 7, 1, 0),
}
VALUES = {key: [records.write(record), "{}"] for key, record in GOOD.items()} | {"junk": ["", "x"]}


@st.composite
def contents(draw: st.DrawFn) -> Contents:
    """What is read of the engine, or a watch says; the same value written again has other revisions, or another lease."""
    keys, revision, whole = draw(st.sets(st.sampled_from(sorted(VALUES)))), draw(st.integers(1, 9)), draw(st.booleans())
    kept = {key: Kept(draw(st.sampled_from(VALUES[key])), draw(st.integers(1, 2)), revision, 7) for key in sorted(keys)}
    deleted = dict.fromkeys([] if whole else draw(st.sets(st.sampled_from(sorted(VALUES)))))
    return Contents(revision, {**kept, **deleted}, whole)


@given(st.lists(st.tuples(contents(), st.booleans()), max_size=12))
def test_a_mirror_has_what_it_was_told_last_and_says_what_has_changed(steps: list[tuple[Contents, bool]]) -> None:
    its, known, revision = Mirror(), dict[str, Any](), 0
    for told, beside_a_watch in steps:
        # what is older than what is known changes nothing, unless a watch says that the engine went back
        refreshes = beside_a_watch and told.whole
        before = dict(known)
        if told.revision >= revision or (told.whole and not refreshes):
            known = {key: kept for key, kept in ({} if told.whole else known).items() if key not in told.keys}
            known |= {key: kept for key, kept in told.keys.items() if kept is not None}
            revision = told.revision
        changed = (its.refresh if refreshes else its.apply)(told)
        assert changed == {key for key in before.keys() | known.keys() if before.get(key) != known.get(key)}
        assert its.revision == revision
        right = {key: record for key, record in GOOD.items() if key in known and known[key].value == VALUES[key][0]}
        assert its.problems.keys() == known.keys() - right.keys()
        assert (its.term, its.leader) == (right.get("term"), right.get("leader"))
        assert list(its.relays.values()) == [right[key] for key in right if key == "relays/r1"]
        assert all(its.kept(key) == known.get(key) for key in VALUES)


@given(st.lists(st.tuples(st.sampled_from(["term", "leader", "view"]), st.integers(5, 8)), max_size=8))
def test_a_view_of_a_later_term_than_any_leaders_is_not_followed(writes: list[tuple[str, int]]) -> None:
    its, now = Mirror(), dict[str, int]()
    for revision, (key, term) in enumerate(writes, start=1):
        record = {
            "term": records.Term(term),
            "leader": records.Leader("m0", term, "http://m0:1"),
            "view": records.CommittedView(term, 3, {}),
        }
        its.apply(Contents(revision, {key: Kept(records.write(record[key]), revision, revision, 0)}, False))
        now[key] = term
        foreign = now.get("view", 0) > min(now.get("term", 9), now.get("leader", 9))
        assert (its.view is not None) == ("view" in now and not foreign)
        assert list(its.problems) == ["view"] * foreign
