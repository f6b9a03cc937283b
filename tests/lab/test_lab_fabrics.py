"""A lab of a fabric that is no fat-tree: rates of single links, absent links, and room in queues."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.sopa_lab import QUICK, UDP_PORT, in_lab, lost, socket_at
from tests.helpers.veth import run
from tests.helpers.waiting import eventually
from topologies import Clos
from topologies.lab.faults import kill_switch, restore_switch
from topologies.lab.links import at_rate

RATE = 4.0
IRREGULAR = Clos(3, 2, 2, 4, 2, links={"e0_0-a0_1": "absent", "a1_0-c0_1": "absent", "a2_1-c1_0": 0.5, "h1_0_3-e1_0": 0.25})
SO_RCVBUFFORCE = 33


def limits(enter: str = "") -> dict[str, float]:
    """Return the rate in Mbit/s that the kernel limits each interface of a namespace to."""
    shown = json.loads(run(f"{enter} tc -j qdisc show"))
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
            (limit,) = limits(f"nsenter --net={lab.lab.netns(host)}").values()
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
    with socket_at(lab, "h0_1_2", socket.AF_INET, socket.SOCK_DGRAM) as sink, ThreadPoolExecutor(2) as pool:
        sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        sink.bind(("", UDP_PORT))
        sink.settimeout(60)

        def send(name: str) -> None:
            with socket_at(lab, name, socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(count):
                    sender.sendto(bytes(1400), (str(lab.tree.ip(receiver)), UDP_PORT))

        for name in ("h0_0_2", "h0_0_3"):
            assert lost(lab, name, "h0_1_2", 1) == 0  # so that no datagram waits for ARP
        list(pool.map(send, ["h0_0_2", "h0_0_3"]))
        for _ in range(2 * count):
            sink.recv(2000)
