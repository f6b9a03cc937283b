"""The controller against real Open vSwitch: a restart, a killed part, a standstill, and rules that somebody changes by hand.

Other masters and second connections are in `tests/unit/fabric`, with switches that `test_memory_switch.py` compares with
Open vSwitch. That rules are read and put right again and again is in `tests/unit/fabric/scripts/coordinator/tampered.txt` and, with
packets, in `tests/faults`.
"""

import os
import signal
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.fabrics import Fabric, packet
from tests.helpers.memory import front_of
from tests.helpers.relay import Agent
from tests.helpers.waiting import Containing, eventually
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch


def test_a_restarted_controller_repairs_entry_by_entry_and_keeps_what_was_learned(shared: Fabric) -> None:
    tree, ovs, healthy = shared.tree, shared.ovs, shared.flows("e0_0")
    mac = "06:11:22:33:44:55"

    def counted() -> bool:
        flows = ovs.ofctl("dump-flows", "e0_0").splitlines()
        return any("n_packets=1" in flow and "in_port=1,nw_src" in flow for flow in flows)

    def send(packet: str) -> None:
        ovs.appctl("netdev-dummy/receive", "e0_0-eth1", f"in_port(1),{packet}")

    shared.controller.change("PUT", "/drains/c1_0").raise_for_status()
    shared.set_link("a1_0-c0_1", False)
    known = {"c1_0": "drained", "a1_0-c0_1": "down"}
    shared.fails(known)
    ends = "ipv4(src=10.0.0.2,dst=10.0.0.3,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)"
    send(f"eth(src=02:00:0a:00:00:02,dst=02:00:00:00:00:01),eth_type(0x0800),{ends}")
    eventually(counted)
    arp = f"arp(sip=10.0.0.2,tip=10.0.0.1,op=1,sha={mac},tha=00:00:00:00:00:00)"
    send(f"eth(src={mac},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),{arp}")
    eventually(lambda: mac.replace(":", "").lstrip("0") in ovs.ofctl("dump-flows", "e0_0", "table=4"))
    shared.controller.stop(signal.SIGKILL)
    ovs.ofctl("--strict", "del-flows", "e0_0", "table=1,priority=40,ip,nw_dst=10.0.0.2")
    ovs.ofctl("add-flow", "e0_0", "table=0,priority=99,udp,actions=drop")
    ours = "cookie=0x5012345600000001,table=1,priority=40,ip"
    ovs.ofctl("add-flow", "e0_0", f"{ours},nw_dst=10.0.0.3,actions=drop")
    ovs.ofctl("mod-group", "e0_0", "group_id=1,type=ff,bucket=watch_port:4,actions=output:4")
    ovs.ofctl("add-group", "e0_0", "group_id=77,type=all")
    shared.set_link("a0_0-c0_1", False)
    shared.controller.start()
    with shared.agent("10.0.0.2") as its:  # before the switches are back
        assert its.follow()[0] == shared.controller.fabric()["epoch"]
        assert its.view.failures.items() >= known.items()
    shared.controller.wait_connected(20)
    shared.fails({**known, "a0_0-c0_1": "down"})
    shared.controller.change("DELETE", "/drains/c1_0").raise_for_status()
    for name in ("a0_0-c0_1", "a1_0-c0_1"):
        shared.set_link(name, True)
    shared.fails({})
    learned = [flow for flow in shared.flows("e0_0") if flow.startswith("cookie=0x50000000,")]
    assert sorted({*shared.flows("e0_0")} - {*learned}) == [flow for flow in healthy if not flow.startswith("cookie=0x50000000,")]
    groups = ovs.ofctl("dump-groups", "e0_0")
    assert "group_id=77" not in groups
    assert "group_id=1,type=ff,bucket=watch_port:3,actions=output:3,bucket=watch_port:4,actions=output:4" in groups
    assert counted()
    flow = packet(shared, tree.host("h1_0_2"), tree.host("h0_0_2"))
    assert f"dst={mac}" in shared.trace(tree.switch("e0_0"), f"in_port=3,{flow}").actions
    ovs.ofctl("del-flows", "e0_0", "cookie=0x5000000000000000/-1")


def test_after_an_estimator_that_is_killed_another_one_hands_out_lists_anew(shared: Fabric) -> None:
    """What it concludes from probes is in `tests/unit/health`, and with packets in `tests/lab/test_probes.py`."""
    lists: dict[object, int] = {}

    def listed(its: Agent, message: dict[str, Any]) -> None:
        lists[its.address] = message["number"]

    def running() -> bool:
        return shared.controller.get("/health").json()["running"]

    probing = "probes=1", {"probes": listed}
    with shared.agent("10.0.0.2", *probing) as one, shared.agent("10.2.0.2", *probing) as other:
        assert one.follow() == other.follow()
        eventually(lambda: len(lists) == 2 and running())
        said, former = shared.controller.log.read_text(), max(lists.values())
        os.kill(int(said.rpartition("losses runs as process ")[2].split()[0]), signal.SIGKILL)
        eventually(lambda: min(lists.values()) > former and running())


@pytest.mark.parametrize(("end", "why"), [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGSTOP, "not answered for 10 s")])
def test_without_a_front_failures_are_handled_and_another_one_serves_agents_with_them(
    shared: Fabric, end: signal.Signals, why: str
) -> None:
    known = shared.controller.fabric()["version"]
    before, log = front_of(shared.controller.pid), len(shared.controller.log.read_text())
    with shared.agent() as its:
        its.follow()
        os.kill(before, end)
        shared.set_link("a0_0-c0_0", False)
        eventually(lambda: why in shared.controller.log.read_text()[log:])
    eventually(lambda: "front runs as process " in shared.controller.log.read_text()[log:])
    shared.fails({"a0_0-c0_0": "down"})
    with shared.agent() as its:
        its.follow()
        assert its.view.failures == {"a0_0-c0_0": "down"}
        eventually(lambda: shared.controller.get("/agents").json()["behind"] == 0)
        assert shared.controller.get("/agents").json()["total"] == 1
    shared.set_link("a0_0-c0_0", True)
    shared.fails({})
    said = shared.controller.log.read_text()[log:]
    assert said.index("front ended: ") < said.index("front runs as process ")
    assert shared.controller.fabric()["version"] > known


def test_the_front_of_a_controller_that_stands_still_answers_nobody(shared: Fabric) -> None:
    """Or agents would stay with it in place of finding the next leader."""
    with shared.agent() as its:
        its.follow()
        with standing_still(shared.controller.pid):
            eventually(lambda: not its.channel.ping().wait(0.5))
        assert its.channel.ping().wait(60)
        assert shared.controller.get("/agents").json()["total"] == 1


def test_a_controller_that_was_stopped_and_continued_withdraws_nothing(shared: Fabric) -> None:
    before = shared.controller.fabric()
    eventually(shared.dummy.connected, 20)
    probe = {"op": "update", "table": "Controller", "where": [], "row": {"inactivity_probe": 5000}}
    shared.ovs.transact([probe])  # the switches close their channels meanwhile
    with standing_still(shared.controller.pid):
        eventually(shared.dummy.connected, 0)
    eventually(lambda: shared.controller.log.read_text(), Containing("this controller stood still for "))
    eventually(lambda: shared.controller.fabric()["management"]["fault"], False)
    eventually(lambda: shared.controller.fabric()["connected"], 20)
    after = shared.controller.fabric()
    assert after["version"] == before["version"]
    assert after["management"]["pauses_faults"] > before["management"]["pauses_faults"]
    probe["row"] = {"inactivity_probe": 0}
    shared.ovs.transact([probe])


def rounds() -> list[list[list[str]]]:
    """Return ofctl's arguments in rounds of one change for each switch: switches do not depend on each other."""
    changes = [line.split() for line in (Path(__file__).parent / "scripts/by_hand.txt").read_text().splitlines()]
    of_switch = [[change for change in changes if change[1] == name] for name in ("e0_0", "a0_0", "c0_0")]
    return [[change for change in each if change] for each in zip_longest(*of_switch)]


def right(fabric: Fabric, name: str) -> bool:
    """Tell whether `sopa rules` says that exactly the intended rules are installed."""
    return bool(fabric.controller.get(f"/switches/{name}/rules").json().get("right"))


def test_what_is_changed_by_hand_is_said_as_it_is(shared: Fabric) -> None:
    for changes in rounds():
        for change in changes:
            shared.ovs.ofctl(*change)
            switch = change[1]
            assert not right(shared, switch), change
            # a reconnecting switch is reconciled, actions included, and loses no entry on the way
            shared.ovs.appctl("bridge/reconnect", switch)
        for change in changes:
            eventually(partial(right, shared, change[1]), True)
