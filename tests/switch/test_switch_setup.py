"""What a switch must be: read from real databases, said, mended where that is safe, and told by ``sopa doctor switch``."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from sopa_ryu.fabric.switch_setup import CHECKS, problems
from sopa_ryu.southbound import switch_database
from tests.helpers.commands import sopa
from tests.helpers.fabrics import Fabric, running
from tests.helpers.waiting import eventually
from topologies import FatTree
from topologies.identity import PREFIX6
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.structure import BFD_MAC

pytestmark = pytest.mark.switch

TREE = FatTree(4, str(PREFIX6))
CONTROLLER = "tcp:127.0.0.1:1"
WRONG = {
    "datapath-id": ("set", "bridge", "e0_0", "other-config:datapath-id=0000000000019999"),
    "in-band": ("remove", "bridge", "e0_0", "other-config", "disable-in-band"),
    "fail-mode": ("set", "bridge", "e0_0", "fail_mode=standalone"),
    "protocols": ("set", "bridge", "e0_0", "protocols=OpenFlow10,OpenFlow14"),
    "controllers": ("set-controller", "e0_0", CONTROLLER, "tcp:127.0.0.1:2"),
    "tls": ("set-controller", "e0_0", "ssl:127.0.0.1:1"),
    "ports": ("set", "interface", "e0_0-eth2", "ofport_request=9"),
    "spanning-tree": ("set", "bridge", "e0_0", "rstp_enable=true"),
    "cfm": ("set", "interface", "e0_0-eth1", "cfm_mpid=1"),
    "bfd": ("set", "interface", "e0_0-eth3", "bfd:enable=true"),
    "prefixes": ("clear", "bridge", "e0_0", "flow_tables"),
}
MORE_WRONG = {
    ("in-band", ("set", "bridge", "e0_0", "other-config:disable-in-band=no")),
    ("fail-mode", ("clear", "bridge", "e0_0", "fail_mode")),
    ("controllers", ("set-controller", "e0_0", "ptcp:0:127.0.0.1")),
    ("ports", ("del-port", "e0_0-eth4")),
    ("ports", ("add-port", "e0_0", "more", "--", "set", "interface", "more", "type=dummy", "ofport_request=12")),
    ("bfd", ("set", "interface", "e0_0-eth1", "bfd:enable=true")),
    ("bfd", ("set", "interface", "e0_0-eth4", "bfd:enable=true", f"bfd:bfd_local_dst_mac={BFD_MAC}")),
    ("spanning-tree", ("set", "bridge", "e0_0", "stp_enable=true")),
    ("prefixes", ("remove", "bridge", "e0_0", "flow_tables", "2")),
}
MENDED_BY_COMMAND = {"in-band", "fail-mode", "protocols", "spanning-tree", "cfm", "bfd", "controllers", "prefixes"}


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateOvs]:
    with PrivateOvs(tmp_path_factory.mktemp("ovs") / "ovs", dummy=True) as its:
        yield its


@pytest.fixture
def dummy(ovs: PrivateOvs) -> Iterator[DummyFabric]:
    its = DummyFabric(TREE, ovs, CONTROLLER, [TREE.switch("e0_0")])
    eventually(lambda: found(ovs), [])  # the daemon writes datapath ids and port numbers when it has made them
    yield its
    for name in ovs.vsctl("list-br").split():
        ovs.vsctl("del-br", name)


def found(ovs: PrivateOvs) -> list[tuple[str, str]]:
    """Return the problems of every bridge, as (bridge, check)."""
    return [(setup.bridge, each.check) for setup in switch_database.read(ovs.database) for each in problems(TREE, setup)]


def doctor(ovs: PrivateOvs, *more: str) -> Result:
    return sopa("doctor", "switch", "--db", ovs.database, *more)


assert WRONG.keys() == set(CHECKS)


@pytest.mark.parametrize(("check", "command"), [*WRONG.items(), *sorted(MORE_WRONG)])
def test_each_mistake_is_found_alone_and_its_command_mends_it(dummy: DummyFabric, check: str, command: tuple[str, ...]) -> None:
    dummy.ovs.vsctl(*command)
    eventually(lambda: set(found(dummy.ovs)), {("e0_0", check)})
    said = doctor(dummy.ovs, "--bridge", "e0_0")
    assert said.exit_code == 3
    assert any(line.startswith("WRONG") and "Mend:" in line for line in said.stdout.splitlines())
    if check in MENDED_BY_COMMAND:
        [setup] = [setup for setup in switch_database.read(dummy.ovs.database) if setup.bridge == "e0_0"]
        for problem in problems(TREE, setup):
            program, *words = problem.mend.partition(", ")[0].split()
            assert program == "ovs-vsctl"
            dummy.ovs.vsctl(*words)
        eventually(lambda: found(dummy.ovs), [])


@pytest.mark.parametrize("name", ["e0_0", "a1_1", "c1_0"])
def test_the_commands_of_the_plan_make_a_switch_that_is_right(ovs: PrivateOvs, tmp_path: Path, name: str) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text(yaml.safe_dump(TREE.document()))
    words = [str(file), f"--switch={name}", f"--bridge={name}", f"--interface={name}-{{port}}", f"--controller={CONTROLLER}"]
    lines = sopa("fabric", "plan", *words).stdout.splitlines()
    for _ in range(2):  # they may be repeated
        for line in lines:
            program, *its = shlex.split(line, comments=True) or ["#"]
            assert program in ("ovs-vsctl", "#")
            if its:
                ovs.vsctl(*its)
        eventually(lambda: (found(ovs), ovs.vsctl("list-br").split()), ([], [name]))
    ovs.vsctl("del-br", name)


def test_in_a_cluster_a_switch_has_to_know_several_controllers(dummy: DummyFabric) -> None:
    def wrong() -> list[str]:
        [setup] = [setup for setup in switch_database.read(dummy.ovs.database) if setup.bridge == "e0_0"]
        return [problem.problem for problem in problems(TREE, setup, cluster=True)]

    assert wrong() == ["it has one controller of a cluster only (tcp:127.0.0.1:1): when that is away, no other one reaches it"]
    dummy.ovs.vsctl("set-controller", "e0_0", CONTROLLER, "tcp:127.0.0.1:2", "tcp:127.0.0.1:3")
    assert wrong() == []
    assert "3 controllers" in doctor(dummy.ovs, "--bridge", "e0_0").stdout
    assert "e0_0 (e0_0): controllers" in doctor(dummy.ovs, "--bridge", "e0_0", "--cluster").stdout
    dummy.ovs.vsctl("del-controller", "e0_0")
    assert wrong() == ["it has no controller"]


def test_the_doctor_sees_a_switch_that_is_right_and_connected(shared: Fabric, tmp_path: Path) -> None:
    unmanaged = doctor(shared.ovs)
    assert unmanaged.exit_code == 3
    assert "its database is reached at nowhere" in unmanaged.stdout
    shared.ovs.vsctl("set-manager", "ptcp:0:127.0.0.1")
    # Open vSwitch writes into its database every five seconds who is connected
    said = eventually(lambda: doctor(shared.ovs), lambda its: its.exit_code == 0)
    assert said.stderr == ""
    assert "ok    e0_0 (e0_0): in-band" in said.stdout
    assert "connected to tcp:" in said.stdout
    assert doctor(shared.ovs, "--bridge", "nosuch").exit_code == 1
    shared.ovs.vsctl("del-manager")
    assert sopa("doctor", "switch", "--db", f"unix:{tmp_path}/none").exit_code == 1


def test_the_doctor_sees_who_reaches_the_database(dummy: DummyFabric, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("e0_0.key", "e0_0.pem", "ca.pem")]
    dummy.ovs.vsctl("set-ssl", *map(str, files))
    dummy.ovs.vsctl("set-controller", "e0_0", "ssl:127.0.0.1:1")
    dummy.ovs.vsctl("set-manager", "ptcp:0:127.0.0.1", "tcp:127.0.0.1:1")
    try:
        said = doctor(dummy.ovs, "--bridge", "e0_0").stdout
        assert "ok    its database is reached at ptcp:0:127.0.0.1\n" in said
        assert "WRONG OpenFlow is over TLS, but any client may write to its database" in said
        assert all(f"WRONG {file}: missing" in said for file in files)
        for file in files:
            file.write_text("")
            file.chmod(0o644)
        said = doctor(dummy.ovs, "--bridge", "e0_0").stdout
        assert f"WRONG {files[0]}: every user can read it. Mend: chmod o= {files[0]}" in said
        assert all(f"ok    {file}: readable" in said for file in files[1:])
    finally:
        dummy.ovs.vsctl("del-manager", "--", "del-ssl")


def test_the_doctor_misses_parsers_only_where_they_are_wanted(dummy: DummyFabric) -> None:
    assert "parser" not in doctor(dummy.ovs).stdout
    lines = [line for line in doctor(dummy.ovs, "--carrier", "option").stdout.splitlines() if "sopa-parser@" in line]
    assert len(lines) == TREE.half  # the hosts of e0_0
    assert all(line.startswith("WRONG") for line in lines)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Fabric]:
    database = f"--sopa-ovsdb=unix:{tmp_path}/ovs/db.sock"
    with running(TREE, tmp_path, database) as fabric:
        yield fabric


def test_the_controller_says_what_is_wrong_and_mends_what_it_may(watched: Fabric) -> None:
    ovs = watched.ovs
    eventually(lambda: watched.controller.fabric()["setup"]["checked"], 20)
    assert watched.controller.fabric()["setup"]["problems"] == []
    # the controller enables BFD by the same database: no peer answers here, so that it stops after one uplink of each switch
    eventually(lambda: len(watched.controller.fabric()["failures"]), TREE.switch_link_count // 2)
    watched.await_installed()
    before = watched.flows("e0_0")
    ovs.vsctl(*WRONG["in-band"], "--", *WRONG["fail-mode"], "--", *WRONG["prefixes"], "--", *WRONG["spanning-tree"])
    ovs.appctl("bridge/reconnect", "c0_0")  # it looks again after a switch has connected
    eventually(lambda: len(watched.controller.fabric()["setup"]["problems"]), 1)
    [problem] = watched.controller.fabric()["setup"]["problems"]
    assert (problem["switch"], problem["check"]) == ("e0_0", "spanning-tree")
    assert problem["mend"] == "ovs-vsctl set bridge e0_0 stp_enable=false rstp_enable=false"
    assert ovs.vsctl("get", "bridge", "e0_0", "other_config:disable-in-band").strip() == '"true"'
    assert ovs.vsctl("get", "bridge", "e0_0", "fail_mode").strip() == "secure"
    assert len(ovs.vsctl("get", "bridge", "e0_0", "flow_tables").split(",")) == 6
    assert ovs.vsctl("get", "bridge", "e0_0", "other_config:dp-desc").strip() == "e0_0"
    assert watched.flows("e0_0") == before
    log = watched.controller.log.read_text()
    assert "switch e0_0: in-band control is on" in log
    assert f"Mend it there: {problem['mend']}" in log
