"""Green threads of one kind leave the others their turn, in order, and what has arrived together is taken together."""

from __future__ import annotations

import time
from itertools import pairwise

import eventlet
import pytest

from sopa_ryu.runtime.moment import Moment
from sopa_ryu.runtime.turns import Turns


def work(turns: Turns, seconds: float, pieces: int, done: list[str], name: str, first: bool = False) -> None:
    for _ in range(pieces):
        turns.take(first)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        done.append(name)


def test_others_have_their_turn_however_many_work() -> None:
    turns, done, looks = Turns(0.005), [], []
    threads = [eventlet.spawn(work, turns, 0.001, 4, done, str(number)) for number in range(60)]

    def other() -> None:
        while len(done) < 240:
            looks.append(len(done))
            eventlet.sleep(0)

    eventlet.spawn(other).wait()
    for thread in threads:
        thread.wait()
    assert len(done) == 240
    # at most so many pieces fit into one time, and one piece is never cut
    assert max(after - before for before, after in pairwise(looks)) <= 6
    assert all(done.count(str(number)) == 4 for number in range(60))


def test_who_is_first_goes_before_those_that_wait() -> None:
    turns, done = Turns(0.002), []
    threads = [eventlet.spawn(work, turns, 0.003, 1, done, "other") for _ in range(10)]
    eventlet.sleep(0)
    threads.append(eventlet.spawn(work, turns, 0.0, 1, done, "first", True))
    for thread in threads:
        thread.wait()
    assert done.index("first") <= 3


def test_who_is_killed_in_the_line_holds_nobody_up() -> None:
    turns, done = Turns(0.001), []
    threads = [eventlet.spawn(work, turns, 0.002, 2, done, str(number)) for number in range(6)]
    eventlet.sleep(0)
    for thread in threads[2:4]:
        thread.kill()
    for number in (0, 1, 4, 5):
        threads[number].wait()
    assert {name for name in done if done.count(name) == 2} >= {"0", "1", "4", "5"}


def test_who_fails_holds_nobody_up(capsys: pytest.CaptureFixture[str]) -> None:
    turns, done = Turns(0.001), []

    def fail() -> None:
        turns.take()
        raise RuntimeError("meant")

    busy = eventlet.spawn(work, turns, 0.002, 1, done, "busy")
    failing, other = eventlet.spawn(fail), eventlet.spawn(work, turns, 0.0, 1, done, "other")
    for thread in (busy, other):
        thread.wait()
    with pytest.raises(RuntimeError, match="meant"):
        failing.wait()
    assert sorted(done) == ["busy", "other"]
    capsys.readouterr()  # eventlet prints the traceback


def test_the_first_thing_is_taken_without_delay_and_what_follows_closely_together() -> None:
    taken: list[list[str]] = []
    moment = Moment[str](taken.append, spacing=0.2)
    moment.add("a", "a1")
    moment.add("b", "b1")
    assert not taken
    eventlet.sleep(0)
    eventlet.sleep(0)
    assert taken == [["a1", "b1"]]
    for number in range(2, 5):
        moment.add("a", f"a{number}")
        eventlet.sleep(0)
    assert len(taken) == 1
    eventlet.sleep(0.3)
    assert taken[1:] == [["a2", "a3", "a4"]]


def test_what_a_source_has_said_is_taken_before_its_next_answer() -> None:
    taken: list[list[str]] = []
    moment = Moment[str](taken.append, spacing=60.0)
    moment.end()
    moment.add("a", "a1")
    moment.end("b")
    assert not taken
    moment.end("a")
    moment.end("a")
    assert taken == [["a1"]]
    moment.add("b", "b1")
    moment.add("a", "a2")
    moment.end()
    eventlet.sleep(0.05)
    assert taken == [["a1"], ["b1", "a2"]]
