"""OpenFlow channels of real Open vSwitch that are claimed twice or name another switch, and a controller that stands still."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from tests.helpers.certificates import Authority
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import Containing, eventually
from topologies import FatTree
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch


def log(fabric: Fabric) -> str:
    return fabric.controller.log.read_text()


def test_a_controller_that_was_stopped_and_continued_withdraws_nothing(shared: Fabric) -> None:
    before = shared.controller.fabric()
    eventually(shared.dummy.connected, 20)
    probe = {"op": "update", "table": "Controller", "where": [], "row": {"inactivity_probe": 5000}}
    shared.ovs.transact([probe])  # the switches close their channels meanwhile
    with standing_still(shared.controller.pid):
        eventually(shared.dummy.connected, 0)
    eventually(lambda: log(shared), Containing("this controller stood still for "))
    eventually(lambda: shared.controller.fabric()["management"]["fault"], False)
    eventually(lambda: shared.controller.fabric()["connected"], 20)
    after = shared.controller.fabric()
    assert after["version"] == before["version"]
    assert after["management"]["pauses_faults"] > before["management"]["pauses_faults"]
    probe["row"] = {"inactivity_probe": 0}
    shared.ovs.transact([probe])


def test_a_second_connection_is_closed_and_takes_over_from_one_that_hangs(shared: Fabric, tmp_path: Path) -> None:
    name, controller = "c1_1", shared.controller
    shared.lead([name], "tcp:127.0.0.1:9")
    eventually(lambda: controller.fabric()["missing"], [name])
    with PrivateOvs(tmp_path / "twin", dummy=True) as twin:
        DummyFabric(shared.tree, twin, controller.openflow, [shared.tree.switch(name)])
        eventually(lambda: controller.fabric()["connected"], 20)
        shared.lead([name], controller.openflow)
        eventually(lambda: log(shared), Containing(f"second connection of switch {name} from 127.0.0.1 closed"))
        with standing_still(twin.pid()):
            eventually(
                lambda: log(shared), Containing(f"{name}: its connection from 127.0.0.1 does not answer or is gone")
            )
            eventually(lambda: controller.fabric()["connected"], 20)


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
