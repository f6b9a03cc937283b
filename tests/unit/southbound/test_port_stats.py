"""The switches are asked for their counters in turn, whatever one of them does, and in time that costs none."""

import functools
from typing import cast

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import SwitchError
from sopa_ryu.fabric.traffic import PortCounters, Traffic, ends
from sopa_ryu.southbound import port_stats as module
from sopa_ryu.southbound.connection import Connection
from sopa_ryu.southbound.port_stats import FRESH_INTERVALS, MIN_FRESH_SECONDS, PortStatsPoller
from tests.helpers.golden import Script, Step, each_script
from tests.models.green_time import GreenTime
from topologies import Clos, FatTree, Level, Switch

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

    def __init__(self, clock: GreenTime, tree: Clos, interval: float = INTERVAL, link_mbit: float | None = None) -> None:
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


@each_script(__file__, "port_stats")
def test_script(script: Script, clock: GreenTime) -> None:
    """In a k=2 fat-tree of five switches, each asked once in 5 s."""
    script.play(Fabric(clock, FatTree(2)).handle)


@pytest.mark.parametrize("interval", [0.5, INTERVAL, 60.0])
def test_port_statistics_stay_fresh_for_some_intervals_and_a_minimum_time(clock: GreenTime, interval: float) -> None:
    fabric = Fabric(clock, FatTree(4), interval)
    session = fabric.sessions[EDGE]
    while not session.asked:
        clock.run(0.05)
    assert session.asked[0] <= 1000.0 + interval
    session.answer_seconds = 1e9
    believed = max(FRESH_INTERVALS * interval, MIN_FRESH_SECONDS)
    clock.run(session.asked[0] + believed - 0.01 - clock.now)
    assert fabric.meter.traffic.totals(EDGE)
    clock.run(0.02)
    assert fabric.meter.traffic.totals(EDGE) == {}


RATES = {"host": 10.0, "edge": 40.0}


@pytest.mark.parametrize(
    ("rates", "configured", "unit"), [(RATES, None, 1e6), (RATES, 100.5, 1e6), (None, 100.5, 100.5e6), (None, None, None)]
)
def test_a_link_carries_what_the_fabric_says_else_what_is_configured_else_what_its_measured_port_says(
    clock: GreenTime, rates: dict[str, float] | None, configured: float | None, unit: float | None
) -> None:
    tree = Clos(1, 2, 2, 0, 2, mbit=rates, links={"e0_1-a0_1": 0.5})
    fabric, away = Fabric(clock, tree, link_mbit=configured), tree.switch("e0_1")
    said = {
        switch: {port: 1000 * number + port for port in tree.ports(switch)}
        for number, switch in enumerate(tree.switches(), start=1)
    }
    for switch, kilobits in said.items():
        fabric.connect(switch, kilobits)
    fabric.disconnect(away)
    for link in tree.links():
        for switch, port in ends(tree, link):
            by_port = None if switch == away else 1000.0 * said[switch][port]
            assert fabric.meter.port_capacity(switch, port) == (unit * tree.capacity(link) if unit else by_port)
        assert fabric.meter.capacity(link) == fabric.meter.port_capacity(*next(ends(tree, link)))
    for port in (0, 5, 0xFFFFFFFE):
        assert fabric.meter.port_capacity(tree.switch("e0_0"), port) is None  # nothing is planned there
