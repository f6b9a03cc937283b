"""Labs of fabrics that are no fat-trees: rates of single links, absent links, weights, both carriers, collective operations."""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import pytest

from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.sopa_lab import SopaLab
from experiments.schemes import named
from experiments.workloads import Scale
from experiments.workloads import named as workload
from flowrules.label import Carrier
from tests.helpers.sopa_lab import agent_of, datagrams, in_lab, lost
from tests.helpers.waiting import eventually
from topologies import Clos, Host
from topologies.lab.faults import kill_switch, restore_switch
from topologies.lab.isolation import isolated
from topologies.lab.links import at_rate

pytestmark = pytest.mark.lab

RATE = 4.0
LEAF_SPINE = Clos(
    1, 3, 2, 0, 2, mbit={"host": 10_000, "edge": 20_000}, links={f"e0_{leaf}-a0_1": 10_000 for leaf in range(3)}
)
IRREGULAR = Clos(
    3, 2, 2, 4, 2, links={"e0_0-a0_1": "absent", "a1_0-c0_1": "absent", "a2_1-c1_0": 0.5, "h1_0_3-e1_0": 0.25}
)


def rates(lab: SopaLab) -> dict[str, float]:
    """Return the rate in Mbit/s that the kernel limits every interface of a switch to."""
    shown = json.loads(subprocess.run(["tc", "-j", "qdisc", "show"], check=True, capture_output=True, text=True).stdout)
    return {one["dev"]: 8 * one["options"]["rate"] / 1e6 for one in shown if one["kind"] == "tbf"}


@pytest.mark.parametrize("tree", [LEAF_SPINE, IRREGULAR], ids=["leaf-spine", "irregular"])
def test_every_link_has_its_rate_in_the_kernel_and_at_the_controller(tree: Clos) -> None:
    rated = at_rate(tree, RATE)
    right = {
        f"{tree.name(node)}-eth{tree.port(node, other)}": rated.capacity(link)
        for link in tree.links()
        for node, other in ((link.lower, link.upper), (link.upper, link.lower))
    }
    at_switches = {name: rate for name, rate in right.items() if not name.startswith("h")}

    def body(lab: SopaLab) -> None:
        assert rates(lab) == pytest.approx(at_switches)
        for host in tree.hosts():
            command = ["nsenter", f"--net={lab.lab.netns(host)}", "tc", "-j", "qdisc", "show"]
            shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            (limit,) = [8 * one["options"]["rate"] / 1e6 for one in shown if one["kind"] == "tbf"]
            assert limit == pytest.approx(right[lab.lab.interface(host, 0)])
        said = {link["name"]: link["capacity_bits_per_second"] for link in lab.controller.get("/links").json()["links"]}
        assert said == pytest.approx({tree.name(link): 1e6 * rated.capacity(link) for link in tree.links()})
        controller = lab.controller
        kill_switch(lab.lab, "a0_1")
        eventually(lambda: controller.fabric()["missing"], ["a0_1"])
        restore_switch(lab.lab, "a0_1")
        assert rates(lab) == pytest.approx(at_switches)
        controller.wait_connected(tree.switch_count)
        controller.wait_until(lambda: not controller.fabric()["failures_total"], "a0_1 had healed")
        controller.wait_agents(tree.host_count)
        hosts = [tree.name(host) for host in tree.hosts()]
        assert [dst for dst in hosts[1:] if lost(lab, hosts[0], dst, 2)] == []

    in_lab(body, fabric=tree, rate_mbit=RATE)


@pytest.mark.parametrize("carrier", list(Carrier))
def test_packets_take_each_path_by_its_weight(carrier: Carrier) -> None:
    def body(lab: SopaLab) -> None:
        words = datagrams(lab, "h0_0_2", "h0_2_3", 30, 7001)
        assert Counter(words) == {(0, 255): 20, (1, 255): 10}
        assert lost(lab, "h0_0_2", "h0_2_3", 3) == 0

    in_lab(body, fabric=LEAF_SPINE, carrier=carrier)


def test_without_weights_all_paths_have_as_many_packets() -> None:
    def body(lab: SopaLab) -> None:
        host = lab.tree.host("h0_0_2")
        with agent_of(lab, host, "--no-weights") as agent:
            agent.wait_until(lambda: lab.controller.agents_know(1), "its agent had acknowledged")
            words = datagrams(lab, "h0_0_2", "h0_2_3", 30, 7001)
            assert Counter(words) == {(0, 255): 15, (1, 255): 15}

    in_lab(body, fabric=LEAF_SPINE, agents=False)


def test_hosts_that_may_not_choose_paths_have_no_agent() -> None:
    tree = Clos(1, 2, 2, 0, 2, no_label=["h0_0_3"])

    def body(lab: SopaLab) -> None:
        assert lab.labelling == [host for host in tree.hosts() if host != Host(0, 0, 3)]
        assert lab.controller.get("/agents").json()["total"] == 3
        assert datagrams(lab, "h0_0_3", "h0_1_2", 4, 7001) == [None] * 4
        assert lost(lab, "h0_0_3", "h0_1_2", 3) == 0

    in_lab(body, fabric=tree)


@pytest.mark.parametrize("name", ["all-to-all", "all-reduce-ring", "all-reduce-halving+4"])
def test_a_collective_operation_goes_step_by_step_and_has_its_completion_time(name: str) -> None:
    scale = Scale(RATE, 6.0)
    plan = workload(name).build(LEAF_SPINE, 1, scale)

    def check(run: RunRecord, flows: list[FlowRecord]) -> None:
        ended = {flow.flow: flow.start + flow.seconds for flow in flows}
        assert sorted(ended) == list(range(len(plan.transfers)))
        assert all(flow.completed and flow.k is None for flow in flows)
        for flow in flows:
            assert all(flow.start >= ended[before] for before in plan.transfers[flow.flow].after)
        assert run.collective["seconds"] == pytest.approx(max(ended.values()))

    def main() -> int:
        with EmulatedFabric(LEAF_SPINE, named("sopa"), RATE) as fabric:
            check(*perform(fabric, Run(LEAF_SPINE, plan, name, named("sopa"), 1, scale)))
        return 0

    assert isolated(main) == 0


def test_a_switch_of_an_irregular_fabric_fails_and_heals() -> None:
    def main() -> int:
        with EmulatedFabric(IRREGULAR, named("sopa"), RATE) as fabric:
            for name in ("a1_0", "e0_1-a0_0"):
                fabric.prepare(1)
                fabric.fail(name, True)
                fabric.await_settled([name])
                fabric.fail(name, False)
                fabric.await_settled()
                fabric.finish()
        return 0

    assert isolated(main) == 0
