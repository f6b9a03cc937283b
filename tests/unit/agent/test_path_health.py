"""Which paths a host leaves, and takes again, against simulated truth: fabrics whose links lose what a test says."""

from __future__ import annotations

import random
from collections.abc import Callable
from ipaddress import IPv4Address
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section, WayTo, sections
from sopa_ryu.agent.paths.path_sets import PathSets
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.loss_window import CHANCE, LossWindow, by_chance
from sopa_ryu.agent.probing.path_health import HOLD_SECONDS, MAX_HOLD_SECONDS, PathHealth
from sopa_ryu.channel.probes import Stream
from tests.models.probed_fabric import ProbedFabric
from topologies import Clos, Failures, FatTree, Host, Level, Switch

SIZES = [4, 8, 16]


def warm(k: int, seed: int, **options: float) -> ProbedFabric:
    its = ProbedFabric(FatTree(k), seed, **options)  # type: ignore[arg-type]
    its.run(3.0)
    assert its.health.avoided == NOTHING
    return its


def break_one(its: ProbedFabric, loss: float = 1.0) -> tuple[Switch, Switch]:
    """Let one link on the way to the busy rack lose packets in the direction out; return it."""
    up = its.draw.choice(its.tree.choices_between(its.host, its.busy_host))
    pair = its.draw.choice(its.way_out(its.busy_host, up))
    its.loss[pair] = loss
    return pair


def good(its: ProbedFabric) -> bool:
    """Return True if nothing that is left to the busy rack loses everything."""
    return all(its.lost_share(its.busy_host, up) < 1 for up in its.kept(its.busy_host))


# -- dead links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_a_silent_link_is_left_and_taken_again_after_it_has_healed(k: int, seed: int) -> None:
    its = warm(k, seed)
    pair = break_one(its)
    paths = len(its.tree.choices_between(its.host, its.busy_host))
    # a path is probed once in so many turns of the busy rack, three times each
    assert its.run_until(lambda: good(its), 3.5 * (paths + 4) / 150 + 0.3) < 10
    its.run(8.0)
    assert good(its)
    assert len(its.kept(its.busy_host)) >= paths / 2
    del its.loss[pair]
    assert its.run_until(lambda: its.health.avoided == NOTHING, 240) < 240


def test_the_median_of_leaving_a_silent_link_at_k_4_is_below_100_ms_with_150_probes_a_second_to_its_rack() -> None:
    took = []
    for seed in range(11):
        its = warm(4, seed)
        its.run(its.draw.random())
        break_one(its)
        took.append(its.run_until(lambda its=its: good(its), 2.0))
    assert sorted(took)[5] < 0.1, took
    assert max(took) < 0.4


@pytest.mark.parametrize("seed", range(2))
def test_paths_that_share_a_silent_uplink_are_left_together(seed: int) -> None:
    its = warm(8, seed)
    up1 = its.draw.randrange(4)
    own = its.tree.edge_of(its.host)
    above = Switch(Level.AGGREGATION, own.pod, up1)
    its.loss[own, above] = 1.0
    its.run(0.5)
    assert Section(up1) in its.health.avoided.dead
    for host in its.tree.hosts():
        if host[:2] != its.host[:2]:
            assert all(up[0] != up1 for up in its.kept(host))
            assert len(its.kept(host)) == len(its.tree.choices_between(its.host, host)) * 3 // 4


def test_what_a_dead_link_far_away_explains_is_not_held_against_the_uplink() -> None:
    health, far, near = PathHealth(), IPv4Address("10.2.1.3"), IPv4Address("10.1.0.3")
    now = 0.0
    for n in range(400):
        now += 0.005
        up1, up2 = n % 2, n // 2 % 2
        health.decided(Fate(Stream(far, up1, up2), came_back=n < 100 or up1 == 1), now)
        if n < 140 and n % 10 == 0:  # other racks answer over that uplink, and then are not probed any more
            health.decided(Fate(Stream(near, 0, 0), came_back=True), now)
    assert health.avoided.dead == {Section(0, None, 2, 1)}


@pytest.mark.parametrize("seed", range(2))
def test_a_way_back_that_is_silent_is_left_too_and_a_loss_that_is_known_to_be_on_it_is_none(seed: int) -> None:
    its = warm(4, seed)
    pair = break_one(its)
    its.loss = {pair[::-1]: 1.0}
    its.run(1.0)
    assert its.health.avoided.dead  # nobody has told that the probes arrived
    health, far = PathHealth(), IPv4Address("10.2.1.3")
    for n in range(400):
        up1, up2 = n % 2, n // 2 % 2
        health.decided(Fate(Stream(far, up1, up2), up1 == 1, None if up1 else False), 0.01 * n)
        health.tick(0.01 * n)
    assert health.avoided == NOTHING


def dead_hosts(its: ProbedFabric) -> None:
    its.dead_hosts = {its.busy_host, its.tree.host_by_ip(its.assigned[0].destination)}


def losses_everywhere(its: ProbedFabric, share: float) -> None:
    for link in its.tree.links():
        if not isinstance(link.lower, Host):
            its.loss[link.lower, link.upper] = its.loss[link.upper, link.lower] = share / 8


def a_full_queue(its: ProbedFabric) -> None:
    its.crowded = {break_one(its, 0.05)}


NOBODYS: dict[str, tuple[Callable[[ProbedFabric], None], float]] = {
    "hosts that do not answer": (dead_hosts, 20.0),
    "nothing comes back": (lambda its: setattr(its, "own_loss", 1.0), 10.0),
    "a host that drops a twentieth": (lambda its: setattr(its, "own_loss", 0.05), 30.0),
    "a host that drops most": (lambda its: setattr(its, "own_loss", 0.6), 30.0),
    "no loss": (lambda its: losses_everywhere(its, 0.0), 30.0),
    "all paths alike, few": (lambda its: losses_everywhere(its, 0.01), 30.0),
    "all paths alike, many": (lambda its: losses_everywhere(its, 0.05), 30.0),
    "a full queue": (a_full_queue, 40.0),
}


@pytest.mark.parametrize(
    ("what", "k"), [(what, k) for n, what in enumerate(NOBODYS) for k in ((4,) if n % 4 else (4, 8))]
)
def test_losses_that_are_no_paths_fault_leave_none(what: str, k: int) -> None:
    cause, seconds = NOBODYS[what]
    its = warm(k, 1 if k == 4 else 0)
    cause(its)
    its.run(seconds)
    assert its.health.avoided == NOTHING
    assert [change for change in its.health.changes if change.left] == []
    its.own_loss = 0.0
    its.run(5.0)
    assert its.health.avoided == NOTHING


@pytest.mark.parametrize("seed", range(2))
def test_a_dead_rack_is_none_of_the_paths_fault(seed: int) -> None:
    its = warm(4, seed)
    rack = its.tree.edge_of(its.busy_host)
    for j in range(2):
        its.loss[Switch(Level.AGGREGATION, rack.pod, j), rack] = 1.0
    its.run(5.0)
    assert len(its.kept(its.busy_host)) == 4
    for host in its.tree.hosts():
        if host.pod not in (its.host.pod, rack.pod):
            assert len(its.kept(host)) == 4


def test_a_link_that_flaps_is_held_longer_each_time() -> None:
    its = warm(4, 0, per_second=25.0)
    pair = break_one(its)
    for _ in range(7):
        its.loss[pair] = 1.0
        its.run_until(lambda: good(its) and bool(its.health.avoided), 3.0)
        del its.loss[pair]
        its.run_until(lambda: its.health.avoided == NOTHING, 200.0)
        its.run(1.0)
    held = [then - at for (at, one), (then, _) in zip(its.avoided, its.avoided[1:], strict=False) if one]
    assert held[0] < 3 * HOLD_SECONDS
    assert max(held) >= MAX_HOLD_SECONDS
    assert its.run_until(lambda: its.health.avoided == NOTHING, 200) < 200


# -- lossy links --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "seconds", "seed"), [(0.01, 150, 0), (0.02, 70, 1), (0.05, 25, 2), (0.1, 12, 0)])
def test_a_lossy_link_is_left_and_no_other(share: float, seconds: float, seed: int) -> None:
    its = warm(4, seed)
    pair = break_one(its, share)
    took = its.run_until(lambda: all(its.lost_share(its.busy_host, up) == 0 for up in its.kept(its.busy_host)), seconds)
    assert took < seconds
    for section in (*its.health.avoided.lossy, *its.health.avoided.dead):
        ways = [
            up for up in its.tree.choices_between(its.host, its.busy_host)
            if section.covers(WayTo(its.busy_host.pod, its.busy_host.edge, up))
        ]  # fmt: skip
        assert any(pair in its.way_out(its.busy_host, up) for up in ways)
    del its.loss[pair]
    assert its.run_until(lambda: its.health.avoided == NOTHING, 240) < 240


def test_losses_of_two_separate_paths_leave_both() -> None:
    its = warm(4, 3)
    lossy = [(0, 0), (1, 1)]
    for up in lossy:
        its.loss[its.way_out(its.busy_host, up)[1]] = 0.1
    its.run(60.0)
    assert its.kept(its.busy_host) == ((1, 0), (0, 1))


# -- the host's own packets ---------------------------------------------------------------------------------------------

ALL = {(0, 0): 1000, (1, 0): 1000, (0, 1): 1000, (1, 1): 1000}


def traffic(
    health: PathHealth, bad: dict[tuple[int, int], float], seconds: int, rng: random.Random, everywhere: float
) -> None:
    """Send evenly on four paths to a rack; what is lost is sent again."""
    for second in range(seconds):
        health.carried(ALL, float(second))
        for label, packets in ALL.items():
            for _ in range(packets):
                if rng.random() < bad.get(label, everywhere):
                    health.retransmitted((2, 1), label, float(second))
        health.tick(second + 0.5)


@pytest.mark.parametrize("seed", range(2))
def test_retransmissions_of_one_path_leave_it_without_any_probe(seed: int) -> None:
    health = PathHealth()
    traffic(health, {(0, 1): 0.03}, 5, random.Random(seed), 0.001)
    avoided = health.avoided
    assert avoided.kept(Switch(Level.EDGE, 2, 1), tuple(ALL)) == ((0, 0), (1, 0), (1, 1))
    assert health.changes[0].cause == "share"
    for second in range(5, 120):
        health.tick(float(second))
    assert health.avoided == NOTHING  # nothing has been heard of it
    assert health.changes[-1].cause == "unknown"


@pytest.mark.parametrize("everywhere", [0.001, 0.02])
def test_retransmissions_of_all_paths_alike_leave_none(everywhere: float) -> None:
    health = PathHealth()
    traffic(health, {}, 60, random.Random(1), everywhere)
    assert health.changes == []


def test_retransmissions_of_a_crowded_path_are_congestion() -> None:
    health = PathHealth()
    for second in range(30):
        health.decided(Fate(Stream(IPv4Address("10.2.1.3"), 0, 1), True, None, 1, True), float(second))
        health.carried(ALL, float(second))
        for _ in range(20):
            health.retransmitted((2, 1), (0, 1), second + 0.1)
        health.tick(second + 0.5)
    assert health.avoided == NOTHING


def test_what_a_host_sends_again_while_it_drops_packets_itself_says_nothing() -> None:
    health = PathHealth()
    for second in range(30):
        health.carried(ALL, float(second))
        for _ in range(20):
            health.retransmitted((2, 1), (0, 1), second + 0.1)
        health.dropped(second + 0.2)
        for _ in range(20):
            health.retransmitted((2, 1), (0, 1), second + 0.9)
        health.tick(second + 0.95)
    assert health.changes == []


# -- properties ---------------------------------------------------------------------------------------------------------

HOPS = st.integers(0, 3)
WAYS = st.builds(WayTo, HOPS, HOPS, st.one_of(st.tuples(HOPS), st.tuples(HOPS, HOPS)))
SECTIONS = WAYS.flatmap(lambda way: st.sampled_from(sections(way)))


@given(WAYS, st.frozensets(SECTIONS, max_size=12), st.dictionaries(SECTIONS, st.floats(0.001, 0.99), max_size=12))
def test_the_floor_holds_whatever_is_avoided(way: WayTo, dead: frozenset[Section], lossy: dict[Section, float]) -> None:
    tree = FatTree(8)
    choices = tree.choices("inter-pod" if len(way.up) == 2 else "inter-rack")
    avoided, rack = Avoided(dead, lossy), Switch(Level.EDGE, way.pod, way.edge)
    kept = avoided.kept(rack, choices)
    assert kept
    assert kept == tuple(up for up in choices if up in kept)
    bad = {up for up in choices if any(one.covers(WayTo(rack.pod, rack.index, up)) for one in dead)}
    if len(bad) < len(choices):
        assert not bad & set(kept)
    gone = set(choices) - set(kept) - bad
    assert not gone or len(set(choices) - set(kept)) <= len(choices) // 2
    for up in gone:
        assert any(one.covers(WayTo(rack.pod, rack.index, up)) for one in lossy)


@given(WAYS)
def test_sections_are_nested_as_they_say(way: WayTo) -> None:
    crossed = sections(way)
    assert all(section.covers(way) for section in crossed)
    assert crossed[0].includes(crossed[-1])
    assert all(section.includes(crossed[-1]) for section in crossed)


@given(st.integers(0, 40), st.integers(0, 60), st.floats(0.01, 0.9))
@settings(max_examples=200)
def test_the_bound_of_chance_is_above_the_binomial_tail(hits: int, others: int, part: float) -> None:
    count = hits + others
    exact = sum(comb(count, n) * part**n * (1 - part) ** (count - n) for n in range(hits, count + 1))
    assert by_chance(hits, count, count * part) >= min(1.0, exact) * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_window_is_what_its_seconds_add_up_to(seed: int) -> None:
    draw, window, kept = random.Random(seed), LossWindow(), []
    now = 0.0
    for _ in range(3000):
        now += draw.expovariate(30.0)
        way, lost = WayTo(2, draw.randrange(2), (draw.randrange(2), draw.randrange(2))), draw.random() < 0.1
        window.probed(way, lost, now)
        kept.append((int(now), way, lost))
    recent = [(way, lost) for second, way, lost in kept if second > int(now) - 30]
    assert sum(window._whole.sent.values()) == len(recent)
    assert sum(window._whole.lost.values()) == sum(lost for _, lost in recent)


def test_a_table_without_avoided_paths_follows_failures_and_healings() -> None:
    tree = FatTree(4)
    sets = PathSets(tree, tree.host("h0_0_2"), seed=7, policy=Policy.ROUND_ROBIN)
    far = tree.ip(tree.host("h2_1_3"))
    avoided = Avoided(frozenset({Section(0, 1)}))
    failures = Failures(tree)

    def paths(failures: Failures, avoided: Avoided) -> set[tuple[int, int]]:
        table = sets.follow(failures, avoided)
        assert table is not None
        return set(table.candidates(far) or ())

    assert paths(failures, NOTHING) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert paths(failures, avoided) == {(0, 0), (1, 0), (1, 1)}
    assert sets.avoided_paths == 6  # to each rack of other pods
    assert sets.follow(failures, avoided) is None
    one = failures.with_failed("c1_0")
    assert paths(one, avoided) == {(0, 0), (1, 1)}
    two = one.with_failed("a0_0-c0_0").with_failed("c1_1")
    assert paths(two, avoided) == {(0, 1)}  # the last one stays
    assert sets.avoided_paths == 0
    assert paths(one, avoided) == {(0, 0), (1, 1)}
    assert paths(one, NOTHING) == {(0, 0), (0, 1), (1, 1)}


def test_weights_of_what_is_left_stay_in_proportion() -> None:
    tree = Clos(1, 4, 3, 0, 2, mbit={"edge": 40}, links={f"e0_{leaf}-a0_1": 10 for leaf in range(4)})
    sets = PathSets(tree, next(tree.hosts()), seed=7, policy=Policy.ROUND_ROBIN)
    table = sets.follow(Failures(tree), Avoided(frozenset({Section(0)})))
    assert table is not None
    order = table.candidates(tree.ip(tree.host("h0_2_2")))
    assert order is not None
    assert sorted(order) == [(1, 255), *[(2, 255)] * 4]


def test_the_names_of_links_are_those_of_the_way_out() -> None:
    tree, own = FatTree(4), FatTree(4).switch("e0_0")
    names = [section.link(tree, own) for section in sections(WayTo(2, 1, (0, 1)))]
    assert names == ["e0_0-a0_0", "a0_0-c0_1", "a2_0-c0_1", "e2_1-a2_0", None]
    assert sections(WayTo(0, 1, (1,)))[-1].link(tree, own) is None


def test_one_test_raises_a_false_alarm_less_often_than_it_says() -> None:
    assert by_chance(5, 5, 5 * 0.06) <= CHANCE < by_chance(5, 5, 5 * 0.07)
