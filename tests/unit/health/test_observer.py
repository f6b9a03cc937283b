"""Which links are named, against truth that is drawn at random: no packets, the reports of a whole fabric."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.bench.measure_health import World, grey, quiet, trial
from sopa_ryu.channel.probes import Counts, Report, Stream, read_report, report_text
from sopa_ryu.health.observer import Observer, Told
from sopa_ryu.health.records import RECORD
from topologies import Host

SHARES = {4: 0.01, 24: 0.005}


@pytest.mark.parametrize(("k", "trials"), [(4, 15), (24, 1)])
def test_a_grey_link_is_named_in_half_a_minute_and_no_other(k: int, trials: int) -> None:
    found = grey(k, 1, SHARES[k], 30, trials, seed=5)
    assert (found["share"], found["named wrongly"]) == (1.0, 0)


def test_a_link_that_loses_a_thousandth_is_named_in_five_minutes() -> None:
    found = grey(4, 1, 0.001, 300, 4, seed=5)
    assert (found["share"], found["named wrongly"]) == (1.0, 0)


def test_no_link_is_named_while_only_hosts_drop_probes() -> None:
    assert quiet(4, 600, seed=5)["false alarms"] == 0


@pytest.fixture
def world() -> World:
    return World(4, 3, bad_hosts=0.0)


def watched(world: World, seconds: int, observer: Observer | None = None, first: int = 1) -> Observer:
    its = observer or Observer(world.elements)
    its.answers(np.ones(world.elements.hosts, bool))
    for second in range(first, first + seconds):
        its.take(world.second(), second)
    return its


def named(its: Observer, world: World) -> list[tuple[str, bool | None]]:
    tree = world.elements.tree
    return [(tree.name(world.elements.link(one.link)), one.down) for one in its.conclude().suspects]


def test_a_host_that_loses_half_of_all_it_receives_is_no_bad_link(world: World) -> None:
    host = world.elements.host_number(Host(1, 0, 2))
    world.shares[world.elements.receives + host] = 0.5
    assert named(watched(world, 60), world) == []


def test_a_rack_whose_hosts_all_drop_is_no_bad_link(world: World) -> None:
    for host in (2, 3):
        world.shares[world.elements.receives + world.elements.host_number(Host(1, 0, host))] = 0.05
    assert named(watched(world, 60), world) == []


def test_losses_everywhere_alike_are_background(world: World) -> None:
    world.shares[: world.elements.directed] = 0.003
    health = watched(world, 60).conclude()
    assert len(health.suspects) <= 1
    assert health.background == pytest.approx(0.003, rel=0.5)


def test_two_hosts_that_lie_together_blame_no_link(world: World) -> None:
    its = Observer(world.elements)
    its.answers(np.ones(world.elements.hosts, bool))
    liars = {world.elements.host_number(Host(0, 0, number)) for number in (2, 3)}
    for second in range(1, 61):
        reports = []
        for host, records in world.second():
            if host in liars:
                _, records, _ = _blaming(world, host)
            reports.append(Told(host, records))
        its.take(reports, second)
    assert named(its, world) == []


def _blaming(world: World, host: int) -> tuple[int, bytes, int]:
    """Return a report by which half of what goes by the first aggregation switch is lost."""
    its, tree = world.lanes, world.elements.tree
    mine = np.flatnonzero(its.src == host)
    streams = {
        Stream(tree.ip(world.elements.host(int(its.dst[at]))), int(its.up1[at]), int(its.up2[at])): None for at in mine
    }
    counts = tuple(Counts(stream, 4, lost_out=2 if stream.up1 == 0 else 0, mean_us=50) for stream in streams)
    found = read_report(json.loads(report_text(Report(1, counts))))
    assert found is not None
    return found


def test_losses_on_a_way_unknown_name_the_link_without_a_direction(world: World) -> None:
    its = Observer(world.elements)
    its.answers(np.ones(world.elements.hosts, bool))
    link = 20
    for second in range(1, 21):
        reports = []
        for host, records in world.second():
            record = np.frombuffer(bytearray(records), dtype=RECORD)
            crossing = _crossing(world, host, link)
            record["lost"][crossing] = 1
            reports.append(Told(host, record.tobytes()))
        its.take(reports, second)
    assert named(its, world) == [(world.elements.tree.name(world.elements.link(link)), None)]


def _crossing(world: World, host: int, link: int) -> np.ndarray:
    its = world.lanes
    mine = its.src == host
    return (world.out[:, mine] % world.elements.links == link)[1:5].any(axis=0)


def test_a_link_that_fails_or_comes_back_begins_anew(world: World) -> None:
    link = 20
    world.shares[link] = 0.05
    its = watched(world, 20)
    name = world.elements.tree.name(world.elements.link(link))
    assert named(its, world) == [(name, False)]
    its.failed([link], 21)
    assert named(its, world) == []
    world.shares[link] = 0.0
    its.failed([], 30)
    assert named(watched(world, 20, its, 40), world) == []


def test_a_burst_of_losses_in_one_second_is_no_grey_link(world: World) -> None:
    its = watched(world, 10)
    world.shares[20] = 0.8
    watched(world, 1, its, 11)
    world.shares[20] = 0.0
    assert named(watched(world, 10, its, 12), world) == []


def test_forged_records_are_counted_and_change_nothing(world: World) -> None:
    its = watched(world, 5)
    before = its.conclude()
    tree = world.elements.tree
    own, other = tree.ip(Host(0, 0, 3)), tree.ip(Host(2, 0, 2))
    for stream in (Stream(own, 0, 255), Stream(other, 0, 2), Stream(other, 2, 0), Stream(other, 0, 255)):
        found = read_report(json.loads(report_text(Report(1, (Counts(stream, 4, lost_out=4),)))))
        assert found is not None
        its.take([Told(0, found[1])], 6)
    assert its.forged == {0: 4}
    assert np.array_equal(its.conclude().loss, before.loss, equal_nan=True)
    flood = read_report(json.loads(report_text(Report(1, (Counts(Stream(other, 0, 0), 60_000),)))))
    assert flood is not None
    its.take([Told(0, flood[1])], 7)
    assert its.forged == {0: 5}


def test_delays_of_links_are_told_apart(world: World) -> None:
    slow, its = 20, Observer(world.elements)
    its.answers(np.ones(world.elements.hosts, bool))
    for second in range(1, 31):
        reports = []
        for host, records in world.second():
            record = np.frombuffer(bytearray(records), dtype=RECORD)
            record["mean"] += np.where(_crossing(world, host, slow), 500, 0).astype(np.uint32)
            reports.append(Told(host, record.tobytes()))
        its.take(reports, second)
    delays = its.conclude().delay_us
    assert delays[slow] == pytest.approx(512, abs=60)
    assert np.delete(delays, slow).max() < 60


def test_a_trial_with_nothing_bad_names_nothing(world: World) -> None:
    assert trial(world, set(), 60) == (None, 0)
