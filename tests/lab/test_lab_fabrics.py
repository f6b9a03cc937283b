"""Labs of fabrics that are no fat-trees: rates of single links, absent links, weights, hosts without agents, collectives."""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.sopa_lab import SopaLab
from experiments.schemes import named
from experiments.workloads import Scale
from experiments.workloads import named as workload
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import QUICK, UDP_PORT, datagrams, in_lab, lost
from tests.helpers.waiting import eventually
from topologies import Clos, Host
from topologies.lab.faults import kill_switch, restore_switch
from topologies.lab.isolation import isolated
from topologies.lab.links import at_rate

RATE = 4.0
LEAF_SPINE = Clos(
    1,
    3,
    2,
    0,
    2,
    mbit={"host": 10_000, "edge": 20_000},
    links={f"e0_{leaf}-a0_1": 10_000 for leaf in range(3)},
    no_label=["h0_0_3"],
)
IRREGULAR = Clos(
    3, 2, 2, 4, 2, links={"e0_0-a0_1": "absent", "a1_0-c0_1": "absent", "a2_1-c1_0": 0.5, "h1_0_3-e1_0": 0.25}
)
SO_RCVBUFFORCE = 33


def limits(*enter: str) -> dict[str, float]:
    """Return the rate in Mbit/s that the kernel limits each interface of a namespace to."""
    command = [*enter, "tc", "-j", "qdisc", "show"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {one["dev"]: 8 * one["options"]["rate"] / 1e6 for one in shown if one["kind"] == "tbf"}


def test_an_irregular_fabric_has_each_links_rate_and_room_in_its_queues() -> None:
    tree, rated = IRREGULAR, at_rate(IRREGULAR, RATE)
    right = {
        f"{tree.name(node)}-eth{tree.port(node, other)}": rated.capacity(link)
        for link in tree.links()
        for node, other in ((link.lower, link.upper), (link.upper, link.lower))
    }
    at_switches = {name: rate for name, rate in right.items() if not name.startswith("h")}

    def body(lab: SopaLab) -> None:
        assert limits() == pytest.approx(at_switches)
        for host in tree.hosts():
            (limit,) = limits("nsenter", f"--net={lab.lab.netns(host)}").values()
            assert limit == pytest.approx(right[lab.lab.interface(host, 0)])
        said = {link["name"]: link["capacity_bits_per_second"] for link in lab.controller.get("/links").json()["links"]}
        assert said == pytest.approx({tree.name(link): 1e6 * rated.capacity(link) for link in tree.links()})
        kill_switch(lab.lab, "a0_1")
        eventually(lambda: lab.controller.fabric()["missing"], ["a0_1"])
        restore_switch(lab.lab, "a0_1")
        assert limits() == pytest.approx(at_switches)
        lab.controller.wait_connected(tree.switch_count)
        eventually(lambda: lab.controller.fabric()["failures_total"], 0)
        lab.controller.wait_agents(tree.host_count)
        hosts = [tree.name(host) for host in tree.hosts()]
        assert [dst for dst in hosts[1:] if lost(lab, hosts[0], dst, 2)] == []
        _two_bursts_wait_in_one_queue(lab)

    # one socket's default buffer, which Open vSwitch has for all links, holds some 90 packets
    in_lab(body, tree, rate_mbit=RATE, queue_packets=400, controller_options=QUICK)


def _two_bursts_wait_in_one_queue(lab: SopaLab) -> None:
    """Two hosts send at full rate to one: what exceeds the rate of its link waits in the edge switch."""
    count, receiver = 150, lab.tree.host("h0_1_2")
    with inside(lab.lab.netns(receiver)):
        sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sink, ThreadPoolExecutor(2) as pool:
        sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        sink.bind(("", UDP_PORT))
        sink.settimeout(60)

        def send(name: str) -> None:
            with inside(lab.lab.netns(name)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(count):
                    sender.sendto(bytes(1400), (str(lab.tree.ip(receiver)), UDP_PORT))

        for name in ("h0_0_2", "h0_0_3"):
            assert lost(lab, name, "h0_1_2", 1) == 0  # so that no datagram waits for ARP
        list(pool.map(send, ["h0_0_2", "h0_0_3"]))
        for _ in range(2 * count):
            sink.recv(2000)


def test_packets_take_each_path_by_its_weight_but_those_of_hosts_that_may_not_choose() -> None:
    def body(lab: SopaLab) -> None:
        assert Counter(datagrams(lab, "h0_0_2", "h0_2_3", 30, 7001)) == {(0, 255): 20, (1, 255): 10}
        assert lost(lab, "h0_0_2", "h0_2_3", 3) == 0
        assert lab.labelling == [host for host in LEAF_SPINE.hosts() if host != Host(0, 0, 3)]
        assert lab.controller.get("/agents").json()["total"] == 5
        assert datagrams(lab, "h0_0_3", "h0_1_2", 4, 7001) == [None] * 4
        assert lost(lab, "h0_0_3", "h0_1_2", 3) == 0

    in_lab(body, LEAF_SPINE)


def test_a_collective_operation_goes_step_by_step_and_a_switch_fails_and_heals() -> None:
    name, scale = "all-reduce-halving+4", Scale(RATE, 12.0)
    tree = Clos(2, 2, 2, 4, 1, links={"e0_0-a0_1": "absent", "a1_0-c0_1": "absent", "a1_1-c1_0": 0.5})
    plan = workload(name).build(tree, 1, scale)

    def main() -> int:
        with EmulatedFabric(tree, named("sopa"), RATE) as fabric:
            run, flows = perform(fabric, Run(tree, plan, name, named("sopa"), 1, scale))
            ended = {flow.flow: flow.start + flow.seconds for flow in flows}
            assert sorted(ended) == list(range(len(plan.transfers)))
            assert all(flow.completed and flow.k is None for flow in flows)
            for flow in flows:
                assert all(flow.start >= ended[before] for before in plan.transfers[flow.flow].after)
            assert run.collective["seconds"] == pytest.approx(max(ended.values()))
            fabric.prepare(1)
            for failed in ("a1_0", "e0_1-a0_0"):
                fabric.fail(failed, True)
                fabric.await_settled([failed])
                fabric.fail(failed, False)
                fabric.await_settled()
            fabric.finish()
        return 0

    assert isolated(main) == 0
