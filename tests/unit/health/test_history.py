"""The last hour of links: what is recorded of reports of a fabric, and what is read of it."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from experiments.bench.measure_health import World
from sopa_ryu.health.history import CELL, ROWS, SECONDS, History, Point
from sopa_ryu.health.observer import EVALUATION_SECONDS, Observer
from sopa_ryu.health.recorder import Recorder

LINK, OTHER = 20, 3


@pytest.fixture
def history() -> Iterator[History]:
    its = History(32)
    yield its
    its.close()


def observe(observer: Observer, world: World, seconds: range) -> None:
    for second in seconds:
        observer.take(world.second(), second)
        if second % EVALUATION_SECONDS == 0:
            observer.conclude()


def observer(world: World, history: History) -> Observer:
    its = Observer(world.elements, recorder=Recorder(world.elements, history))
    its.answers(np.ones(world.elements.hosts, bool))
    return its


def test_losses_and_delays_are_those_of_their_ten_seconds(history: History) -> None:
    world = World(4, 3, bad_hosts=0.0)
    its = observer(world, history)
    observe(its, world, range(60))
    world.shares[world.elements.links + LINK] = 0.1  # downwards
    observe(its, world, range(60, 120))
    world.shares[world.elements.links + LINK] = 0.0
    observe(its, world, range(120, 180))
    points = list(history.read(LINK, 18))
    assert [point.slot for point in points] == list(range(18))
    assert all(900 <= point.sent <= 1300 for point in points)
    lossy = [point.down or 0.0 for point in points[6:12]]
    assert np.mean(lossy) == pytest.approx(0.1, rel=0.25)
    assert min(lossy) > 0.05
    for link in range(32):
        its_points = list(history.read(link, 18))
        assert max(point.up or 0.0 for point in its_points) < 0.012
        others = its_points if link != LINK else points[:6] + points[12:]
        assert max(point.down or 0.0 for point in others) < 0.012
    assert points[-1].delay_us is not None


def test_a_link_that_has_failed_has_no_probes_and_ten_seconds_without_reports_are_empty(history: History) -> None:
    world = World(4, 3, bad_hosts=0.0)
    its = observer(world, history)
    observe(its, world, range(20))
    its.failed([LINK], 20)
    observe(its, world, range(20, 40))
    observe(its, world, range(60, 70))  # nothing came between
    assert [point.sent > 0 for point in history.read(LINK, 7)] == [True, True, False, False, False, False, False]
    assert [point.sent > 0 for point in history.read(OTHER, 7)] == [True, True, True, True, False, False, True]
    assert list(history.read(LINK, 7))[3] == Point(3, 0, None, None, None)


def test_an_hour_is_kept_and_what_is_older_is_overwritten(history: History) -> None:
    for slot in range(ROWS + 50):
        history.begin(slot)[CELL.size * OTHER :][: CELL.size] = CELL.pack(slot, 0.5, 0.0, 2.0)
        history.end(slot)
    points = list(history.read(OTHER, ROWS + 50))
    assert [point.sent for point in points] == list(range(51, ROWS + 50))
    assert SECONDS * len(points) == pytest.approx(3600, abs=SECONDS)
    assert list(history.read(OTHER, 3 * ROWS)) == []  # long after


def test_what_one_process_writes_another_reads(history: History) -> None:
    copy = os.dup(history.descriptor)
    other = History(32, copy)
    other.begin(5)[:] = CELL.pack(7, 0.0, 1.0, float("nan")) * 32
    assert list(history.read(0, 6)) == []  # not yet
    other.end(5)
    assert list(history.read(31, 6)) == [Point(5, 7, 0.0, 1.0, None)]
    other.close()


def test_figures_that_do_not_fit_are_the_largest_that_do(history: History) -> None:
    world = World(4, 3, bad_hosts=0.0)
    its = observer(world, history)
    observe(its, world, range(10))
    (slot,) = its._windows[1].last(1)
    slot.crossings[:] = 1e6
    Recorder(world.elements, history).write(slot, np.ones(world.elements.total + 1), np.full(32, 1e9))
    (point,) = history.read(OTHER, 1)
    assert point.sent == 65_535
    assert point.delay_us == pytest.approx(16 * 65_504)
