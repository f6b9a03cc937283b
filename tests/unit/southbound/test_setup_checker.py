"""The set-up checker with databases in memory: what it says once, what it mends, and what a false database costs."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_setup import SwitchSetup, Target
from sopa_ryu.southbound import setup_checker, switch_database
from sopa_ryu.southbound.setup_checker import SetupChecker, tls_problems
from tests.helpers.golden import Step, play, scripts
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
FOUND = {
    "right": RIGHT,
    "spanning-tree": replace(RIGHT, spanning_tree=True),
    "unsafe": UNSAFE,
    "without-controllers": replace(UNSAFE, controllers=()),
    "other-bridge": replace(UNSAFE, bridge="other", dpid=0x99),
}


class World:
    """Databases in memory, and a checker: the words of the scripts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], list[str]]) -> None:
        self.bridges: dict[str, list[SwitchSetup]] = {HERE: [RIGHT]}
        self.mended: list[str] = []
        self._logged, self._told = logged, 0
        self._said: list[str] = []
        monkeypatch.setattr(switch_database, "read", self._read)
        monkeypatch.setattr(switch_database, "mend", self._mend)
        monkeypatch.setattr(setup_checker, "hub", SimpleNamespace(Event=SimpleNamespace, sleep=lambda _seconds: None))

    def _read(self, address: str, **_more: Any) -> list[SwitchSetup]:
        if address not in self.bridges:
            raise OvsdbError(f"{address}: no answer within 5 s")
        return self.bridges[address]

    def _mend(self, _address: str, setup: SwitchSetup, found: list[Any], **_more: Any) -> None:
        self.mended += [f"{setup.bridge} {problem.check}" for problem in found]

    def handle(self, step: Step) -> str:
        """Do as told; tell what is said of the switches if it is something else than before, what was mended, and logged."""
        match step.command, step.words:
            case "start", addresses:  # with a controller that commands the switches, unless commands=no
                self.state, may = FabricState(TREE, epoch=1), step.options.get("commands") != "no"
                self.its = SetupChecker(self.state, {}, addresses, may_change=lambda: may)
            case "found", names:  # in the first database
                self.bridges[HERE] = [FOUND[name] for name in names]
            case "check", []:
                self.its.check()
        setup, messages = self.state.setup, self._logged()
        problems = [f"problem: {its['switch']} {its['check']}" for its in setup["problems"]]
        said = [f"checked {setup['checked']}: {setup['detail']}", *problems]
        news = [*([] if said == self._said else said), *(f"mended: {its}" for its in self.mended)]
        news += [f"log: {line}" for line in messages[self._told :]]
        self._said, self._told, self.mended = said, len(messages), []
        return "\n".join(news)


@pytest.mark.parametrize("script", scripts(__file__, "setup_checker"), ids=lambda path: path.stem)
def test_script(
    script: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sopa.setup")
    play(script, World(monkeypatch, lambda: caplog.messages).handle, record=request.config.option.record)


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
