"""The switches are asked for their counters in turn, whatever one of them does, and in time that costs none."""

import functools
import itertools
from typing import cast

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_errors import SwitchError
from sopa_ryu.fabric.traffic import PortCounters, Rate, Traffic
from sopa_ryu.southbound import port_stats as module
from sopa_ryu.southbound.connection import Connection
from sopa_ryu.southbound.port_stats import FRESH_INTERVALS, MIN_FRESH_SECONDS, PortStatsPoller
from tests.models.green_time import GreenTime
from topologies import Clos, FatTree, Level, Link, Switch

INTERVAL = 5.0
FOR_EVER = 1e9


class Session:
    """A switch whose ports have transmitted a thousand bytes for each second of the clock, and received twice as many."""

    def __init__(self, clock: GreenTime, switch: Switch, kilobits: dict[int, int] | None = None) -> None:
        self.switch, self._clock, self._kilobits = switch, clock, kilobits or {}
        self.asked: list[float] = []
        self.answer_seconds, self.refuses = 0.0, False

    def port_speed(self, port: int) -> float | None:
        return 1000.0 * self._kilobits.get(port, 0) or None

    def port_counters(self) -> dict[int, PortCounters]:
        self.asked.append(self._clock.now)
        self._clock.sleep(self.answer_seconds)
        if self.refuses:
            raise SwitchError("bad request: multipart")
        sent = int(1000 * self._clock.now)
        return {1: PortCounters(2 * sent, sent, 0, 0, 0, 0, 0, 0)}


class Fabric:
    def __init__(
        self, clock: GreenTime, fabric: Clos | int = 4, interval: float = INTERVAL, link_mbit: float | None = None
    ) -> None:
        self.clock = clock
        self.tree = FatTree(fabric) if isinstance(fabric, int) else fabric
        self.state = FabricState(self.tree, 1)
        self.sessions: dict[Switch, Session] = {}
        for switch in self.tree.switches():
            self.connect(switch)
        self.meter = PortStatsPoller(self.state, cast("dict[Switch, Connection]", self.sessions), interval, link_mbit)
        clock.spawn(self.meter.rounds)

    def connect(self, switch: Switch, kilobits: dict[int, int] | None = None) -> Session:
        """Connect a switch, possibly again; it has its rules immediately."""
        session = self.sessions[switch] = Session(self.clock, switch, kilobits)
        self.state.connected.add(switch)
        return session

    def disconnect(self, switch: Switch) -> None:
        del self.sessions[switch]
        self.state.connected.discard(switch)

    def run_until_asked(self, session: Session) -> None:
        while not session.asked:
            self.clock.run(0.05)

    def questions(self, since: float = 0.0) -> list[tuple[float, Switch]]:
        return sorted((at, its.switch) for its in self.sessions.values() for at in its.asked if at >= since)


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


def is_asked_each_round(session: Session, rounds: int, interval: float = INTERVAL) -> bool:
    even = pytest.approx([interval] * (len(session.asked) - 1))
    return len(session.asked) in (rounds, rounds + 1) and gaps(session.asked) == even


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> GreenTime:
    its = GreenTime()
    monkeypatch.setattr(module, "time", its)
    monkeypatch.setattr(module, "hub", its)
    monkeypatch.setattr(module, "Traffic", functools.partial(Traffic, clock=its.monotonic))
    return its


EDGE = Switch(Level.EDGE, 1, 0)


@pytest.mark.parametrize(("k", "interval"), [(4, 1.0), (4, INTERVAL), (6, INTERVAL)])
def test_each_switch_is_asked_once_an_interval_evenly_spread_in_order(
    clock: GreenTime, k: int, interval: float
) -> None:
    fabric = Fabric(clock, k, interval)
    everyone = list(fabric.tree.switches())
    clock.run(0.9 * interval / len(everyone))
    assert fabric.meter.asked == 0  # not all at once at the start
    clock.run(9.5 * interval)
    assert all(is_asked_each_round(session, 9, interval) for session in fabric.sessions.values())
    times = [at for at, _ in fabric.questions()]
    assert gaps(times) == pytest.approx([interval / len(everyone)] * (len(times) - 1))
    assert [switch for _, switch in fabric.questions()][: 2 * len(everyone)] == 2 * everyone
    assert (fabric.meter.asked, fabric.meter.unanswered) == (len(times), 0)
    for switch in everyone:
        assert fabric.meter.traffic.port_rates(switch)[1] == pytest.approx(Rate(16_000, 8_000), rel=1e-3)


def test_only_connected_switches_with_rules_are_asked(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    for switch in list(fabric.sessions):
        if switch != EDGE:
            fabric.disconnect(switch)
    fabric.state.connected.discard(EDGE)  # its rules are not installed yet
    clock.run(20 * INTERVAL)
    assert fabric.meter.asked == 0
    fabric.state.connected.add(EDGE)
    clock.run(5 * INTERVAL)
    assert is_asked_each_round(fabric.sessions[EDGE], 4)


def test_who_is_away_is_not_polled_and_comes_back_to_its_old_place_in_the_round(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    clock.run(INTERVAL + 0.01)
    before, gone = fabric.meter.asked, fabric.sessions[EDGE]
    already = len(gone.asked)
    fabric.disconnect(EDGE)
    clock.run(INTERVAL)
    assert len(gone.asked) == already
    assert fabric.meter.asked - before == pytest.approx(fabric.tree.switch_count - 1, abs=1)
    fabric.connect(EDGE)
    assert list(fabric.sessions)[-1] == EDGE
    clock.run(2 * INTERVAL)
    since = clock.now
    clock.run(INTERVAL)
    asked = [switch for _, switch in fabric.questions(since)]
    begin = asked.index(min(asked))
    assert asked[begin:] + asked[:begin] == list(fabric.tree.switches())


def test_a_controller_that_was_held_up_does_not_catch_up_in_a_burst(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    clock.run(INTERVAL)
    clock.now += 7 * INTERVAL  # another green thread had the processor
    since = clock.now
    clock.run(INTERVAL)
    times = [at for at, _ in fabric.questions(since)]
    assert len(times) == pytest.approx(fabric.tree.switch_count, abs=2)
    # the one whose turn it was and the next, and then as ever
    assert gaps(times) == pytest.approx([0.0] + [INTERVAL / fabric.tree.switch_count] * (len(times) - 2))


def test_switches_that_do_not_answer_are_asked_once_and_delay_no_other(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    others = [session for switch, session in fabric.sessions.items() if switch.level is Level.CORE]
    silent = [session for session in fabric.sessions.values() if session not in others]
    for session in silent:
        session.answer_seconds = FOR_EVER
    clock.run(10.5 * INTERVAL)
    assert [len(session.asked) for session in silent] == [1] * len(silent)
    assert all(is_asked_each_round(session, 10) for session in others)
    assert fabric.meter.asked == len(silent) + sum(len(session.asked) for session in others)
    assert fabric.meter.unanswered == 0
    # a request that was lost with the old connection blocks no new one
    session = fabric.connect(EDGE)
    clock.run(2.5 * INTERVAL)
    assert is_asked_each_round(session, 2)
    assert fabric.meter.traffic.totals(EDGE)


@pytest.mark.parametrize(("answer_seconds", "intervals"), [(0.9, 1), (1.1, 2), (2.5, 3)])
def test_a_slow_switch_is_asked_in_the_round_after_its_answer(
    clock: GreenTime, answer_seconds: float, intervals: int
) -> None:
    fabric = Fabric(clock)
    slow = fabric.sessions[EDGE]
    slow.answer_seconds = answer_seconds * INTERVAL
    clock.run(12 * INTERVAL)
    assert gaps(slow.asked) == pytest.approx([intervals * INTERVAL] * (len(slow.asked) - 1))
    assert len(slow.asked) > 3
    # its answer is of the moment when it came, with what its ports had counted by then
    rates = fabric.meter.traffic.port_rates(EDGE)
    assert intervals == 3 or rates[1] == pytest.approx(Rate(16_000, 8_000), rel=1e-3)


@pytest.mark.parametrize("again", [True, False])
def test_an_answer_over_a_connection_that_is_gone_is_ignored(clock: GreenTime, again: bool) -> None:
    fabric = Fabric(clock)
    former = fabric.sessions[EDGE]
    former.answer_seconds = INTERVAL
    fabric.run_until_asked(former)
    if again:
        fabric.connect(EDGE).answer_seconds = FOR_EVER
    else:
        fabric.disconnect(EDGE)
    clock.run(3 * INTERVAL)
    assert fabric.meter.traffic.totals(EDGE) == {}
    assert fabric.meter.unanswered == 0


def test_refusals_are_counted_and_the_switch_is_asked_again(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    session = fabric.sessions[EDGE]
    session.refuses = True
    clock.run(4.5 * INTERVAL)
    refused = len(session.asked)
    assert is_asked_each_round(session, 4)
    assert (fabric.meter.unanswered, fabric.meter.asked) == (refused, len(fabric.questions()))
    assert fabric.meter.traffic.totals(EDGE) == {}
    session.refuses = False
    clock.run(2 * INTERVAL)
    assert fabric.meter.unanswered == refused
    assert fabric.meter.traffic.totals(EDGE)


@pytest.mark.parametrize("interval", [0.5, INTERVAL, 60.0])
def test_port_statistics_stay_fresh_for_some_intervals_and_a_minimum_time(clock: GreenTime, interval: float) -> None:
    fabric = Fabric(clock, interval=interval)
    session = fabric.sessions[EDGE]
    fabric.run_until_asked(session)
    session.answer_seconds = FOR_EVER
    believed = max(FRESH_INTERVALS * interval, MIN_FRESH_SECONDS)
    clock.run(session.asked[0] + believed - 0.01 - clock.now)
    assert fabric.meter.traffic.totals(EDGE)
    clock.run(0.02)
    assert fabric.meter.traffic.totals(EDGE) == {}


@pytest.mark.parametrize("link_mbit", [None, 100.5])
def test_a_link_carries_what_the_fabric_says_of_it(clock: GreenTime, link_mbit: float | None) -> None:
    rates = {"host": 10.0, "edge": 40.0}
    its = Fabric(clock, Clos(1, 2, 2, 0, 2, mbit=rates, links={"e0_1-a0_1": 5.0}), link_mbit=link_mbit)
    for link in its.tree.links():
        right = rates["edge" if isinstance(link.lower, Switch) else "host"]
        right = 5.0 if its.tree.name(link) == "e0_1-a0_1" else right
        assert its.meter.capacity(link) == 1e6 * right
        for switch, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            if isinstance(switch, Switch):
                assert its.meter.port_capacity(switch, its.tree.port(switch, towards)) == 1e6 * right
    for port in (0, 5, 0xFFFFFFFE):
        assert its.meter.port_capacity(EDGE, port) is None  # nothing is planned there, and the switch reports no speed


@pytest.mark.parametrize("speeds", [None, 10_000_000])
def test_otherwise_it_carries_what_was_configured_whatever_the_ports_say(clock: GreenTime, speeds: int | None) -> None:
    fabric = Fabric(clock, Clos(1, 2, 2, 0, 2, links={"e0_1-a0_1": 0.5}), link_mbit=100.5)
    for switch in list(fabric.tree.switches()) if speeds else ():
        fabric.connect(switch, dict.fromkeys(range(1, 5), speeds))
    found = {fabric.tree.name(link): fabric.meter.capacity(link) for link in fabric.tree.links()}
    assert found.pop("e0_1-a0_1") == 50_250_000.0
    assert set(found.values()) == {100_500_000.0}
    edge = Switch(Level.EDGE, 0, 0)
    assert fabric.meter.port_capacity(edge, 1) == 100_500_000.0
    fabric.disconnect(edge)
    assert fabric.meter.port_capacity(edge, 1) == 100_500_000.0


def test_otherwise_it_carries_what_the_port_says_at_which_it_is_measured(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    numbers = {switch: number for number, switch in enumerate(fabric.tree.switches())}
    for switch, number in numbers.items():
        fabric.connect(switch, {port: 1000 * number + port for port in range(1, 5)})
    for link in fabric.tree.links():
        at, other = (link.lower, link.upper) if isinstance(link.lower, Switch) else (link.upper, link.lower)
        port = fabric.tree.port(at, other)
        assert (
            fabric.meter.capacity(link) == fabric.meter.port_capacity(at, port) == 1000.0 * (1000 * numbers[at] + port)
        )


def test_capacity_is_unknown_for_a_switch_that_is_away_or_does_not_say(clock: GreenTime) -> None:
    fabric = Fabric(clock)
    link = Link(EDGE, fabric.tree.uplink(EDGE, 0))
    fabric.connect(link.upper, dict.fromkeys(range(1, 5), 10_000_000))
    fabric.connect(EDGE, {3: 1_000_000, 4: 0})
    assert [fabric.meter.port_capacity(EDGE, port) for port in (2, 4)] == [None, None]
    assert fabric.meter.capacity(link) == 1e9
    fabric.disconnect(EDGE)
    assert fabric.meter.capacity(link) is None
