"""Which paths a host leaves, and takes again, against simulated truth: fabrics whose links lose what a test says."""

import heapq
import random
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from itertools import islice, pairwise
from math import comb, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section, Up, WayTo, sections
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.loss_window import LossWindow, Target, by_chance
from sopa_ryu.agent.probing.path_health import PathHealth
from sopa_ryu.agent.reaction import PARTNERS
from sopa_ryu.channel.messages import Stream
from tests.helpers.golden import Script, Step, each_script
from topologies import Clos, FatTree, Host, Level, Switch

DELAY, DEADLINE, TICK = 0.001, 0.03, 0.05
RATE, ASSIGNED_RATE = 200.0, 50.0


class ProbedFabric:
    """One host that probes: 50 probes a second of an assignment, or half of the rate, and the rest of the busy rack.

    Every link has a loss for each direction; a probe crosses the links out and the same ones back.
    """

    def __init__(self, tree: Clos, seed: int, rate: float = RATE) -> None:
        assigned_rate = min(ASSIGNED_RATE, rate / 2)
        self._intervals = 1 / assigned_rate, 1 / (rate - assigned_rate)
        self.tree, self.draw = tree, random.Random(f"{seed} probed fabric")
        self.health = PathHealth()
        hosts = list(tree.hosts())
        self.host = self.draw.choice(hosts)
        elsewhere = [host for host in hosts if host[:2] != self.host[:2]]
        self.busy_host = self.draw.choice([host for host in elsewhere if host.pod != self.host.pod] or elsewhere)
        assigned = self.draw.sample(elsewhere, min(8, len(elsewhere)))
        paths = [(host, self.draw.choice(tree.choices_between(self.host, host))) for host in assigned]
        self.assigned = [self._stream(*path) for path in paths]
        partners = islice(tree.hosts_of(tree.edge_of(self.busy_host)), PARTNERS)
        ups = tree.choices_between(self.host, self.busy_host)
        self._busy = dict.fromkeys(self._stream(host, up) for host in partners for up in ups)
        self.loss: dict[tuple[Switch, Switch], float] = {}  # by neighbours, from and to
        self.crowded: set[tuple[Switch, Switch]] = set()  # such with a full queue
        self.dead_hosts: set[Host] = set()
        self.lies: Callable[[Host, Up], bool] = lambda host, up: False
        """Whether a host drops a probe that has come by a path."""
        self.own_loss = self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._turns = [0, 0]
        self._at(0.0, self._assigned_turn)
        self._at(0.001, self._busy_turn)
        self._at(0.002, self._tick)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = until

    def run_until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Let time pass until a condition holds; return how long that took, or infinity."""
        begin = self.now
        while not condition():
            if self.now - begin > seconds:
                return float("inf")
            self.run(0.01)
        return self.now - begin

    def way_out(self, host: Host, up: Up) -> list[tuple[Switch, Switch]]:
        """Return the directions of links between switches on the way out."""
        return list(pairwise(self.tree.hops(self.host, host, up)))

    def kept(self, host: Host) -> tuple[Up, ...]:
        return self.health.avoided.kept(self.tree.edge_of(host), self.tree.choices_between(self.host, host))

    def lost_share(self, host: Host, up: Up) -> float:
        """Return the probability that a packet on a path is lost on its way out."""
        return 1 - prod(1 - self.loss.get(pair, 0.0) for pair in self.way_out(host, up))

    def _stream(self, host: Host, up: Up) -> Stream:
        return Stream(self.tree.ip(host), *up)

    def _at(self, time: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, act))

    def _tick(self) -> None:
        self.health.tick(self.now)
        self._at(self.now + TICK, self._tick)

    def _assigned_turn(self) -> None:
        self._turns[0] += 1
        self._probe(self.assigned[self._turns[0] % len(self.assigned)])
        self._at(self.now + self._intervals[0], self._assigned_turn)

    def _busy_turn(self) -> None:
        streams = list(dict.fromkeys(self.health.returning()) | self._busy)
        self._turns[1] += 1
        self._probe(streams[self._turns[1] % len(streams)])
        self._at(self.now + self._intervals[1], self._busy_turn)

    def _probe(self, stream: Stream) -> None:
        host = self.tree.host_by_ip(stream.destination)
        up = tuple(hop for hop in stream[1:] if hop != 255)
        out = self.way_out(host, up)
        way = [*out, *((there, here) for here, there in reversed(out))]
        shares = [*(self.loss.get(pair, 0.0) for pair in way), self.own_loss]
        lost = host in self.dead_hosts or self.lies(host, up) or any(self.draw.random() < share for share in shares)
        crowded = any(pair in self.crowded for pair in way)
        fate = Fate(stream, not lost, None, 0 if lost else 2_000_000, crowded)
        self._at(self.now + (DEADLINE if lost else DELAY), lambda: self.health.decided(fate, self.now))


RACK = (2, 1)


def warm(k: int, seed: int) -> ProbedFabric:
    its = ProbedFabric(FatTree(k), seed)
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
    return all(its.lost_share(its.busy_host, up) < 1 for up in its.kept(its.busy_host))


def healthy(its: ProbedFabric) -> bool:
    return its.health.avoided == NOTHING


# -- dead links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [4, 8, 16])
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
    assert its.run_until(lambda: healthy(its), 240) < 240


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
    up1, own = its.draw.randrange(4), its.tree.edge_of(its.host)
    its.loss[own, Switch(Level.AGGREGATION, own.pod, up1)] = 1.0
    its.run(0.5)
    assert Section(up1) in its.health.avoided.dead
    for host in its.tree.hosts():
        if host[:2] != its.host[:2]:
            assert all(up[0] != up1 for up in its.kept(host))
            assert len(its.kept(host)) == len(its.tree.choices_between(its.host, host)) * 3 // 4


@pytest.mark.parametrize("seed", range(2))
def test_a_way_back_that_is_silent_is_left_too(seed: int) -> None:
    its = warm(4, seed)
    its.loss = {break_one(its)[::-1]: 1.0}
    its.run(1.0)
    assert its.health.avoided.dead  # nobody has told that the probes arrived


UPLINKS = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(("dead", "left"), [
    ({(0, 1)}, {Section(0, 1)}),
    ({(0,), (0, 0), (0, 1)}, {Section(0)}),
    (set(UPLINKS), set()),
    (set(), set()),
])  # fmt: skip
def test_self_probes_alone_tell_which_uplink_is_dead_and_when_it_is_good(dead: set[tuple[int, ...]], left: set[Section]) -> None:
    own = IPv4Address("10.0.0.2")
    health, now = PathHealth(own), 0.0

    def probe(seconds: float, silent: set[tuple[int, ...]]) -> None:
        nonlocal now
        for number in range(round(50 * seconds)):
            now += 0.02
            up = UPLINKS[number % len(UPLINKS)]
            health.decided(Fate(Stream(own, *up), came_back=up not in silent), now)
            health.tick(now)

    probe(3.0, set())
    probe(0.6, dead)
    assert health.avoided.dead == left
    probe(8.0, set())
    assert health.avoided == NOTHING


def dead_hosts(its: ProbedFabric) -> None:
    its.dead_hosts = {its.busy_host, its.tree.host_by_ip(its.assigned[0].destination)}


def losses_everywhere(its: ProbedFabric, share: float) -> None:
    for link in its.tree.switch_links():
        its.loss[link.lower, link.upper] = its.loss[link.upper, link.lower] = share / 8


def a_liar(its: ProbedFabric, share: float, ups: frozenset[int], elsewhere: float = 0.0) -> None:
    """A host of the busy rack drops probes that came by some uplinks, and says nothing of it; all paths lose some."""
    losses_everywhere(its, elsewhere)
    its.lies = lambda host, up: host == its.busy_host and up[0] in ups and its.draw.random() < share


def a_full_queue(its: ProbedFabric) -> None:
    its.crowded = {break_one(its, 0.05)}


@pytest.mark.parametrize(("own_loss", "cause", "seconds", "k"), [
    pytest.param(0.0, dead_hosts, 20.0, 4, id="hosts that do not answer"),
    pytest.param(1.0, None, 10.0, 4, id="nothing comes back"),
    pytest.param(1.0, None, 10.0, 8, id="nothing comes back, k=8"),
    pytest.param(0.05, None, 30.0, 4, id="a host that drops a twentieth"),
    pytest.param(0.6, None, 30.0, 8, id="a host that loses most"),
    pytest.param(0.0, None, 30.0, 4, id="no loss"),
    pytest.param(0.0, partial(losses_everywhere, share=0.01), 30.0, 4, id="all paths alike, few"),
    pytest.param(0.0, partial(losses_everywhere, share=0.05), 30.0, 4, id="all paths alike, many"),
    pytest.param(0.0, a_full_queue, 40.0, 4, id="a full queue"),
    pytest.param(0.0, partial(a_liar, share=1.0, ups=frozenset({1})), 60.0, 4, id="a host that drops what an uplink brought"),
    pytest.param(0.0, partial(a_liar, share=0.3, ups=frozenset({0})), 60.0, 4, id="a host that drops some of it"),
    pytest.param(0.0, partial(a_liar, share=1.0, ups=frozenset({1}), elsewhere=0.02), 60.0, 4, id="a liar beside losses"),
    pytest.param(0.0, partial(a_liar, share=1.0, ups=frozenset({1, 2, 3})), 60.0, 8, id="a host that drops most"),
])  # fmt: skip
def test_losses_that_are_no_paths_fault_leave_none(
    own_loss: float, cause: Callable[[ProbedFabric], None] | None, seconds: float, k: int
) -> None:
    its = warm(k, 1 if k == 4 else 0)
    its.own_loss = own_loss
    if cause is not None:
        cause(its)
    its.run(seconds)
    assert healthy(its)
    assert [change for change in its.health.changes if change.left] == []
    its.own_loss = 0.0
    its.run(5.0)
    assert healthy(its)


def test_a_silent_host_beside_one_that_answers_says_nothing_of_paths() -> None:
    silent, answering = IPv4Address("10.2.1.2"), IPv4Address("10.2.1.3")
    health = PathHealth()
    for n in range(4000):
        now, up = 0.01 * n, (n % 2, n // 2 % 2)
        health.decided(Fate(Stream(answering, *up), True, None, 1_000_000), now)
        if n % 10 == 0:  # by the controller's list, on one path only
            health.decided(Fate(Stream(silent, 0, 1), now < 10, None, 1_000_000), now)
        health.tick(now)
        assert not health.changes


@pytest.mark.parametrize("seed", range(2))
def test_a_dead_rack_is_none_of_the_paths_fault(seed: int) -> None:
    its = warm(4, seed)
    rack = its.tree.edge_of(its.busy_host)
    its.loss |= {(Switch(Level.AGGREGATION, rack.pod, j), rack): 1.0 for j in range(2)}
    its.run(5.0)
    others = [host for host in its.tree.hosts() if host.pod not in (its.host.pod, rack.pod)]
    assert all(len(its.kept(host)) == 4 for host in [its.busy_host, *others])


@pytest.mark.parametrize(("share", "seconds", "seed"), [(0.01, 150, 0), (0.02, 70, 1), (0.05, 25, 2), (0.1, 12, 0)])
def test_a_lossy_link_is_left_and_no_other(share: float, seconds: float, seed: int) -> None:
    its = warm(4, seed)
    pair, busy = break_one(its, share), its.busy_host
    took = its.run_until(lambda: all(its.lost_share(busy, up) == 0 for up in its.kept(busy)), seconds)
    assert took < seconds
    for section in (*its.health.avoided.lossy, *its.health.avoided.dead):
        ways = [up for up in its.tree.choices_between(its.host, busy) if section.covers(WayTo(*busy[:2], up))]
        assert any(pair in its.way_out(busy, up) for up in ways)
    del its.loss[pair]
    assert its.run_until(lambda: healthy(its), 240) < 240


def test_losses_of_two_separate_paths_leave_both() -> None:
    its = warm(4, 3)
    for up in [(0, 0), (1, 1)]:
        its.loss[its.way_out(its.busy_host, up)[1]] = 0.1
    its.run(60.0)
    assert its.kept(its.busy_host) == ((1, 0), (0, 1))


# -- the window of losses ---------------------------------------------------------------------------------------------------

PATHS = {"good": WayTo(*RACK, (0, 0)), "bad": WayTo(*RACK, (1, 0))}
TARGETS = {name: [Target(way, IPv4Address(f"10.2.1.{last}")) for last in (2, 3)] for name, way in PATHS.items()}


class Window:
    """The losses of two paths to a rack, by a script: how many paths were probed, and which certainly loses more than the other."""

    def handle(self, step: Step) -> str:
        getattr(self, "do_" + step.command)(*step.words, **step.options)
        known, worst = f"{len(self.window)} paths probed", self.window.worst((), lambda *_: True)
        if worst is None:
            return known
        names = [name for name, way in PATHS.items() if worst.section.covers(way)]
        return f"{known}; {' and '.join(names)}: {worst.share:.1%} lost, {worst.others:.1%} on others"

    def do_window(self) -> None:
        self.window = LossWindow()

    def do_carried(self, at: str = "0", **packets: str) -> None:
        self.window.carried({PATHS[name].up: int(count) for name, count in packets.items()}, float(at))

    def do_again(self, name: str, times: str, at: str = "0") -> None:
        for _ in range(int(times)):
            self.window.sent_again(PATHS[name], float(at))

    def do_probed(self, name: str, times: str, lost: str = "0") -> None:
        for number in range(int(times)):
            self.window.probed(TARGETS[name][number % 2], number < int(lost), 0.0)

    def do_advance(self, at: str) -> None:
        self.window.advance(float(at))


@each_script(__file__, "window")
def test_window(script: Script) -> None:
    script.play(Window().handle)


@given(st.integers(0, 40), st.integers(0, 60), st.floats(0.01, 0.9))
@settings(max_examples=200)
def test_the_bound_of_chance_is_above_the_binomial_tail(hits: int, others: int, part: float) -> None:
    count = hits + others
    exact = sum(comb(count, n) * part**n * (1 - part) ** (count - n) for n in range(hits, count + 1))
    assert by_chance(hits, count, count * part) >= min(1.0, exact) * (1 - 1e-6)


HOPS = st.integers(0, 3)
WAYS = st.builds(WayTo, HOPS, HOPS, st.one_of(st.tuples(HOPS), st.tuples(HOPS, HOPS)))
SECTIONS = WAYS.flatmap(lambda way: st.sampled_from(sections(way)))


@given(WAYS, st.frozensets(SECTIONS, max_size=12), st.dictionaries(SECTIONS, st.floats(0.001, 0.99), max_size=12))
def test_the_floor_holds_whatever_is_avoided(way: WayTo, dead: frozenset[Section], lossy: dict[Section, float]) -> None:
    choices = FatTree(8).choices("inter-pod" if len(way.up) == 2 else "inter-rack")
    kept = Avoided(dead, lossy).kept(Switch(Level.EDGE, way.pod, way.edge), choices)
    assert kept
    assert kept == tuple(up for up in choices if up in kept)
    bad, thin = ({up for up in choices if any(one.covers(way._replace(up=up)) for one in its)} for its in (dead, lossy))
    if len(bad) < len(choices):
        assert not bad & set(kept)
    gone = set(choices) - set(kept) - bad
    assert gone <= thin
    assert not gone or len(set(choices) - set(kept)) <= len(choices) // 2


@given(WAYS)
def test_sections_are_nested_as_they_say(way: WayTo) -> None:
    crossed = sections(way)
    assert all(section.covers(way) and section.includes(crossed[-1]) for section in crossed)
