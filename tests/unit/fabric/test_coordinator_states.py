"""The controller's core under any sequence of what can happen to it: at rest, the switches have the rules of what has failed.

`tests.models.memory_fabric` asserts what must be true of each message and effect, and at rest.

``--hypothesis-seed`` chooses other examples, ``--examples`` their number.
"""

import logging
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from flowrules.model import Flow, Table
from sopa_ryu.fabric.messages import AddFlow, DeleteFlow
from tests.models.memory_fabric import MemoryFabric
from tests.models.reports import End
from topologies import Level, Switch
from topologies.failures import Reason

FOREIGN = Flow(Table.DOWN, 77, (), "another application's")
NUMBERS = st.integers(0, 999)
CHOICES = st.lists(st.integers(0, 999), max_size=40)


class ControllerMachine(RuleBasedStateMachine):
    """Events at a controller and its switches. After each one some of its consequences happen, but not all."""

    K = 4

    @initialize(connected=st.booleans())
    def start(self, connected: bool) -> None:
        self.fabric = MemoryFabric(self.K)
        self.all = list(self.fabric.switches)
        self.learned: set[tuple[Switch, int]] = set()
        if connected:
            self.fabric.connect_all()
            self.fabric.advance(1)

    def switch(self, number: int) -> Switch:
        return self.all[number % len(self.all)]

    def ports(self, ends: Iterable[End], trouble: Reason | None) -> None:
        for switch, port in ends:
            if port in self.fabric.switches[switch].ports:
                self.fabric.switches[switch].set_port(port, trouble)

    @rule(number=NUMBERS, then=CHOICES)
    def connect(self, number: int, then: list[int]) -> None:
        """Connect, or over a new connection before the loss of the old one is noticed."""
        self.fabric.connect(self.switch(number))
        self.fabric.interleave(then)

    @rule()
    def connect_all(self) -> None:
        self.fabric.connect_all()

    @rule()
    def notice_lost(self) -> None:
        self.fabric.notice_lost()

    @rule(number=NUMBERS, again=st.booleans())
    def restart_switch(self, number: int, again: bool) -> None:
        switch = self.switch(number)
        self.fabric.restart_switch(switch)
        self.learned = {(owner, port) for owner, port in self.learned if owner != switch}
        if again:
            self.fabric.connect(switch)

    @rule(dpid=st.sampled_from([0, 1, 0x010400, 0x040000, 1 << 47]))
    def connect_stranger(self, dpid: int) -> None:
        self.fabric.connect_stranger(dpid)

    @rule(together=st.booleans())
    def restart_controller(self, together: bool) -> None:
        self.fabric.restart_controller()
        if together:
            for switch in self.all:
                self.fabric.connect(switch)

    @rule(first=NUMBERS, count=st.just(1) | st.integers(1, 20), deliver=st.booleans(), then=CHOICES)
    def lose_channels(self, first: int, count: int, deliver: bool, then: list[int]) -> None:
        """Break a channel, or many, while the switches forward."""
        for switch in map(self.switch, range(first, first + count)):
            if self.fabric.channel(switch) is not None:
                self.fabric.disconnect(switch)
        if deliver:
            self.fabric.settle()
        self.fabric.interleave(then)

    @rule(number=NUMBERS, away=st.booleans())
    def restart_unseen(self, number: int, away: bool) -> None:
        """Restart a switch as its neighbours see it: its links are silent for a while."""
        fabric, switch = self.fabric, self.switch(number)
        ends = [end for end in fabric.plan if switch in (end[0], fabric.plan[end][0])]
        ends = [(at, port) for at, port in ends if fabric.switches[at].ports.get(port, Reason.DOWN) is None]
        self.ports(ends, Reason.SILENT)
        fabric.settle()
        self.restart_switch(number, again=False)
        self.ports(ends, None)
        if not away:
            fabric.connect(switch)

    @rule(number=NUMBERS, then=CHOICES)
    def impostor(self, number: int, then: list[int]) -> None:
        channel = self.fabric.channel(self.switch(number))
        if channel is not None and self.fabric.core.switches.session(channel) is not None:
            evil = self.fabric.connect_impostor(self.switch(number))
            evil.switch.set_port(1 + number % self.K, Reason.SILENT)
            self.fabric.interleave(then)

    @rule(first=NUMBERS, count=st.integers(0, 20))
    def stand_still(self, first: int, count: int) -> None:
        self.fabric.stand_still(13, [self.switch(number) for number in range(first, first + count)])

    @rule(number=NUMBERS, ahead=st.sampled_from([1, 1000, 10**6]))
    def clock_set_back(self, number: int, ahead: int) -> None:
        """A switch knows a generation id of a controller whose clock was ahead."""
        device, channel = self.fabric.switches[self.switch(number)], self.fabric.channel(self.switch(number))
        if channel is None:
            device.generation = self.fabric.core.switches.generation.number + ahead

    @rule(number=NUMBERS, port=NUMBERS, trouble=st.sampled_from([None, Reason.DOWN, Reason.SILENT, "gone"]), then=CHOICES)
    def set_port(self, number: int, port: int, trouble: Reason | str | None, then: list[int]) -> None:
        """Change a port, add it, or remove it; the last one is none of the plan."""
        device, port = self.fabric.switches[self.switch(number)], 1 + port % (self.K + 1)
        if trouble != "gone":
            device.set_port(port, trouble)
        elif port in device.ports:
            device.remove_port(port)
        self.fabric.interleave(then)

    @rule(number=NUMBERS, other=NUMBERS, seen=st.booleans(), then=CHOICES)
    def exchange_plugs(self, number: int, other: int, seen: bool, then: list[int]) -> None:
        ends = list(self.fabric.plan)
        pair = ends[number % len(ends)], ends[other % len(ends)]
        former = [self.fabric.switches[switch].ports.get(port) for switch, port in pair]
        if seen:
            self.ports(pair, Reason.DOWN)
        self.fabric.swap(*pair)
        if seen:
            for end, trouble in zip(pair, former, strict=True):
                self.ports([end], trouble)
        self.fabric.interleave(then)

    @rule(number=NUMBERS, table=st.sampled_from(Table), entries=st.none() | st.integers(0, 3))
    def limit(self, number: int, table: Table, entries: int | None) -> None:
        """Limit a switch's table, or none of its tables any more."""
        limits = self.fabric.switches[self.switch(number)].limits
        if entries is None:
            limits.clear()
        else:
            limits[table] = entries
            self.fabric.unclear.add(self.switch(number))

    @rule(number=NUMBERS, messages=st.booleans(), answers=st.booleans(), loses=st.booleans())
    def hold_or_lose(self, number: int, messages: bool, answers: bool, loses: bool) -> None:
        """Hold messages to a switch and its answers, or none any more, and perhaps lose the answers that are on their way."""
        if (channel := self.fabric.channel(self.switch(number))) is not None:
            channel.holds_messages, channel.holds_answers = messages, answers
            if loses:
                channel.lose_answers()

    @rule(number=NUMBERS, host=NUMBERS)
    def learn(self, number: int, host: int) -> None:
        switch, port = self.switch(number), 1 + host % self.fabric.tree.half
        if switch.level is Level.EDGE and self.fabric.switches[switch].learn(port):
            self.learned.add((switch, port))

    @rule(number=NUMBERS, which=NUMBERS, stays=st.booleans(), then=CHOICES)
    def take(self, number: int, which: int, stays: bool, then: list[int]) -> None:
        """Another controller becomes the master, changes rules and perhaps leaves again."""
        device = self.fabric.switches[self.switch(number)]
        channel = self.fabric.take(self.switch(number))
        if ours := [entry.installed for entry in device.entries.values() if entry.flow is not None]:
            device.handle(channel, DeleteFlow(ours[which % len(ours)]))
        device.handle(channel, AddFlow(FOREIGN, 1))
        if not stays:
            channel.close()
        self.fabric.interleave(then)

    @rule(number=NUMBERS, link=st.booleans(), drained=st.booleans(), then=CHOICES)
    def drain(self, number: int, link: bool, drained: bool, then: list[int]) -> None:
        tree, switch = self.fabric.tree, self.switch(number)
        element = tree.link(switch, tree.neighbour(switch, self.K)) if link else switch
        self.fabric.drain(tree.name(element), drained)
        self.fabric.interleave(then)

    @rule(choices=st.lists(st.integers(0, 999), max_size=200))
    def go_on(self, choices: list[int]) -> None:
        self.fabric.interleave(choices)

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0, 5.0, 10.0, 31.0, 62.0]), deliver=st.booleans(), then=CHOICES)
    def pass_time(self, seconds: float, deliver: bool, then: list[int]) -> None:
        self.fabric.advance(seconds, deliver)
        self.fabric.interleave(then)

    @rule(lift=st.booleans())
    def rest(self, lift: bool) -> None:
        if lift:
            for device in self.fabric.switches.values():
                device.limits.clear()
        self.fabric.rest()
        for switch, port in self.learned:
            learned = (entry for entry in self.fabric.switches[switch].entries.values() if entry.flow is None)
            assert (("metadata", (port, 0xFFFF)),) in [entry.installed.match for entry in learned]

    def teardown(self) -> None:
        if hasattr(self, "fabric"):
            self.rest(lift=True)


class SmallMachine(ControllerMachine):
    K = 2


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Hypothesis runs many fabrics: their log is of no use, and writing it takes half of the time."""
    caplog.set_level(logging.CRITICAL, "sopa")


@pytest.mark.parametrize(("machine", "examples"), [(SmallMachine, 100), (ControllerMachine, 40)])
def test_at_rest_every_switch_has_its_rules(machine: type[ControllerMachine], examples: int, pytestconfig: pytest.Config) -> None:
    number = pytestconfig.getoption("--examples") or examples
    those = settings(max_examples=number, stateful_step_count=40, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=those)
