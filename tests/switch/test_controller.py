"""The controller against real Open vSwitch: the switches it admits or ignores, its repairs, and its messages."""

import signal
from pathlib import Path

import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from tests.helpers.fabrics import Fabric, packet
from tests.helpers.waiting import Containing, eventually
from topologies import Level

pytestmark = pytest.mark.switch


def test_fabric_tells_what_it_holds(fabric: Fabric) -> None:
    body = fabric.controller.fabric()
    assert body["k"] == 4
    assert body["hosts"] == 16
    assert body["switches"] == {"edge": 8, "aggregation": 8, "core": 4}
    assert body["connected"] == 20
    assert body["failures"] == body["missing"] == body["rejected"] == []


def test_a_port_that_goes_down_is_a_failure_until_it_comes_back(fabric: Fabric) -> None:
    before = fabric.controller.fabric()["version"]
    rules = {name: fabric.flows(name) for name in ("a0_0", "a1_0", "e0_0", "c0_1")}
    switch, port = fabric.tree.switch("a0_0"), fabric.tree.uplink_port(Level.AGGREGATION, 1)
    fabric.dummy.set_port(switch, port, up=False)
    # the other end may be the first to say something: that it is silent
    down = [{"name": "a0_0-c0_1", "kind": "link", "reason": "down"}]
    eventually(lambda: fabric.controller.fabric()["failures"], down)
    assert fabric.controller.fabric()["version"] > before
    paths = fabric.controller.get("/paths", src="10.0.0.2", dst="10.2.0.2").json()
    assert [path["up"] for path in paths["candidates"]] == [[0, 0], [1, 0], [1, 1]]
    assert paths["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 down"}]
    # a packet in flight that names the dead uplink takes another one: fast failover, no controller involved
    src, dst = fabric.tree.host("h0_0_2"), fabric.tree.host("h2_0_2")
    assert fabric.walk("h0_0_2", packet(fabric, src, dst, (0, 1))) == ["e0_0", "a0_0", "c0_0", "a2_0", "e2_0", "h2_0_2"]
    # unlabelled packets of other pods are steered around it
    eventually(
        lambda: fabric.flows("a1_0"),
        lambda flows: any("table=3" in flow and "nw_dst=10.0.0.0/16" in flow for flow in flows),
    )
    fabric.dummy.set_port(switch, port, up=True)
    eventually(lambda: fabric.controller.fabric()["failures"], [])
    eventually(lambda: {name: fabric.flows(name) for name in rules}, rules)


def test_a_reconnecting_switch_is_repaired_entry_by_entry(fabric: Fabric) -> None:
    healthy = fabric.flows("e0_0")
    fabric.ovs.appctl(
        "netdev-dummy/receive",
        "e0_0-eth1",
        "in_port(1),eth(src=02:00:0a:00:00:02,dst=02:00:00:00:00:01),"
        "eth_type(0x0800),ipv4(src=10.0.0.2,dst=10.0.0.3,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)",
    )
    eventually(
        lambda: [line for line in counted(fabric, "e0_0") if "in_port=1,nw_src" in line],
        lambda lines: any("n_packets=1" in line for line in lines),
    )
    fabric.controller.stop(signal.SIGKILL)
    fabric.ovs.ofctl("--strict", "del-flows", "e0_0", "table=1,priority=40,ip,nw_dst=10.0.0.2")
    fabric.ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,udp,actions=drop")
    fabric.ovs.ofctl(
        "add-flow", "e0_0", "cookie=0x5012345600000001,table=1,priority=40,ip,nw_dst=10.0.0.3,actions=drop"
    )
    fabric.ovs.ofctl("mod-group", "e0_0", "group_id=1,type=ff,bucket=watch_port:4,actions=output:4")
    fabric.ovs.ofctl("add-group", "e0_0", "group_id=77,type=all")
    fabric.controller.start()
    fabric.controller.wait_connected(20)
    assert fabric.flows("e0_0") == healthy
    groups = fabric.ovs.ofctl("dump-groups", "e0_0")
    assert "group_id=77" not in groups
    assert "group_id=1,type=ff,bucket=watch_port:3,actions=output:3,bucket=watch_port:4,actions=output:4" in groups
    assert any("n_packets=1" in line and "in_port=1,nw_src" in line for line in counted(fabric, "e0_0"))


def counted(fabric: Fabric, name: str) -> list[str]:
    return fabric.ovs.ofctl("dump-flows", name).splitlines()


def test_a_learned_host_mac_outlives_the_controller(fabric: Fabric) -> None:
    mac = "06:11:22:33:44:55"
    fabric.ovs.appctl(
        "netdev-dummy/receive",
        "e0_0-eth1",
        f"in_port(1),eth(src={mac},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),"
        f"arp(sip=10.0.0.2,tip=10.0.0.1,op=1,sha={mac},tha=00:00:00:00:00:00)",
    )
    eventually(lambda: fabric.flows("e0_0"), lambda flows: any(flow.startswith("cookie=0x50000000,") for flow in flows))
    fabric.controller.stop(signal.SIGKILL)
    fabric.controller.start()
    fabric.controller.wait_connected(20)
    tree = fabric.tree
    flow = packet(fabric, tree.host("h1_0_2"), tree.host("h0_0_2"))
    assert f"dst={mac}" in fabric.trace(tree.switch("e0_0"), f"in_port=3,{flow}").actions


def bridge(fabric: Fabric, name: str, dpid: int, ports: int) -> None:
    words = [
        "add-br",
        name,
        "--",
        "set",
        "bridge",
        name,
        "datapath_type=dummy",
        "fail_mode=secure",
        "protocols=OpenFlow13",
    ]
    words += [f"other-config:datapath-id={dpid:016x}", "--", "set-controller", name, fabric.controller.openflow]
    for port in range(1, ports + 1):
        words += ["--", "add-port", name, f"{name}p{port}", "--", "set", "interface", f"{name}p{port}", "type=dummy"]
        words += [f"ofport_request={port}"]
    fabric.ovs.vsctl(*words)


@pytest.mark.parametrize("dpid", [0x1, 0x010400, 0x040000, 0xFFFFFFFFFFFF])
def test_a_switch_that_is_none_of_the_fabric_is_reported_and_left_alone(fabric: Fabric, dpid: int) -> None:
    bridge(fabric, "foreign", dpid, 4)
    eventually(lambda: fabric.controller.fabric()["rejected"])
    (rejected,) = fabric.controller.fabric()["rejected"]
    assert rejected["dpid"] == f"{dpid:016x}"
    assert "no switch of a k=4 fat-tree" in rejected["reason"]
    assert fabric.flows("foreign") == []
    assert "ignored" in fabric.controller.log_tail()


def test_a_switch_with_wrong_ports_is_reported_and_admitted_later(fabric: Fabric) -> None:
    fabric.ovs.vsctl("del-br", "c1_1")
    eventually(lambda: fabric.controller.fabric()["connected"], 19)
    bridge(fabric, "short", 0x030101, 3)
    eventually(lambda: fabric.controller.fabric()["rejected"])
    assert "has ports 1-3" in fabric.controller.fabric()["rejected"][0]["reason"]
    assert fabric.flows("short") == []
    fabric.ovs.vsctl(
        "add-port", "short", "shortp4", "--", "set", "interface", "shortp4", "type=dummy", "ofport_request=4"
    )
    eventually(lambda: fabric.controller.fabric()["connected"], 20)
    assert fabric.controller.fabric()["rejected"] == []
    assert len(fabric.flows("short")) == 7


def test_a_switch_that_refuses_entries_is_reported_and_admitted_later(fabric: Fabric) -> None:
    healthy = fabric.flows("e0_0")
    fabric.controller.stop(signal.SIGKILL)
    fabric.ovs.ofctl("del-flows", "e0_0")
    limit = ["--id=@limit", "create", "Flow_Table", "flow_limit=1", "overflow_policy=refuse"]
    fabric.ovs.vsctl(*limit, "--", "set", "bridge", "e0_0", "flow_tables:1=@limit")
    fabric.controller.start()
    eventually(lambda: fabric.controller.fabric()["missing"], ["e0_0"])
    failure = {"name": "e0_0", "kind": "switch", "reason": "without its rules"}
    eventually(lambda: fabric.controller.fabric()["failures"], Containing(failure))
    # it is tried again and again, and not rejected meanwhile
    eventually(lambda: str(fabric.controller.fabric()["rejected"]), Containing("e0_0: flow mod failed"))
    fabric.ovs.vsctl("clear", "bridge", "e0_0", "flow_tables")
    eventually(lambda: fabric.controller.fabric()["connected"], 20)
    assert fabric.controller.fabric()["rejected"] == []
    eventually(lambda: fabric.controller.fabric()["failures"], [])
    eventually(lambda: fabric.flows("e0_0"), healthy)


def test_of_two_controllers_the_later_one_is_master_and_the_other_says_so(fabric: Fabric, tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    with ControllerProcess(4, tmp_path / "second.log", openflow, rest) as second:
        flows = fabric.flows("e0_0")
        for switch in fabric.tree.switches():
            fabric.ovs.vsctl("set-controller", fabric.tree.name(switch), fabric.controller.openflow, second.openflow)
        second.wait_connected(20)
        assert fabric.flows("e0_0") == flows
        eventually(lambda: len(fabric.controller.fabric()["rejected"]), 20)
        assert "another controller, started later" in fabric.controller.fabric()["rejected"][0]["reason"]


def test_a_port_that_is_taken_is_said_clearly(fabric: Fabric, tmp_path: Path) -> None:
    import subprocess

    command = fabric.controller.command
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "already in use (another controller?)" in done.stderr
    (rest,) = (word for word in command if word.startswith("--wsapi-port="))
    other = [word for word in command if not word.startswith("--ofp")] + [f"--ofp-tcp-listen-port={free_ports(1)[0]}"]
    done = subprocess.run(other, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"port {rest.partition('=')[2]} on 127.0.0.1 is already in use" in done.stderr
