"""The set-up checker with databases in memory: what it says once, what it mends, and what a false database costs."""

import logging
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_setup import SwitchSetup, Target, problems
from sopa_ryu.southbound import bfd, setup_checker, switch_database
from sopa_ryu.southbound.databases import names_at
from sopa_ryu.southbound.setup_checker import SetupChecker, tls_problems
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree, ovsdb
from topologies.fabric_plan import PREFIXES
from topologies.ovsdb import OvsdbError

TREE = FatTree(4)
HERE, BAD = "tcp:192.0.2.1:6640", "tcp:192.0.2.66:6640"
RIGHT = SwitchSetup(
    uuid="1",
    bridge="br0",
    dpid=TREE.dpid(TREE.switch("e0_0")),
    fail_mode="secure",
    protocols=frozenset({"OpenFlow13"}),
    other_config={"disable-in-band": "true"},
    controllers=(Target("tcp:192.0.2.9:6653", True),),
    interfaces={port: f"eth{port}" for port in range(1, 5)},
    prefixes={table: frozenset(fields) for fields, tables in PREFIXES.values() for table in tables},
)
UNSAFE = replace(RIGHT, other_config={}, fail_mode="", prefixes={})
FOUND = {
    "right": RIGHT,
    "spanning-tree": replace(RIGHT, spanning_tree=True),
    "unsafe": UNSAFE,
    "without-controllers": replace(UNSAFE, controllers=()),
    "other-bridge": replace(UNSAFE, bridge="other", dpid=0x99),
    "c0_0": replace(UNSAFE, bridge="x; sh", dpid=TREE.dpid(TREE.switch("c0_0"))),
    "huge": replace(RIGHT, interfaces=dict.fromkeys(range(1, 9999), "x" * 255), controllers=(Target("x" * 255, False),) * 999),
    "shell": replace(
        RIGHT, bridge="$(x)", controllers=(Target("tcp:192.0.2.9; curl x|sh #", True), Target("tcp:192.0.2.8", False))
    ),
}


class World:
    """Databases in memory, and a checker: the words of the scripts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], list[str]]) -> None:
        self.bridges: dict[str, list[SwitchSetup]] = {HERE: [RIGHT]}
        self.connections: dict[Any, Any] = {TREE.switch("e0_0"): SimpleNamespace(address="192.0.2.1")}
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
                self.state.settled = step.options.get("settled") != "no"
                cluster = "cluster" in step.options
                self.its = SetupChecker(self.state, self.connections, addresses, may_change=lambda: may, cluster=cluster)
            case "connect", [name, address]:
                self.connections[TREE.switch(name)] = SimpleNamespace(address=address)
            case "found", names:  # in the first database
                self.bridges[HERE] = [FOUND[name] for name in names]
            case "controllers", targets:  # connected with a + behind
                its = tuple(Target(each.removesuffix("+"), each.endswith("+")) for each in targets)
                self.bridges[HERE] = [
                    replace(RIGHT, controllers=its, protocols=frozenset(step.options.get("protocols", "").split()))
                ]
            case "certificate", [address]:  # the names of which one there has to have one
                return " ".join(sorted(names_at(address, TREE, self.connections)))
            case "check", []:
                self.its.check()
        setup, messages = self.state.setup, self._logged()
        problems = [f"problem: {its['switch']} {its['check']}" for its in setup["problems"]]
        said = [f"checked {setup['checked']}: {setup['detail']}", *problems]
        news = [*([] if said == self._said else said), *(f"mended: {its}" for its in self.mended)]
        news += [f"log: {line}" for line in messages[self._told :]]
        self._said, self._told, self.mended = said, len(messages), []
        return "\n".join(news)


@each_script(__file__, "setup_checker")
def test_script(script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.setup")
    script.play(World(monkeypatch, lambda: caplog.messages).handle)


def test_what_one_switch_has_said_of_it_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    world = World(monkeypatch, lambda: caplog.messages)
    for line in (f"start {HERE}", "found huge huge", "check"):
        world.handle(Step.read(line))
    assert len(world.state.setup["problems"]) == setup_checker.MAX_PROBLEMS
    assert max(map(len, caplog.messages)) < 3000
    bridge, ports, interfaces = {"ports": ["p"]}, {"p": {"interfaces": ["i"]}}, {"i": {"ofport": 3}}
    assert [switch_database.ports_of(bridge, ports, interfaces) for _ in range(2)] == [{3: {"ofport": 3}}, {}]
    assert ports == interfaces == {}


EMPTY: list[Any] = ["set", []]
BRIDGE = {"_uuid": ["uuid", "b"], "name": "br0", "datapath_id": "0000000000010000", "fail_mode": "secure", "protocols": EMPTY,
          "other_config": ["map", []], "controller": ["uuid", "c"], "ports": ["uuid", "p"], "stp_enable": False,
          "rstp_enable": True, "flow_tables": ["map", [[1, ["uuid", "t"]]]]}  # fmt: skip
ROWS: dict[str, dict[str, Any]] = {
    "Open_vSwitch": {"ssl": ["uuid", "s"]}, "SSL": {"_uuid": ["uuid", "s"], "ca_cert": "ca.pem", "bootstrap_ca_cert": False},
    "Flow_Table": {"_uuid": ["uuid", "t"], "prefixes": ["set", ["ip_dst", "ipv6_dst"]]},
    "Bridge": BRIDGE, "Controller": {"_uuid": ["uuid", "c"], "target": "tcp:192.0.2.9", "is_connected": True},
    "Port": {"_uuid": ["uuid", "p"], "interfaces": ["uuid", "i"]},
    "Interface": {"_uuid": ["uuid", "i"], "name": "eth1", "ofport": 3, "cfm_mpid": EMPTY,
                  "bfd": ["map", [["enable", "true"]]], "bfd_status": ["map", []]},
}  # fmt: skip
WORDS = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(["set", "map", "uuid", "i", "p"])
ANY = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS.filter(bool), inner, max_size=2), max_leaves=6
)


@given(st.sampled_from([(table, column) for table, row in ROWS.items() for column in row]), ANY, st.booleans())
def test_whatever_a_database_answers_is_understood_or_its_own_error(place: tuple[str, str], value: Any, whole: bool) -> None:
    def transact(address: str, operations: list[dict[str, Any]], *_more: Any) -> list[Any]:
        rows = {table: row | ({place[1]: value} if (address, table) == (BAD, place[0]) else {}) for table, row in ROWS.items()}
        found = [{"rows": [rows[each["table"]]]} for each in operations]
        return [{"rows": value}] * len(found) if whole and address == BAD else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ovsdb, "transact", transact)
        its = {address: set(TREE.switches()) for address in (HERE, BAD)}
        assert bfd.enable(its, TREE, 100, change=False).had == 1
        bfd.enable_gateways(its, TREE, 100, change=False)
        with suppress(OvsdbError):
            for problem in (each for setup in switch_database.read(BAD) for each in problems(TREE, setup)):
                assert "".join(problem).isprintable()
                assert shlex.split(problem.mend)


def test_tls_without_an_authority_is_a_problem_of_the_controller() -> None:
    assert tls_problems(None, None) == tls_problems("c.pem", "ca.pem") == []
    [problem] = tls_problems("c.pem", None)
    assert (problem.switch, problem.check) == ("controller", "tls")
    assert "whoever connects is accepted as a switch" in problem.problem
    state = FabricState(TREE, epoch=1)
    SetupChecker(state, {}, (), own=[problem])
    assert [each["switch"] for each in state.setup["problems"]] == ["controller"]
