"""The controller against real Open vSwitch: the switches it admits or ignores, its repairs, its restart, and its messages."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from tests.helpers import relay
from tests.helpers.fabrics import Fabric, packet
from tests.helpers.openflow_client import OpenFlowClient
from tests.helpers.relay import Agent
from tests.helpers.waiting import Containing, eventually
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch


@pytest.fixture
def fabric(shared: Fabric) -> Fabric:
    return shared


def send(fabric: Fabric, packet: str) -> None:
    """Have a packet of h0_0_2 come in at its port."""
    fabric.ovs.appctl("netdev-dummy/receive", "e0_0-eth1", f"in_port(1),{packet}")


@contextmanager
def stopped(fabric: Fabric) -> Iterator[None]:
    """Kill the controller, and start it again afterwards."""
    fabric.controller.stop(signal.SIGKILL)
    yield
    fabric.controller.start()


def agent(fabric: Fabric, address: str, *more: Any) -> AbstractContextManager[Agent]:
    return relay.agent(fabric.controller.url, address, fabric.controller.agent_token_file.read_text().strip(), *more)


def test_a_packet_in_flight_that_names_a_dead_uplink_takes_another_one(fabric: Fabric) -> None:
    fabric.set_link("a0_0-c0_1", False)
    fabric.fails({"a0_0-c0_1": "down"})
    src, dst = fabric.tree.host("h0_0_2"), fabric.tree.host("h2_0_2")
    assert fabric.walk("h0_0_2", packet(fabric, src, dst, (0, 1))) == ["e0_0", "a0_0", "c0_0", "a2_0", "e2_0", "h2_0_2"]
    fabric.set_link("a0_0-c0_1", True)
    fabric.fails({})


def test_a_restarted_controller_repairs_entry_by_entry_and_keeps_what_was_learned(fabric: Fabric) -> None:
    tree, ovs, healthy = fabric.tree, fabric.ovs, fabric.flows("e0_0")
    mac = "06:11:22:33:44:55"

    def counted() -> bool:
        flows = ovs.ofctl("dump-flows", "e0_0").splitlines()
        return any("n_packets=1" in flow and "in_port=1,nw_src" in flow for flow in flows)

    def asks(sender: str) -> str:
        arp = f"arp(sip=10.0.0.2,tip=10.0.0.1,op=1,sha={sender},tha=00:00:00:00:00:00)"
        return f"eth(src={sender},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),{arp}"

    fabric.controller.change("PUT", "/drains/c1_0").raise_for_status()
    fabric.set_link("a1_0-c0_1", False)
    known = {"c1_0": "drained", "a1_0-c0_1": "down"}
    fabric.fails(known)
    ends = "ipv4(src=10.0.0.2,dst=10.0.0.3,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)"
    send(fabric, f"eth(src=02:00:0a:00:00:02,dst=02:00:00:00:00:01),eth_type(0x0800),{ends}")
    eventually(counted)
    send(fabric, asks(mac))
    eventually(lambda: mac.replace(":", "").lstrip("0") in ovs.ofctl("dump-flows", "e0_0", "table=4"))
    with stopped(fabric):
        ovs.ofctl("--strict", "del-flows", "e0_0", "table=1,priority=40,ip,nw_dst=10.0.0.2")
        ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,udp,actions=drop")
        ours = "cookie=0x5012345600000001,table=1,priority=40,ip"
        ovs.ofctl("add-flow", "e0_0", f"{ours},nw_dst=10.0.0.3,actions=drop")
        ovs.ofctl("mod-group", "e0_0", "group_id=1,type=ff,bucket=watch_port:4,actions=output:4")
        ovs.ofctl("add-group", "e0_0", "group_id=77,type=all")
        fabric.set_link("a0_0-c0_1", False)
    with agent(fabric, "10.0.0.2") as its:  # before the switches are back
        assert its.follow()[0] == fabric.controller.fabric()["epoch"]
        assert its.view.failures.items() >= known.items()
    fabric.controller.wait_connected(20)
    fabric.fails({**known, "a0_0-c0_1": "down"})
    fabric.controller.change("DELETE", "/drains/c1_0").raise_for_status()
    for name in ("a0_0-c0_1", "a1_0-c0_1"):
        fabric.set_link(name, True)
    fabric.fails({})
    learned = [flow for flow in fabric.flows("e0_0") if flow.startswith("cookie=0x50000000,")]
    assert sorted({*fabric.flows("e0_0")} - {*learned}) == [
        flow for flow in healthy if not flow.startswith("cookie=0x50000000,")
    ]
    groups = ovs.ofctl("dump-groups", "e0_0")
    assert "group_id=77" not in groups
    assert "group_id=1,type=ff,bucket=watch_port:3,actions=output:3,bucket=watch_port:4,actions=output:4" in groups
    assert counted()
    flow = packet(fabric, tree.host("h1_0_2"), tree.host("h0_0_2"))
    assert f"dst={mac}" in fabric.trace(tree.switch("e0_0"), f"in_port=3,{flow}").actions
    ovs.ofctl("del-flows", "e0_0", "cookie=0x5000000000000000/-1")


def test_after_an_estimator_that_is_killed_another_one_hands_out_lists_anew(fabric: Fabric) -> None:
    """What it concludes from probes is in `tests/unit/health`, and with packets in `tests/lab/test_probes.py`."""
    lists: dict[object, int] = {}

    def listed(its: Agent, message: dict[str, Any]) -> None:
        lists[its.address] = message["number"]

    def running() -> bool:
        return fabric.controller.get("/health").json()["running"]

    probing = "probes=1", {"probes": listed}
    with agent(fabric, "10.0.0.2", *probing) as one, agent(fabric, "10.2.0.2", *probing) as other:
        assert one.follow() == other.follow()
        eventually(lambda: len(lists) == 2 and running())
        said, former = fabric.controller.log.read_text(), max(lists.values())
        os.kill(int(said.rpartition("runs as process ")[2].split()[0]), signal.SIGKILL)
        eventually(lambda: min(lists.values()) > former and running())


def test_the_later_controller_is_master_whatever_generation_there_was(fabric: Fabric, tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    names = [fabric.tree.name(switch) for switch in fabric.tree.switches()]
    with ControllerProcess(4, tmp_path / "second.log", openflow, rest) as second:
        flows = fabric.flows("e0_0")
        fabric.lead(names, fabric.controller.openflow, second.openflow)
        second.wait_connected(20)
        assert fabric.flows("e0_0") == flows
        eventually(lambda: len(fabric.controller.fabric()["rejected"]), 20)
        assert "another controller, started later" in fabric.controller.fabric()["rejected"][0]["reason"]
    client = OpenFlowClient()
    try:
        fabric.lead(["a0_0"], client.target)
        client.accept()
        ahead = int(time.time() * 1000) + 10**9
        client.send_msg(client.ofproto_parser.OFPRoleRequest(client, client.ofproto.OFPCR_ROLE_MASTER, ahead))
        assert client.receive().generation_id == ahead
    finally:
        client.close()
    fabric.lead(names, "tcp:127.0.0.1:9")
    fabric.lead(names, fabric.controller.openflow)
    eventually(lambda: fabric.controller.fabric()["connected"], 20)
    eventually(lambda: fabric.controller.log.read_text(), Containing(f"goes on with {ahead + 1}"))


def test_a_port_that_is_taken_is_said_clearly(fabric: Fabric) -> None:
    command = fabric.controller.command
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "already in use (another controller?)" in done.stderr
    (rest,) = (word for word in command if word.startswith("--wsapi-port="))
    other = [word for word in command if not word.startswith("--ofp")] + [f"--ofp-tcp-listen-port={free_ports(1)[0]}"]
    done = subprocess.run(other, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"port {rest.partition('=')[2]} on 127.0.0.1 is already in use" in done.stderr


# -- channels that are claimed twice or name another switch, and a controller that stands still -----------------------


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
