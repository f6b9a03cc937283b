"""Which links are named, against truth that is drawn at random: no packets, the reports of a whole fabric."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.bench.health import World, grey, loaded, quiet, soon
from sopa_ryu.channel.messages import Counts, Stream, packed
from sopa_ryu.health.observer import Observer, Told
from sopa_ryu.health.records import RECORD
from topologies import Host

LINK = 20


@pytest.mark.parametrize(("k", "share", "seconds", "trials"), [(4, 0.01, 30, 15), (24, 0.005, 30, 1), (4, 0.001, 300, 4)])
def test_a_grey_link_is_named_in_time_and_no_other(k: int, share: float, seconds: int, trials: int) -> None:
    found = grey(k, 1, share, seconds, trials, seed=5)
    assert (found["share"], found["named wrongly"]) == (1.0, 0)


@pytest.mark.parametrize(("k", "share", "dead", "within"), [(4, 1.0, True, 2.5), (8, 1.0, True, 2.0), (8, 0.1, False, 2.5)])
def test_with_self_probes_a_dead_or_bad_link_is_named_in_about_two_seconds(k: int, share: float, dead: bool, within: float) -> None:
    found = soon(k, share, dead, 5, 8.0, self_probes=True, seed=3)
    assert found["named wrongly"] == {}
    assert found["seconds (median, 90%, most)"][2] <= within, found


def test_a_burst_of_an_eighth_of_a_second_names_no_link() -> None:
    assert loaded(8, 16, 1e-4, self_probes=True, seed=3)["false names"] == {}


def test_no_link_is_named_while_only_hosts_drop_probes() -> None:
    assert quiet(4, 600, seed=5)["false alarms"] == 0


@pytest.fixture
def world() -> World:
    return World(4, 3, bad_hosts=0.0)


Change = Callable[[int, Any], Any] | None


def watched(world: World, seconds: int, its: Observer | None = None, first: int = 1, change: Change = None) -> Observer:
    """Let an observer take reports for a while, which may be changed: a host's number and its records."""
    its = its or Observer(world.elements)
    its.answers(np.ones(world.elements.hosts, bool))
    for second in range(first, first + seconds):
        reports = world.second()
        if change is not None:
            records = {host: np.frombuffer(bytearray(data), dtype=RECORD) for host, data in reports}
            reports = [Told(host, change(host, each).tobytes()) for host, each in records.items()]
        its.take(reports, second)
    return its


def named(its: Observer, world: World) -> list[tuple[str, bool | None]]:
    return [(name_of(world, one.link), one.down) for one in its.conclude().suspects]


def name_of(world: World, link: int) -> str:
    return world.elements.tree.name(world.elements.link(link))


def crossing(world: World, host: int) -> np.ndarray:
    return (world.out[:, world.lanes.src == host] % world.elements.links == LINK)[1:5].any(axis=0)


@pytest.mark.parametrize("losses", [{2: 0.5}, {2: 0.05, 3: 0.05}], ids=["one loses half", "a whole rack drops"])
def test_hosts_that_lose_what_they_receive_are_no_bad_links(world: World, losses: dict[int, float]) -> None:
    for number, share in losses.items():
        world.shares[world.elements.receives + world.elements.host_number(Host(1, 0, number))] = share
    assert named(watched(world, 60), world) == []


def test_losses_everywhere_alike_are_background(world: World) -> None:
    world.shares[: world.elements.directed] = 0.003
    health = watched(world, 60).conclude()
    assert len(health.suspects) <= 1
    assert health.background == pytest.approx(0.003, rel=0.5)


def test_two_hosts_that_lie_together_blame_no_link(world: World) -> None:
    liars = {world.elements.host_number(Host(0, 0, number)) for number in (2, 3)}

    def blame(host: int, record: Any) -> Any:
        """Say that half of what goes by the first aggregation switch is lost."""
        if host in liars:
            record["out"] = np.where(record["up1"] == 0, record["probes"] // 2, 0)
        return record

    assert named(watched(world, 60, change=blame), world) == []


def test_losses_on_a_way_unknown_name_the_link_without_a_direction(world: World) -> None:
    def lose(host: int, record: Any) -> Any:
        record["lost"][crossing(world, host)] = 1
        return record

    assert named(watched(world, 20, change=lose), world) == [(name_of(world, LINK), None)]


def test_a_link_that_fails_or_comes_back_begins_anew(world: World) -> None:
    world.shares[LINK] = 0.05
    its = watched(world, 20)
    assert named(its, world) == [(name_of(world, LINK), False)]
    its.failed([LINK], 21)
    assert named(its, world) == []
    world.shares[LINK] = 0.0
    its.failed([], 30)
    assert named(watched(world, 20, its, 40), world) == []


def test_a_link_that_loses_no_more_is_named_no_more(world: World) -> None:
    world.shares[LINK] = 0.05
    its = watched(world, 60)
    assert [link for link, _ in named(its, world)] == [name_of(world, LINK)]
    world.shares[LINK] = 0.0
    watched(world, 35, its, 61)
    assert named(its, world) == []
    assert its.conclude().loss[LINK] < 0.001


def test_links_in_use_that_no_probe_has_crossed_are_unknown(world: World) -> None:
    its, links = watched(world, 0), len(world.elements.present)
    assert its.unknown(its.conclude()) == links
    its.failed([LINK], 0)
    assert its.unknown(its.conclude()) == links - 1
    assert its.unknown(watched(world, 5, its).conclude()) == 0


def test_a_burst_of_losses_in_one_second_is_no_grey_link(world: World) -> None:
    its = watched(world, 10)
    world.shares[LINK] = 0.8
    watched(world, 1, its, 11)
    world.shares[LINK] = 0.0
    assert named(watched(world, 10, its, 12), world) == []


def test_forged_records_are_counted_and_change_nothing(world: World) -> None:
    its, tree = watched(world, 5), world.elements.tree
    before, own, other = its.conclude(), tree.ip(Host(0, 0, 3)), tree.ip(Host(2, 0, 2))
    for stream in (Stream(own, 0, 255), Stream(other, 0, 2), Stream(other, 2, 0), Stream(other, 0, 255)):
        its.take([Told(0, packed([Counts(stream, 4, lost_out=4)]))], 6)
    assert its.forged == {0: 4}
    assert np.array_equal(its.conclude().loss, before.loss, equal_nan=True)
    its.take([Told(0, packed([Counts(Stream(other, 0, 0), 60_000)]))], 7)
    assert its.forged == {0: 5}


def test_self_probes_of_the_reporting_host_alone_are_records_and_only_where_there_are_such(world: World) -> None:
    tree = world.elements.tree
    own, mate = tree.ip(Host(0, 0, 2)), tree.ip(Host(0, 0, 3))
    good = [Counts(Stream(own, 1, 255), 4), Counts(Stream(own, 0, 1), 4, lost=1)]
    bad = [Counts(Stream(own, 2, 255), 4), Counts(Stream(own, 0, 2), 4), Counts(Stream(mate, 0, 1), 4), Counts(Stream(mate, 0), 4)]
    for self_probes, refused in ((True, 4), (False, 6)):
        its = watched(world, 1, Observer(world.elements, self_probes=self_probes))
        its.take([Told(0, packed([*good, *bad]))], 2)
        assert its.forged == {0: refused}


def test_delays_of_links_are_told_apart(world: World) -> None:
    def slow(host: int, record: Any) -> Any:
        record["mean"] += np.where(crossing(world, host), 500, 0).astype(np.uint32)
        return record

    delays = watched(world, 30, change=slow).conclude().delay_us
    assert delays[LINK] == pytest.approx(512, abs=60)
    assert np.delete(delays, LINK).max() < 60


@pytest.mark.parametrize(("noise", "made_up"), [(1e-4, 0), (3e-4, 2)])
def test_ordinary_noise_names_no_link_nor_does_one_host_beside_it(world: World, noise: float, made_up: int) -> None:
    its, liar, reports = Observer(world.elements), 5, itertools.count()
    world.shares[: world.elements.directed] = noise

    def blame(host: int, record: Any) -> Any:
        if host == liar and next(reports) % 3 == 0:
            record["out"][np.flatnonzero(crossing(world, host))[:1]] += made_up
        return record

    for second in range(1, 300 - 90 * made_up, 4):
        watched(world, 4, its, second, blame)
        assert named(its, world) == []
    assert its.conclude().background > 0.4 * noise  # hosts may lose the rest: nothing tells
