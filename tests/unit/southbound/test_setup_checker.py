"""The set-up checker with databases in memory: what it says once, what it mends, and what a false database costs."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_setup import SwitchSetup, Target
from sopa_ryu.southbound import setup_checker, switch_database
from sopa_ryu.southbound.setup_checker import NO_DATABASE, SetupChecker, tls_problems
from topologies import FatTree
from topologies.ovsdb import OvsdbError

TREE = FatTree(4)
HERE = "tcp:192.0.2.1:6640"
RIGHT = SwitchSetup(
    uuid="1",
    bridge="br0",
    dpid=TREE.dpid(TREE.switch("e0_0")),
    fail_mode="secure",
    protocols=frozenset({"OpenFlow13"}),
    other_config={"disable-in-band": "true"},
    controllers=(Target("tcp:192.0.2.9:6653", True),),
    interfaces={port: f"eth{port}" for port in range(1, 5)},
)
UNSAFE = replace(RIGHT, other_config={}, fail_mode="")


class Databases:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bridges: dict[str, list[SwitchSetup] | OvsdbError] = {HERE: [RIGHT]}
        self.mended: list[tuple[str, str]] = []
        monkeypatch.setattr(switch_database, "read", self._read)
        monkeypatch.setattr(switch_database, "mend", self._mend)
        monkeypatch.setattr(setup_checker, "hub", SimpleNamespace(Event=SimpleNamespace, sleep=lambda _seconds: None))

    def _read(self, address: str, **_more: Any) -> list[SwitchSetup]:
        found = self.bridges[address]
        if isinstance(found, OvsdbError):
            raise found
        return found

    def _mend(self, _address: str, setup: SwitchSetup, found: list[Any], **_more: Any) -> None:
        self.mended += [(setup.bridge, problem.check) for problem in found]


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> Databases:
    return Databases(monkeypatch)


def checker(*addresses: str, commands: bool = True) -> tuple[SetupChecker, FabricState]:
    state = FabricState(TREE, epoch=1)
    return SetupChecker(state, {}, addresses, may_change=lambda: commands), state


def test_without_a_database_it_says_that_nothing_is_verified(databases: Databases) -> None:
    _, state = checker()
    assert state.setup == {"checked": 0, "detail": NO_DATABASE, "problems": []}


def test_a_problem_is_said_once_and_once_when_it_is_gone(
    databases: Databases, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sopa.setup")
    its, state = checker(HERE)
    databases.bridges[HERE] = [replace(RIGHT, spanning_tree=True)]
    for _ in range(3):
        its.check()
    [said] = caplog.messages
    assert said.startswith("switch e0_0: it runs a spanning tree")
    assert said.endswith("mend it there: ovs-vsctl set bridge br0 stp_enable=false rstp_enable=false")
    assert [problem["check"] for problem in state.setup["problems"]] == ["spanning-tree"]
    databases.bridges[HERE] = [RIGHT]
    its.check()
    assert state.setup["problems"] == []
    assert state.setup["detail"] == "1 of 20 switches verified, 0 problems"
    assert len(caplog.messages) == 2


def test_only_what_interrupts_nothing_is_mended_and_only_at_bridges_of_the_plan(databases: Databases) -> None:
    its, state = checker(HERE)
    wrong = replace(UNSAFE, controllers=())
    databases.bridges[HERE] = [wrong, replace(wrong, bridge="other", dpid=0x99)]
    its.check()
    assert databases.mended == [("br0", "in-band"), ("br0", "fail-mode")]
    assert [problem["check"] for problem in state.setup["problems"]] == ["controllers"]


def test_what_may_be_mended_is_left_to_who_commands(databases: Databases, caplog: pytest.LogCaptureFixture) -> None:
    its, state = checker(HERE, commands=False)
    databases.bridges[HERE] = [UNSAFE]
    its.check()
    assert (databases.mended, state.setup["problems"], caplog.messages) == ([], [], [])


def test_a_database_that_is_not_read_hides_no_other(databases: Databases, caplog: pytest.LogCaptureFixture) -> None:
    its, state = checker("tcp:192.0.2.2:6640", HERE)
    databases.bridges["tcp:192.0.2.2:6640"] = OvsdbError("tcp:192.0.2.2:6640: no answer within 5 s")
    its.check()
    its.check()
    assert state.setup["checked"] == 1
    assert state.setup["detail"].endswith("; 1 databases not read")
    assert len([line for line in caplog.messages if "not verified" in line]) == 1


NO_DATABASES: list[dict[str, list[Any]]] = [
    *({}, {"Bridge": [{}]}, {"Bridge": [{"_uuid": 7}]}, {"Open_vSwitch": [{"ssl": ["uuid", "x"]}]}),
    *({"Port": [[]]}, {"Interface": [None]}, {"SSL": [{"_uuid": []}]}),
]


@pytest.mark.parametrize("rows", NO_DATABASES)
def test_what_is_no_database_of_ovs_is_an_error(monkeypatch: pytest.MonkeyPatch, rows: dict[str, list[Any]]) -> None:
    def transact(_address: str, operations: list[dict[str, Any]], *_more: Any) -> list[dict[str, Any]]:
        return [{"rows": rows.get(each["table"], [])} for each in operations] if rows else [{}]

    monkeypatch.setattr(switch_database, "transact", transact)
    with pytest.raises(OvsdbError, match="not a database of Open vSwitch"):
        switch_database.read(HERE)


def test_tls_without_an_authority_is_a_problem_of_the_controller() -> None:
    assert tls_problems(None, None) == tls_problems("c.pem", "ca.pem") == []
    [problem] = tls_problems("c.pem", None)
    assert (problem.switch, problem.check) == ("controller", "tls")
    assert "whoever connects is accepted as a switch" in problem.problem
    state = FabricState(TREE, epoch=1)
    SetupChecker(state, {}, (), own=[problem])
    assert [each["switch"] for each in state.setup["problems"]] == ["controller"]
