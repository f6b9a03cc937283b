"""The pacer: every thing has one turn per interval, evenly spread, and pauses are not made up for."""

from __future__ import annotations

from math import inf

import pytest

from sopa_ryu.fabric.pacer import Pacer


def turns(pacer: Pacer[str], things: str, start: float, end: float) -> list[tuple[float, str]]:
    """Return the turns that come from one time to another, each when it is due."""
    found = []
    now = max(start, pacer.at)
    while now <= end:
        thing = pacer.due(things, now)
        if thing is not None:
            found.append((now, thing))
        now = max(now, pacer.at)
    return found


def test_each_thing_has_one_turn_per_interval_evenly_spread() -> None:
    assert turns(Pacer(4.0), "abcd", 100, 107) == list(zip(range(100, 108), "abcdabcd", strict=True))


def test_a_turn_comes_no_earlier_than_due() -> None:
    pacer = Pacer[str](4.0)
    assert pacer.due("ab", 100) == "a"
    assert pacer.at == 102
    assert pacer.due("ab", 101.9) is None
    assert pacer.due("ab", 102) == "b"


@pytest.mark.parametrize("late", [0.5, 1.9])
def test_a_turn_that_comes_late_does_not_delay_the_next_one(late: float) -> None:
    pacer = Pacer[str](4.0)
    pacer.due("ab", 100)
    assert pacer.due("ab", 102 + late) == "b"
    assert pacer.at == 104


def test_turns_that_were_missed_in_a_pause_are_not_made_up_for() -> None:
    pacer = Pacer[str](4.0)
    pacer.due("ab", 100)
    assert [thing for _, thing in turns(pacer, "ab", 150, 153)] == ["b", "a"]


def test_a_removed_one_has_no_turn_and_a_new_one_has_it_in_the_next_round() -> None:
    pacer = Pacer[str](4.0)
    assert pacer.due("abcd", 100) == "a"
    assert [thing for _, thing in turns(pacer, "cdx", 101, 107)] == ["c", "d", "c", "d", "x"]


def test_without_things_there_is_no_turn_but_it_goes_on() -> None:
    pacer = Pacer[str](4.0)
    assert pacer.due("", 100) is None
    assert pacer.at == 104
    assert pacer.due("a", 104) == "a"


def test_with_an_interval_of_zero_nothing_ever_has_a_turn() -> None:
    pacer = Pacer[str](0.0)
    assert pacer.at == inf
    assert pacer.due("a", 1e9) is None
