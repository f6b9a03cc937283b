"""The switches are asked for their counters in turn, whatever one of them does, and in time that costs none."""

import functools
from pathlib import Path
from typing import cast

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_errors import SwitchError
from sopa_ryu.fabric.traffic import PortCounters, Traffic
from sopa_ryu.southbound import port_stats as module
from sopa_ryu.southbound.connection import Connection
from sopa_ryu.southbound.port_stats import FRESH_INTERVALS, MIN_FRESH_SECONDS, PortStatsPoller
from tests.helpers.golden import Step, play, scripts
from tests.models.green_time import GreenTime
from topologies import Clos, FatTree, Level, Link, Switch

INTERVAL = 5.0
EDGE = Switch(Level.EDGE, 1, 0)


class Session:
    """A switch whose ports have transmitted a thousand bytes for each second of the clock, and received twice as many."""

    def __init__(self, clock: GreenTime, kilobits: dict[int, int] | None = None) -> None:
        self._clock, self._kilobits = clock, kilobits or {}
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
    """A poller at work on a fabric all of whose switches are connected; and the words of the scripts."""

    def __init__(
        self, clock: GreenTime, tree: Clos, interval: float = INTERVAL, link_mbit: float | None = None
    ) -> None:
        self.clock, self.tree = clock, tree
        self.state = FabricState(tree, 1)
        self.sessions: dict[Switch, Session] = {}
        for switch in tree.switches():
            self.connect(switch)
        self.meter = PortStatsPoller(self.state, cast("dict[Switch, Connection]", self.sessions), interval, link_mbit)
        clock.spawn(self.meter.rounds)

    def connect(self, switch: Switch, kilobits: dict[int, int] | None = None) -> None:
        """Connect a switch, possibly again; it has its rules immediately."""
        self.sessions[switch] = Session(self.clock, kilobits)
        self.state.connected.add(switch)

    def disconnect(self, switch: Switch) -> None:
        del self.sessions[switch]
        self.state.connected.discard(switch)

    def handle(self, step: Step) -> str:
        clock, meter = self.clock, self.meter
        match step.command, step.words:
            case "run", [seconds]:  # tell who was asked, and when
                begin, refused = clock.now, meter.unanswered
                clock.run(float(seconds))
                asked = [(at, self.tree.name(its)) for its, each in self.sessions.items() for at in each.asked]
                told = ", ".join(f"{at - begin:.4g} {name}" for at, name in sorted(asked) if at >= begin)
                return told + (f"; refused {meter.unanswered} of {meter.asked}" if meter.unanswered > refused else "")
            case "held", [seconds]:  # another green thread has the processor
                clock.now += float(seconds)
            case "known", [name]:
                rates = meter.traffic.port_rates(self.tree.switch(name)).values()
                counted = "counters" if meter.traffic.totals(self.tree.switch(name)) else "nothing"
                return " ".join([counted, *(f"{its.receive:.3g} {its.transmit:.3g}" for its in rates)])
            case "connect", names:
                for name in names:
                    self.connect(self.tree.switch(name))
            case "disconnect", names:
                for name in names:
                    self.disconnect(self.tree.switch(name))
            case "no_rules", [name]:
                self.state.connected.discard(self.tree.switch(name))
            case "rules", [name]:
                self.state.connected.add(self.tree.switch(name))
            case "answers", [name, seconds]:
                self.sessions[self.tree.switch(name)].answer_seconds = float(seconds)
            case "refuses", [name, does]:
                self.sessions[self.tree.switch(name)].refuses = does == "yes"
        return ""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> GreenTime:
    its = GreenTime()
    monkeypatch.setattr(module, "time", its)
    monkeypatch.setattr(module, "hub", its)
    monkeypatch.setattr(module, "Traffic", functools.partial(Traffic, clock=its.monotonic))
    return its


@pytest.mark.parametrize("script", scripts(__file__, "port_stats"), ids=lambda path: path.stem)
def test_script(script: Path, clock: GreenTime, request: pytest.FixtureRequest) -> None:
    """In a k=2 fat-tree of five switches, each asked once in 5 s."""
    play(script, Fabric(clock, FatTree(2)).handle, record=request.config.option.record)


@pytest.mark.parametrize(("k", "interval"), [(4, 1.0), (6, 5.0)])
def test_switches_are_asked_once_an_interval_evenly_spread(clock: GreenTime, k: int, interval: float) -> None:
    fabric = Fabric(clock, FatTree(k), interval)
    clock.run(3.5 * interval)
    everyone = list(fabric.tree.switches())
    for number, switch in enumerate(everyone, start=1):
        first = 1000.0 + number * interval / len(everyone)
        expected = [
            at for at in (first, first + interval, first + 2 * interval, first + 3 * interval) if at <= clock.now
        ]
        assert fabric.sessions[switch].asked == pytest.approx(expected)


@pytest.mark.parametrize("interval", [0.5, INTERVAL, 60.0])
def test_port_statistics_stay_fresh_for_some_intervals_and_a_minimum_time(clock: GreenTime, interval: float) -> None:
    fabric = Fabric(clock, FatTree(4), interval)
    session = fabric.sessions[EDGE]
    while not session.asked:
        clock.run(0.05)
    session.answer_seconds = 1e9
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
    fabric = Fabric(clock, FatTree(4))
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
    fabric = Fabric(clock, FatTree(4))
    link = Link(EDGE, fabric.tree.uplink(EDGE, 0))
    fabric.connect(link.upper, dict.fromkeys(range(1, 5), 10_000_000))
    fabric.connect(EDGE, {3: 1_000_000, 4: 0})
    assert [fabric.meter.port_capacity(EDGE, port) for port in (2, 4)] == [None, None]
    assert fabric.meter.capacity(link) == 1e9
    fabric.disconnect(EDGE)
    assert fabric.meter.capacity(link) is None
