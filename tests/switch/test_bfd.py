"""The interfaces at which `bfd.enable` enables BFD, in the databases of real switches; the lab's tests check the links."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sopa_ryu.southbound import bfd
from tests.helpers.fabrics import set_live
from tests.helpers.waiting import eventually
from topologies import FatTree, Host, Level, Switch
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.ovsdb import OvsdbError, entries, transact
from topologies.structure import BFD_MAC

pytestmark = pytest.mark.switch

TREE = FatTree(4)
ENDS = {
    (switch, port)
    for switch in TREE.switches()
    for port, node in TREE.ports(switch).items()
    if not isinstance(node, Host)
}
ADDRESSES = {bfd.SENDS_TO: BFD_MAC, bfd.REQUIRES: BFD_MAC}
NOWHERE = "tcp:127.0.0.1:1"


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[DummyFabric]:
    with PrivateOvs(tmp_path / "ovs", dummy=True) as ovs:
        yield DummyFabric(TREE, ovs)


def configured(ovs: PrivateOvs) -> dict[tuple[Switch, int], dict[str, str]]:
    """From each port that has settings of BFD to those settings."""
    select = {"op": "select", "table": "Interface", "where": [], "columns": ["name", "bfd"]}
    found = {}
    for row in ovs.transact([select])[0]["rows"]:
        if settings := entries(row["bfd"]):
            switch, _, port = row["name"].partition("-eth")
            found[TREE.switch(switch), int(port)] = settings
    return found


def settings(interval: int) -> dict[str, str]:
    return {"enable": "true", "min_tx": str(interval), "min_rx": str(interval), **ADDRESSES}


def test_every_link_between_switches_gets_it_once(fabric: DummyFabric) -> None:
    # another network's bridge, and one whose database row no switch has applied, are none of ours
    fabric.ovs.vsctl("add-br", "other", "--", "set", "bridge", "other", "datapath_type=dummy")
    fabric.ovs.vsctl("--no-wait", "add-br", "fresh", "--", "set", "bridge", "fresh", "datapath_type=nosuch")
    report = bfd.enable([fabric.ovs.database] * 2, TREE, 300)
    assert report == bfd.Report(set(TREE.switches()), had=0, enabled=64)
    assert configured(fabric.ovs) == dict.fromkeys(ENDS, settings(300))
    assert bfd.enable([fabric.ovs.database], TREE, 100) == bfd.Report(set(TREE.switches()), had=64, enabled=0)
    assert configured(fabric.ovs) == dict.fromkeys(ENDS, settings(300))


def test_what_is_enabled_already_is_left_alone_and_other_settings_stay(fabric: DummyFabric) -> None:
    fabric.ovs.vsctl("set", "Interface", "a0_0-eth3", "bfd:enable=true", "bfd:min_tx=1000")
    fabric.ovs.vsctl("set", "Interface", "a0_0-eth4", "bfd:enable=false", "bfd:min_tx=7", "bfd:cpath_down=false")
    report = bfd.enable([fabric.ovs.database], TREE, 100)
    assert (report.had, report.enabled, report.addressed) == (1, 63, 1)
    found = configured(fabric.ovs)
    switch = TREE.switch("a0_0")
    assert found[switch, 3] == {"enable": "true", "min_tx": "1000", **ADDRESSES}
    assert found[switch, 4] == {**settings(100), "cpath_down": "false"}


def test_an_end_requires_the_address_only_after_the_other_one_sends_to_it(
    fabric: DummyFabric, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One database breaks down between the two steps: no link may be left with a requirement that its other end does not meet."""
    with PrivateOvs(tmp_path / "second", dummy=True) as second:
        DummyFabric(TREE, second)
        for switch in TREE.switches():
            (fabric.ovs if switch.level is Level.EDGE else second).vsctl("del-br", TREE.name(switch))
        for ovs in (fabric.ovs, second):
            names = [
                f"{TREE.name(switch)}-eth{port}" for switch, port in ENDS if TREE.name(switch) in ovs.vsctl("list-br")
            ]
            ovs.vsctl(*(word for name in names for word in ("--", "set", "Interface", name, "bfd:enable=true")))

        def failing(address: str, operations: list[dict[str, Any]], *rest: Any) -> list[dict[str, Any]]:
            if address == second.database and operations[0]["op"] == "mutate":
                raise OvsdbError("gone")
            return transact(address, operations, *rest)

        monkeypatch.setattr(bfd, "transact", failing)
        report = bfd.enable([fabric.ovs.database, second.database], TREE, 100)
        assert (report.had, report.enabled, report.problems) == (64, 0, {second.database: "gone"})
        found = configured(fabric.ovs) | configured(second)
        for switch, port in ENDS:
            far = TREE.neighbour(switch, port)
            assert isinstance(far, Switch)
            other = found[far, TREE.port(far, switch)]
            assert bfd.REQUIRES not in found[switch, port] or other.get(bfd.SENDS_TO) == BFD_MAC
        monkeypatch.undo()
        bfd.enable([fabric.ovs.database, second.database], TREE, 100)
        both = configured(fabric.ovs) | configured(second)
        assert all(ADDRESSES.items() <= its.items() for its in both.values())
        assert both.keys() == ENDS


def test_one_uplink_index_at_a_time(fabric: DummyFabric) -> None:
    done: set[tuple[Switch, int]] = set()
    for index, report in enumerate(bfd.rollout([fabric.ovs.database], TREE, 100)):
        new = configured(fabric.ovs).keys() - done
        assert (report.had, report.enabled) == (0, len(new)) == (0, 32)
        for switch, port in new:
            if port > TREE.half and switch.level is not Level.CORE:
                assert port == TREE.uplink_port(Level.EDGE, index)
            neighbour = TREE.neighbour(switch, port)
            assert (neighbour, TREE.port(neighbour, switch)) in new
        done |= new
    assert done == ENDS


def test_a_link_whose_other_end_is_out_of_reach_is_left_alone(fabric: DummyFabric) -> None:
    pod = {TREE.dpid(switch) for switch in TREE.switches() if switch.level is not Level.CORE and switch.pod == 0}
    report = bfd.enable([NOWHERE, fabric.ovs.database], TREE, 100, dpids=pod)
    assert {TREE.name(switch) for switch in report.switches} == {"e0_0", "e0_1", "a0_0", "a0_1"}
    assert (report.enabled, len(report.single)) == (8, 4)
    assert {TREE.name(end.switch) for end in report.single} == {"a0_0", "a0_1"}
    assert list(report.problems) == [NOWHERE]
    assert "Connection refused" in report.problems[NOWHERE]


def test_switches_can_have_databases_of_their_own(fabric: DummyFabric, tmp_path: Path) -> None:
    with PrivateOvs(tmp_path / "second", dummy=True) as second:
        DummyFabric(TREE, second)
        for switch in TREE.switches():
            (fabric.ovs if switch.pod else second).vsctl("del-br", TREE.name(switch))
        report = bfd.enable([fabric.ovs.database, second.database], TREE, 100)
        assert report == bfd.Report(set(TREE.switches()), had=0, enabled=64)
        both = configured(fabric.ovs) | configured(second)
        assert both.keys() == ENDS


def test_under_eventlet(fabric: DummyFabric) -> None:
    code = """if True:
        import sys, eventlet; eventlet.monkey_patch()
        from sopa_ryu.southbound import bfd
        from topologies import FatTree
        report = bfd.enable([sys.argv[1]], FatTree(4), 100)
        print(len(report.switches), report.enabled)
    """
    command = [sys.executable, "-W", "ignore", "-c", code, fabric.ovs.database]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout == "20 64\n"


def test_a_dummy_link_is_dead_and_alive(fabric: DummyFabric) -> None:
    switch = TREE.switch("a0_0")

    def state() -> str:
        found = re.search(r" 3\(.*?state: +(\w+)", fabric.ovs.ofctl("show", "a0_0"), re.DOTALL)
        assert found is not None
        return found[1]

    for live in (False, True):
        set_live(fabric, switch, 3, live)
        eventually(state, "LIVE" if live else "0")
