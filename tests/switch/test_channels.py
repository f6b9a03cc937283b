"""OpenFlow channels of real Open vSwitch that are lost or claimed twice, and a controller that stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from tests.helpers.certificates import Authority
from tests.helpers.fabrics import Fabric
from tests.helpers.openflow_client import OpenFlowClient
from tests.helpers.waiting import Containing, eventually
from topologies import FatTree, Host
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch

NOWHERE = "tcp:127.0.0.1:9"


def lose(fabric: Fabric, *names: str) -> None:
    """Point switches to no controller; they keep their entries."""
    fabric.lead(names, NOWHERE)
    eventually(lambda: set(fabric.controller.fabric()["missing"]), set(names))


def restore(fabric: Fabric, *names: str) -> None:
    fabric.lead(names, fabric.controller.openflow)
    eventually(lambda: fabric.controller.fabric()["missing"], [])


def log(fabric: Fabric) -> str:
    return fabric.controller.log.read_text()


@contextmanager
def twin(fabric: Fabric, name: str, directory: Path) -> Iterator[PrivateOvs]:
    """Run another Open vSwitch with a bridge of the datapath id and the ports of a switch."""
    with PrivateOvs(directory, dummy=True) as other:
        words = ["add-br", name, "--", "set", "bridge", name, "datapath_type=dummy", "protocols=OpenFlow13"]
        words += [f"other-config:datapath-id={fabric.tree.dpid(fabric.tree.switch(name)):016x}"]
        for port in range(1, 5):
            words += ["--", "add-port", name, f"{name}p{port}"]
            words += ["--", "set", "interface", f"{name}p{port}", "type=dummy", f"ofport_request={port}"]
        other.vsctl(*words, "--", "set-controller", name, fabric.controller.openflow)
        yield other


@pytest.mark.parametrize(
    "names",
    [("a2_0",), ("c0_0", "c0_1", "c1_0", "c1_1"), ("e0_0", "e0_1", "a0_0", "a0_1", "c0_0", "a1_0", "e2_1", "c1_1")],
)
def test_switches_without_a_channel_keep_paths_and_rules(fabric: Fabric, names: tuple[str, ...]) -> None:
    before = fabric.controller.fabric()["version"]
    rules = {name: fabric.flows(name) for name in map(fabric.tree.name, fabric.tree.switches())}
    lose(fabric, *names)
    body = fabric.controller.fabric()
    assert sorted(body["no_channel"]) == sorted(names)
    assert (body["failures"], body["version"]) == ([], before)
    assert body["management"]["channels_faults"] == (len(names) > 4)
    assert {name: fabric.flows(name) for name in rules} == rules
    restore(fabric, *names)
    assert fabric.controller.fabric()["version"] == before
    assert "switch a2_0 admitted: 0 entries and 0 groups added" in log(fabric) or "a2_0" not in names


def test_a_switch_is_down_when_its_neighbours_see_all_its_links_down(fabric: Fabric) -> None:
    core = fabric.tree.switch("c1_1")
    lose(fabric, "c1_1")
    for neighbour in fabric.tree.ports(core).values():
        assert not isinstance(neighbour, Host)
        fabric.dummy.set_port(neighbour, fabric.tree.port(neighbour, core), up=False)
    down = [{"name": "c1_1", "kind": "switch", "reason": "down"}]
    eventually(lambda: fabric.controller.fabric()["failures"], down)
    for neighbour in fabric.tree.ports(core).values():
        assert not isinstance(neighbour, Host)
        fabric.dummy.set_port(neighbour, fabric.tree.port(neighbour, core), up=True)
    eventually(lambda: fabric.controller.get("/links").json()["links"], lambda links: len(links) == 48)
    assert fabric.controller.fabric()["failures"] == down  # it may have restarted
    restore(fabric, "c1_1")
    eventually(lambda: fabric.controller.fabric()["failures"], [])


def test_a_controller_that_was_stopped_and_continued_withdraws_nothing(fabric: Fabric) -> None:
    before = fabric.controller.fabric()["version"]
    with standing_still(fabric.controller.pid):
        time.sleep(13)  # the pause itself
    eventually(lambda: log(fabric), Containing("this controller stood still for 1"))
    eventually(lambda: fabric.controller.fabric()["management"]["fault"], False)
    eventually(lambda: fabric.controller.fabric()["connected"], 20)
    assert fabric.controller.fabric()["version"] == before
    assert fabric.controller.fabric()["management"]["pauses_faults"] == 1


def test_a_second_switch_with_a_known_datapath_id_is_closed(fabric: Fabric, tmp_path: Path) -> None:
    with twin(fabric, "e0_0", tmp_path / "twin") as other:
        eventually(lambda: log(fabric), Containing("second connection of switch e0_0"))
        other.appctl("netdev-dummy/set-admin-state", "e0_0p3", "down")
        switch = fabric.tree.switch("e0_0")
        fabric.dummy.set_port(switch, 4, up=False)
        heard = [{"name": "e0_0-a0_1", "kind": "link", "reason": "down"}]
        eventually(lambda: fabric.controller.fabric()["failures"], heard)
        fabric.dummy.set_port(switch, 4, up=True)
    eventually(lambda: fabric.controller.fabric()["failures"], [])
    assert fabric.controller.fabric()["connected"] == 20
    metrics = httpx.get(f"{fabric.controller.url}/metrics").text
    assert 'sopa_second_connections_total{kept="newer"} 0.0' in metrics


def test_a_second_switch_takes_over_from_one_that_hangs(fabric: Fabric, tmp_path: Path) -> None:
    fabric.ovs.vsctl("del-br", "c1_1")
    eventually(lambda: fabric.controller.fabric()["missing"], ["c1_1"])
    with twin(fabric, "c1_1", tmp_path / "first") as first:
        eventually(lambda: fabric.controller.fabric()["connected"], 20)
        with standing_still(first.pid()), twin(fabric, "c1_1", tmp_path / "second"):
            eventually(
                lambda: log(fabric), Containing("c1_1: its connection from 127.0.0.1 does not answer or is gone")
            )
            eventually(lambda: fabric.controller.fabric()["connected"], 20)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_generation_id_that_is_ahead_keeps_no_switch_from_this_controller(fabric: Fabric, restarted: bool) -> None:
    client = OpenFlowClient()
    try:
        fabric.ovs.vsctl("set-controller", "a0_0", client.target)
        client.accept()
        ahead = int(time.time() * 1000) + 10**9
        client.send_msg(client.ofproto_parser.OFPRoleRequest(client, client.ofproto.OFPCR_ROLE_MASTER, ahead))
        assert client.receive().generation_id == ahead
    finally:
        client.close()
    if restarted:
        fabric.controller.stop()
        fabric.controller.start()
    restore(fabric, "a0_0")
    eventually(lambda: fabric.controller.fabric()["failures"], [])
    assert f"goes on with {ahead + 1}" in log(fabric)


def test_only_the_switch_that_a_certificate_names_connects(tmp_path: Path) -> None:
    authority, tree = Authority(tmp_path), FatTree(4)
    own, switch = authority.sign("controller"), authority.sign("c1_1")
    openflow, rest, secure = free_ports(3)
    options = [
        f"--ctl-privkey={own.key}",
        f"--ctl-cert={own.certificate}",
        f"--ca-certs={authority.certificate}",
        f"--ofp-ssl-listen-port={secure}",
        "--sopa-bind-certificates",
    ]
    with (
        ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=options) as its,
        PrivateOvs(tmp_path / "ovs", dummy=True) as ovs,
    ):
        ovs.vsctl("set-ssl", str(switch.key), str(switch.certificate), str(authority.certificate))
        DummyFabric(tree, ovs, f"ssl:127.0.0.1:{secure}")
        eventually(lambda: its.fabric()["connected"], 1)
        eventually(lambda: len(its.fabric()["rejected"]), 19)
        assert "c1_1" not in its.fabric()["missing"]
        assert {"dpid": "0000000000010000", "reason": "e0_0 has shown a certificate for c1_1: it needs one for e0_0 or "
                "0000000000010000"} in its.fabric()["rejected"]  # fmt: skip
        assert "Traceback" not in its.log.read_text()
