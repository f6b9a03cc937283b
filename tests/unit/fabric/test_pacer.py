"""The pacer: every thing has one turn per interval, evenly spread, and pauses are not made up for."""

from math import inf

import pytest

from sopa_ryu.fabric.pacing import Pacer


def turns(pacer: Pacer[str], things: str, start: float, end: float) -> list[tuple[float, str]]:
    found = []
    now = max(start, pacer.at)
    while now <= end:
        if (thing := pacer.due(things, now)) is not None:
            found.append((now, thing))
        now = max(now, pacer.at)
    return found


def test_each_thing_has_one_turn_per_interval_evenly_spread() -> None:
    assert turns(Pacer(4.0), "abcd", 100, 107) == list(zip(range(100, 108), "abcdabcd", strict=True))


@pytest.mark.parametrize(
    "questions",  # when it is asked for which things, whose turn it is, and when the next one is due
    [
        [(100, "ab", "a", 102), (101.9, "ab", None, 102), (102, "ab", "b", 104)],
        [(100, "ab", "a", 102), (102.5, "ab", "b", 104)],  # a turn that comes late does not delay the next one
        [(100, "ab", "a", 102), (103.9, "ab", "b", 104)],
        [(100, "", None, 104), (104, "a", "a", 108)],
    ],
)
def test_a_turn_comes_no_earlier_than_due(questions: list[tuple[float, str, str | None, float]]) -> None:
    pacer = Pacer[str](4.0)
    for at, things, thing, due in questions:
        assert (pacer.due(things, at), pacer.at) == (thing, due)


@pytest.mark.parametrize(
    ("first", "things", "begin", "end", "order"),
    [("ab", "ab", 150, 153, "ba"), ("abcd", "cdx", 101, 107, "cdcdx")],
    ids=["missed in a pause: not made up for", "removed and new: from the next round on"],
)
def test_who_has_turns_after_the_first(first: str, things: str, begin: float, end: float, order: str) -> None:
    pacer = Pacer[str](4.0)
    assert pacer.due(first, 100) == "a"
    assert "".join(thing for _, thing in turns(pacer, things, begin, end)) == order


def test_with_an_interval_of_zero_nothing_ever_has_a_turn() -> None:
    pacer = Pacer[str](0.0)
    assert (pacer.at, pacer.due("a", 1e9)) == (inf, None)
