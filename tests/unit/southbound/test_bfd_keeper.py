"""The BFD keeper with databases in memory and a virtual clock: when it enables BFD, where, and what it says of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.southbound import bfd as bfd_module
from sopa_ryu.southbound import bfd_keeper as keeper_module
from sopa_ryu.southbound.bfd import REQUIRES, SENDS_TO
from sopa_ryu.southbound.bfd_keeper import OFF, BfdKeeper
from sopa_ryu.southbound.connection import Connection
from tests.models.memory_ovsdb import SESSION_SECONDS, End, MemoryOvsdb
from tests.models.memory_switch import Channel, MemorySwitch
from topologies import Clos, FatTree, Level, Reason, Switch
from topologies.structure import BFD_MAC

TREE = FatTree(4)
ENDS = TREE.k * TREE.switch_count - TREE.host_count
OWN = ["tcp:*:6640"]
ADDRESSES = {SENDS_TO: BFD_MAC, REQUIRES: BFD_MAC}
SETTINGS = {"enable": "true", "min_tx": "100", "min_rx": "100", **ADDRESSES}


class EndOfTest(BaseException):
    """The time that a test has given the keeper is over."""


class Clock:
    """`time` and `ryu.lib.hub` in one: what sleeps lets the clock go on, and the switches report their ports."""

    def __init__(self, state: FabricState, ovsdb: MemoryOvsdb) -> None:
        self.now = self.end = 1000.0
        self._state = state
        self._ovsdb = ovsdb
        self._troubles: dict[End, Reason | None] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        if self.now + seconds > self.end:
            raise EndOfTest
        self.now = self._ovsdb.now = self.now + seconds
        for end in self._ovsdb.fabric_ends():
            trouble = self._ovsdb.trouble(end)
            if self._troubles.get(end) is not trouble:
                self._troubles[end] = trouble
                self._state.port_changed(*end, trouble, self.now)


class Event:
    """`hub.Event` on that clock."""

    clock: Clock

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float) -> bool:
        if not self._is_set:
            self.clock.sleep(timeout)
        return self._is_set


class Bench:
    """A settled fabric whose switches have a database each, and a keeper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str] = OWN, tree: Clos = TREE) -> None:
        self.tree = tree
        self.commands = True
        self.before_each_step: Callable[[], None] = lambda: None
        self.state = FabricState(tree, epoch=1)
        self.connections: dict[Switch, Channel] = {}
        self.ovsdb = MemoryOvsdb(tree, lambda switch: f"tcp:{self.host(switch)}:6640")
        for switch in tree.switches():
            self.connect(switch)
        self.state.settle(0)
        self.clock = Clock(self.state, self.ovsdb)
        event = type("Event", (Event,), {"clock": self.clock})
        monkeypatch.setattr(self.clock, "Event", event, raising=False)
        monkeypatch.setattr(keeper_module, "hub", self.clock)
        monkeypatch.setattr(keeper_module, "time", self.clock)
        monkeypatch.setattr(bfd_module, "transact", self.ovsdb.transact)
        connections = cast(Mapping[Switch, Connection], self.connections)
        self.keeper = BfdKeeper(self.state, connections, addresses, 100, may_change=self._commands)

    def _commands(self) -> bool:
        self.before_each_step()
        return self.commands

    def host(self, switch: Switch) -> str:
        return f"192.0.2.{list(self.tree.switches()).index(switch) + 1}"

    def connect(self, switch: Switch) -> None:
        self.connections[switch] = MemorySwitch(self.tree.dpid(switch), {}).connect(self.host(switch))
        self.state.switch_heard(switch, {}, 0)
        self.state.switch_ready(switch, 0)

    def run(self, seconds: float) -> None:
        self.clock.end = self.clock.now + seconds
        with pytest.raises(EndOfTest):
            self.keeper.watch()

    def enabled(self) -> int:
        return sum(settings == SETTINGS for settings in self.ovsdb.bfd.values())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_without_addresses_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, [])
    assert bench.state.bfd == {"enabled": False, "detail": OFF}


def test_it_enables_bfd_between_all_switches_soon_after_one_connects(bench: Bench) -> None:
    assert bench.state.bfd == {"enabled": False, "detail": "no switch is connected yet"}
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == ENDS == 64
    assert {end for end, settings in bench.ovsdb.bfd.items() if settings} == set(bench.ovsdb.fabric_ends())
    assert bench.state.bfd == {"enabled": True, "detail": "on at 64 of 64 ends of links between switches"}
    assert not bench.state.failures


def test_one_uplink_index_follows_the_other_when_its_links_are_back(bench: Bench) -> None:
    bench.keeper.look()
    bench.run(2.5)
    first, second = sorted(set(bench.ovsdb.enabled_at.values()))
    assert second - first >= 1
    for (switch, port), at in bench.ovsdb.enabled_at.items():
        neighbour = TREE.neighbour(switch, port)
        assert isinstance(neighbour, Switch)
        uplink = max(switch, neighbour).index
        assert at == (first, second)[uplink]


def test_it_stops_after_links_that_do_not_come_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    edge = TREE.switch("e0_0")
    bench.ovsdb.broken.add((edge, TREE.uplink_port(Level.EDGE, 0)))
    bench.keeper.look()
    with caplog.at_level(logging.INFO, "sopa.bfd"):
        bench.run(13)
    assert bench.enabled() == 32
    assert "links stayed down for 10 s" in bench.state.bfd["detail"]
    assert bench.state.bfd["enabled"]
    assert "BFD enabled at 32 ends of links, every 100 ms" in caplog.messages
    bench.run(63)  # it goes on a minute later, but for that switch's other uplink
    assert bench.enabled() == 62
    postponed = "; not on yet at 2 ends: the switches below have no other live uplink"
    assert bench.state.bfd["detail"] == f"on at 62 of 64 ends of links between switches{postponed}"
    assert TREE.uplink_port(Level.EDGE, 1) not in {port for switch, port in bench.ovsdb.enabled_at if switch == edge}
    bench.ovsdb.broken.clear()
    bench.run(13)
    assert bench.enabled() == 64
    assert not bench.state.failures


def test_the_only_uplink_that_a_switch_has_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Clos(1, 2, 1, 0, 2)
    bench = Bench(monkeypatch, tree=tree)
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == 4
    assert bench.state.bfd["detail"] == "on at 4 of 4 ends of links between switches"


def test_links_that_another_process_has_just_interrupted_are_waited_for(bench: Bench) -> None:
    """As at a restart, or when another member takes the leader's place, in the middle of a roll-out."""

    def begun() -> None:
        if not bench.ovsdb.enabled_at:
            bfd_module.enable([f"tcp:{bench.host(switch)}:6640" for switch in TREE.switches()], TREE, 100, uplink=0)
            bench.clock.sleep(0.01)  # its switches say so

    bench.before_each_step = begun
    bench.keeper.look()
    bench.run(2)
    assert bench.enabled() == 32
    assert "not on yet at 32 ends" in bench.state.bfd["detail"]
    bench.run(12)
    assert bench.enabled() == 64
    first, second = sorted(set(bench.ovsdb.enabled_at.values()))
    assert second - first >= SESSION_SECONDS
    assert not bench.state.failures


def test_one_that_does_not_command_the_switches_changes_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.commands = False
    bench.keeper.look()
    with caplog.at_level(logging.INFO, "sopa.bfd"):
        bench.run(66)
    assert bench.enabled() == 0
    detail = "on at 0 of 64 ends of links between switches; this controller changes nothing while another one leads"
    assert bench.state.bfd == {"enabled": False, "detail": detail}
    assert caplog.messages == [f"BFD is off: {detail}"]
    bench.commands = True
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == 64
    bench.commands = False  # it says what it reads all the same
    bench.keeper.look()
    bench.run(5)
    assert bench.state.bfd == {"enabled": True, "detail": "on at 64 of 64 ends of links between switches"}


def test_one_that_is_deposed_in_the_middle_stops(bench: Bench) -> None:
    def deposed() -> None:
        bench.commands = not bench.ovsdb.enabled_at

    bench.before_each_step = deposed
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == 32


def test_it_looks_again_each_minute_and_keeps_what_is_set(bench: Bench) -> None:
    end = TREE.switch("a0_0"), 3
    bench.ovsdb.bfd[end] = {"enable": "true", "min_tx": "500", "decay_min_rx": "7"}
    bench.ovsdb.enabled_at[end] = 0.0
    bench.run(59)
    assert bench.ovsdb.transactions == []
    bench.run(66)
    assert bench.ovsdb.bfd[end] == {"enable": "true", "min_tx": "500", "decay_min_rx": "7", **ADDRESSES}
    assert bench.enabled() == 63
    assert bench.state.bfd["detail"] == "on at 64 of 64 ends of links between switches"


def test_other_settings_of_an_interface_stay(bench: Bench) -> None:
    end = TREE.switch("a0_0"), 3
    bench.ovsdb.bfd[end] = {"enable": "false", "min_tx": "500", "decay_min_rx": "7"}
    bench.keeper.look()
    bench.run(5)
    assert bench.ovsdb.bfd[end] == {**SETTINGS, "decay_min_rx": "7"}


def test_nothing_is_enabled_before_the_fabric_has_settled(bench: Bench) -> None:
    bench.state.settled = False
    bench.keeper.look()
    bench.run(90)
    assert bench.ovsdb.transactions == []
    bench.state.settled = True
    bench.run(6)
    assert bench.enabled() == 64


def test_an_end_whose_other_end_is_not_found_is_left_without(bench: Bench) -> None:
    missing = TREE.switch("c0_0")
    del bench.connections[missing]
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == 56
    detail = "on at 56 of 64 ends of links between switches; not on at 4 ends whose other ends were not found"
    assert bench.state.bfd["detail"] == detail
    bench.connect(missing)
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == 64


def test_a_database_that_does_not_answer_is_named_and_others_are_served(bench: Bench) -> None:
    silent = f"tcp:{bench.host(TREE.switch('e0_0'))}:6640"
    bench.ovsdb.refusing.add(silent)
    bench.keeper.look()
    bench.run(5)
    assert bench.enabled() == 60
    assert bench.state.bfd["detail"].endswith(f"; {silent}: no answer within 5 s")
    bench.ovsdb.refusing.clear()
    bench.run(66)
    assert bench.enabled() == 64
    assert not bench.state.failures


@pytest.mark.parametrize(
    ("host", "address"), [("192.0.2.7", "ssl:192.0.2.7:6641"), ("2001:db8::7", "ssl:[2001:db8::7]:6641")]
)
def test_an_asterisk_stands_for_the_address_of_each_switch(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    bench = Bench(monkeypatch, ["ssl:*:6641", "tcp:198.51.100.1"])
    own = bench.host
    monkeypatch.setattr(bench, "host", lambda switch: host)
    for switch in TREE.switches(Level.CORE):
        bench.connect(switch)
    others = {f"ssl:{own(switch)}:6641" for switch in TREE.switches() if switch.level is not Level.CORE}
    bench.keeper.look()
    bench.run(1.5)
    assert set(bench.ovsdb.transactions) == {address, "tcp:198.51.100.1"} | others


def test_the_same_result_is_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sopa.bfd"):
        bench.keeper.look()
        bench.run(200)
    assert [message for message in caplog.messages if message.startswith("BFD is")] == [
        "BFD is on: on at 64 of 64 ends of links between switches"
    ]
