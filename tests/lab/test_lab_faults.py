"""The lab's links, routes, BFD and faults that can be injected: what each does, and that nothing of it is left once undone."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sopa_ryu.southbound import bfd
from tests.helpers.shared_lab import disciplines
from tests.helpers.waiting import Containing, eventually, throughout
from tests.lab.conftest import PODS
from tests.lab.switches import (
    DOWN,
    FRAME,
    LINK,
    LLDP,
    UP,
    bfd_of,
    carries,
    count_frames,
    ends,
    forget_frames,
    received,
    run,
    sent,
    settings,
    states,
    unsettled,
)
from topologies import FatTree, Host, Level, TopologyError
from topologies.lab.batch_net import run_batch
from topologies.lab.faults import kill_switch, restore_switch, set_silent, swap_cables
from topologies.lab.isolation import isolated
from topologies.lab.links import past_the_queue
from topologies.lab.network import Lab, bfd_interval_ms
from topologies.lab.private_ovs import OvsError

SLOW_BFD_MS = 3000
"""Three missing packets are a failure, which no link has only because the machine stands still for five seconds."""


def at(lab: Lab, host: str, command: str) -> str:
    words = ["nsenter", f"--net={lab.netns(host)}", "sh", "-c", command]
    return subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout


def test_the_interval_grows_with_the_sessions() -> None:
    assert [bfd_interval_ms(FatTree(k)) for k in (2, 4, 6, 8)] == [100, 100, 338, 800]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda lab: set_silent(lab, "a0_0-c1_0", "a0_0", True), "not cabled together"),
        (lambda lab: set_silent(lab, "a0_0", "a0_0", True), "is a switch, not a link"),
        (lambda lab: set_silent(lab, LINK, "c0_0", True), "c0_0 is not an end of a0_0-c0_1"),
        (lambda lab: set_silent(lab, "h0_0_2-e0_0", "e0_0", True), "is a host's link"),
        (lambda lab: kill_switch(lab, "h0_0_2"), "h0_0_2 is a host"),
        (lambda lab: kill_switch(lab, "x9"), "no switch or host"),
        (lambda lab: swap_cables(lab, LINK, LINK), "not two links"),
        (lambda lab: swap_cables(lab, LINK, "e0_0-a0_0"), "not two links of the same level"),
        (lambda lab: swap_cables(lab, LINK, "a1_1-c1_1"), "do not end at the same switch"),
        (lambda lab: swap_cables(lab, LINK, "a0_0-c1_1"), "not cabled together"),
    ],
)
def test_what_is_not_there_cannot_fail(mistake: Callable[[Lab], None], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        mistake(Lab(FatTree(4)))


def test_bfd_is_up_on_every_link_between_switches_and_on_no_other(switches: Lab) -> None:
    assert set(switches.bfd_up()) == {interface for interface, _ in switches.fabric_interfaces()}
    for switch in switches.tree.switches():
        name, numbers = switches.tree.name(switch), list(map(str, switches.tree.ports(switch)))
        eventually(lambda name=name, its=numbers: {states(switches, name)[each] for each in its}, {"LIVE"})
    assert switches.ovs.vsctl("get", "Interface", "e0_0-eth1", "bfd") == "{}\n"


def test_bfd_and_lldp_do_not_wait_in_a_full_queue(switches: Lab) -> None:
    """100 frames at 0.05 Mbit/s are 23 s."""
    tree, link = switches.tree, "e0_0-a0_0"
    host, lower = tree.host("h0_0_2"), ends(switches, link)[0]
    at(switches, "h0_0_2", f"ip neigh replace {tree.gateway(host)} lladdr 02:00:00:00:00:01 dev h0_0_2-eth0")
    switches.set_share(lower, 0.05 / switches.rate_of(lower))
    switches.ovs.ofctl("add-flow", "e0_0", "in_port=1,actions=output:3")
    count_frames(switches, "a0_0")

    def counted(pattern: str) -> int:
        found = re.search(pattern, run("tc", "-s", "qdisc", "show", "dev", lower, "root"))
        return int(found[1]) if found else 0

    code = "import socket; s = socket.socket(type=socket.SOCK_DGRAM)\nwhile 1: s.sendto(bytes(1400), ('10.1.0.2', 9))"
    flooding = subprocess.Popen(["nsenter", f"--net={switches.netns(host)}", sys.executable, "-c", code])
    eventually(lambda: counted(r"backlog \w+ (\d+)p"), lambda value: value > 80)
    before, waiting = counted(r"Sent \d+ bytes (\d+) pkt"), counted(r"backlog \w+ (\d+)p")
    sent(switches, "e0_0", 3, LLDP)
    eventually(lambda: received(switches, "a0_0").get(1, 0), lambda value: value > 0)
    assert counted(r"Sent \d+ bytes (\d+) pkt") - before < waiting
    # in the queue, BFD comes late and then not at all
    run("tc", "filter", "del", "dev", lower, "egress")
    eventually(lambda: bfd_of(switches, link), DOWN)
    flooding.kill()
    flooding.wait()
    forget_frames(switches, "e0_0", "a0_0")
    switches.set_share(lower, 1.0)
    run_batch(["tc", "-batch", "-"], past_the_queue(*ends(switches, link)))
    eventually(lambda: bfd_of(switches, link), UP)


def test_one_way_loss_is_silent_and_bfd_finds_it(switches: Lab) -> None:
    carries(switches, LINK, True, True)
    for towards, carried in (("c0_1", (False, True)), ("a0_0", (True, False))):
        set_silent(switches, LINK, towards, True)
        eventually(lambda: bfd_of(switches), DOWN)
        set_silent(switches, LINK, towards, True)
        carries(switches, LINK, *carried)
        assert [states(switches, "a0_0")["4"], states(switches, "c0_1")["1"]] == ["0", "0"]  # not LINK_DOWN
        assert run("ip", "-brief", "link", "show", "a0_0-eth4").split()[1] == "UP"
        errors = switches.ovs.ofctl("dump-ports", "a0_0", "4") + switches.ovs.ofctl("dump-ports", "c0_1", "1")
        assert set(re.findall(r"tx pkts=\d+, bytes=\d+, (.*)", errors)) == {"drop=0, errs=0, coll=0"}
        set_silent(switches, LINK, towards, False)
        eventually(lambda: bfd_of(switches), UP)


def test_faults_of_one_link_in_any_order_are_independent(switches: Lab) -> None:
    lab, chance = switches, random.Random(7)
    faults = {
        "cut": (lambda: lab.set_link(LINK, False), lambda: lab.set_link(LINK, True)),
        "up": (lambda: set_silent(lab, LINK, "c0_1", True), lambda: set_silent(lab, LINK, "c0_1", False)),
        "down": (lambda: set_silent(lab, LINK, "a0_0", True), lambda: set_silent(lab, LINK, "a0_0", False)),
        "lower": (lambda: kill_switch(lab, "a0_0"), lambda: restore_switch(lab, "a0_0")),
        "upper": (lambda: kill_switch(lab, "c0_1"), lambda: restore_switch(lab, "c0_1")),
        "swap": (lambda: swap_cables(lab, LINK, "a0_0-c0_0"), lambda: swap_cables(lab, "a0_0-c0_0", LINK)),
    }
    before, shaped = settings(lab), disciplines()
    for last in ("up", "lower"):  # what alone is left of them still keeps the link down
        for begin, _ in chance.sample(list(faults.values()), len(faults)):
            begin()
        for name in chance.sample([name for name in faults if name != last], len(faults) - 1):
            faults[name][1]()
        throughout(lambda: bfd_of(lab) == UP, False, seconds=1.0)
        faults[last][1]()
        eventually(lambda: unsettled(lab), set())
        eventually(lambda: settings(lab), before)
        assert disciplines() == shaped
        carries(lab, LINK, True, True)


def test_a_switch_dies_and_comes_back_empty_and_as_it_was(switches: Lab) -> None:
    lab = switches
    before, shaped = settings(lab), disciplines()
    assert {bridge["controller"] for bridge in before["Bridge"]} == {1}
    for name in ("e1_1", "c1_0"):
        switch = lab.tree.switch(name)
        lab.ovs.ofctl("add-flow", name, "actions=drop")
        around = [node for node in lab.tree.ports(switch).values() if not isinstance(node, Host)]
        kill_switch(lab, name)
        kill_switch(lab, name)
        with pytest.raises(OvsError, match="not a bridge"):
            lab.ovs.ofctl("show", name)
        facing = {lab.tree.name(node): str(lab.tree.port(node, switch)) for node in around}
        eventually(lambda facing=facing: {states(lab, *to)[port] for *to, port in facing.items()}, {"0"})
        for port in lab.tree.ports(switch):
            assert run("ip", "-brief", "link", "show", lab.interface(switch, port)).split()[1] == "UP"
        restore_switch(lab, name)
        assert "actions" not in lab.ovs.ofctl("dump-flows", name)
        assert f"dpid:{lab.tree.dpid(switch):016x}" in lab.ovs.ofctl("show", name)
        eventually(lambda: unsettled(lab), set())
        eventually(lambda: settings(lab), before)
        assert disciplines() == shaped
        lab.ovs.ofctl("add-flow", name, "actions=drop")
        restore_switch(lab, name)  # it lives: nothing is lost
        assert "actions=drop" in lab.ovs.ofctl("dump-flows", name)
        lab.ovs.ofctl("del-flows", name)
    # Mininet goes on, and its prompt's command does the same
    lab.net.get("a0_0").stop(deleteIntfs=False)
    assert "a0_0" not in lab.ovs.vsctl("list-br").split()
    lab.net.get("a0_0").start(lab.net.controllers)
    lab.net.configLinkStatus("a0_0", "c0_0", "down")
    eventually(lambda: states(lab, "a0_0")["3"], "LINK_DOWN")
    lab.net.configLinkStatus("a0_0", "c0_0", "up")


def test_swapped_cables_lead_to_each_others_switches(switches: Lab) -> None:
    lab = switches

    def way(switch: str, port: int, *to: str) -> str:
        """Return the switch, of those, that a port leads to."""
        count_frames(lab, *to)
        sent(lab, switch, port)
        [found] = eventually(lambda: [name for name in to if received(lab, name)])
        forget_frames(lab, *to)
        return found

    swap_cables(lab, "a0_0-c0_0", "a0_0-c0_1")
    assert way("a0_0", 3, "c0_0", "c0_1") == "c0_1"
    assert way("a0_0", 4, "c0_0", "c0_1") == "c0_0"
    # and at an upper end; the switch remembers over its death
    swap_cables(lab, "e1_0-a1_0", "e1_1-a1_0")
    kill_switch(lab, "a1_0")
    swap_cables(lab, "a1_0-c0_0", "a1_0-c0_1")
    restore_switch(lab, "a1_0")
    assert way("a1_0", 1, "e1_0", "e1_1") == "e1_1"
    assert way("a1_0", 3, "c0_0", "c0_1") == "c0_1"
    assert way("c0_1", 2, "a1_0", "a0_0") == "a1_0"
    eventually(lambda: unsettled(lab), set())
    # a name keeps meaning the same cable
    lab.set_link("a0_0-c0_1", False)
    eventually(lambda: states(lab, "a0_0")["3"], "LINK_DOWN")
    lab.set_link("a0_0-c0_1", True)
    for links in (("a1_0-c0_0", "a1_0-c0_1"), ("e1_0-a1_0", "e1_1-a1_0"), ("a0_0-c0_1", "a0_0-c0_0")):
        swap_cables(lab, *links)
    eventually(lambda: unsettled(lab), set())
    assert way("a0_0", 3, "c0_0", "c0_1") == "c0_0"
    swap_cables(lab, "h0_0_2-e0_0", "h0_0_3-e0_0")
    assert lab.net.get("e0_0").intfs[1].name == "e0_0-eth2"
    swap_cables(lab, "h0_0_2-e0_0", "h0_0_3-e0_0")


def test_packets_rates_and_routes(switches: Lab) -> None:
    """As Open vSwitch changes and links flap, the rate stays, and so does the way out of a host."""
    lab, ping = switches, "ping -c1 -W60 10.0.0.3"
    # two hosts of one rack, joined by hand
    for one, other in ((1, 2), (2, 1)):
        lab.ovs.ofctl("add-flow", "e0_0", f"in_port={one},actions=output:{other}")
    assert " 0% packet loss" in at(lab, "h0_0_2", ping)
    with subprocess.Popen(["nsenter", "--net=" + lab.netns("h0_0_3"), "iperf3", "-s", "-1"], stdout=-3) as server:
        eventually(lambda: at(lab, "h0_0_3", "ss -ltn"), Containing(":5201 "))
        told = json.loads(at(lab, "h0_0_2", "iperf3 -c 10.0.0.3 -n 1M -J"))["end"]
        server.wait(60)
    # of 4 Mbit/s on the wire TCP with timestamps gets 1448 bytes of each 1514, and some kilobytes wait in the receiver
    assert 0 < told["sum_received"]["bits_per_second"] < 4.1e6
    assert told["sender_tcp_congestion"] == "cubic"
    routes = [at(lab, "h0_0_2", "ip route")]
    for up in (False, True):
        lab.set_link("h0_0_2-e0_0", up)
        lab.set_link("e0_0-a0_0", up)
        if not up:
            for end in ("e0_0-eth3", "e0_0-eth1", "a0_0-eth1"):
                assert " DOWN " in run("ip", "-brief", "link", "show", end)
            # the two ports, and LOCAL which is never up
            eventually(lambda: lab.ovs.ofctl("show", "e0_0").count("LINK_DOWN"), 2 + 1)
    lab.ovs.vsctl("set", "bridge", "e0_0", "external_ids:changed=yes")
    shown = run("tc", "qdisc") + "".join(at(lab, lab.tree.name(host), "tc qdisc") for host in lab.tree.hosts())
    assert re.findall(r"qdisc tbf .* rate (\S+)", shown) == ["4Mbit"] * (2 * len(list(lab.tree.links())))
    lab.net.configLinkStatus("h0_0_2", "e0_0", "down")
    assert "10.0.0" not in at(lab, "h0_0_2", "ip route")
    lab.net.configLinkStatus("h0_0_2", "e0_0", "up")
    for said in (*routes, at(lab, "h0_0_2", "ip route")):
        assert "default via 10.0.0.1 dev h0_0_2-eth0 congctl cubic" in said
        assert "10.0.0.0/24 dev h0_0_2-eth0 scope link src 10.0.0.2 congctl cubic" in said
    assert " 0% packet loss" in at(lab, "h0_0_2", ping)
    lab.ovs.vsctl("clear", "bridge", "e0_0", "external_ids")
    forget_frames(lab, "e0_0")


def test_the_management_network_is_no_way_round_the_fabric(switches: Lab) -> None:
    lab, (a, b) = switches, ("h0_0_2", "h1_0_2")
    other = lab.management_address(b)
    for host in (a, b):
        assert " 0% packet loss" in at(lab, host, "ping -c1 -W60 192.168.0.1")
    assert " 0% packet loss" in run("ping", "-c1", "-W60", str(other))
    assert "100% packet loss" in at(lab, a, f"ping -c1 -W1 {other}")
    for to in (other, lab.tree.ip(lab.tree.host(b))):
        at(lab, a, f"ip route replace {to} via 192.168.0.1 dev {a}-mgmt")
        assert "100% packet loss" in at(lab, a, f"ping -c1 -W1 {to}")
        at(lab, a, f"ip route del {to}")
    assert "mgmt" not in str([str(link) for link in lab.net.links])


def test_switches_meet_the_controller_once_their_links_are_up() -> None:
    def main() -> int:
        with socket.create_server(("127.0.0.1", 6653)) as controller, ThreadPoolExecutor(1) as beside:
            controller.settimeout(150)
            lab = Lab(FatTree(2))
            lab.bfd_ms = SLOW_BFD_MS

            def first_contact() -> dict[str, bool]:
                controller.accept()[0].close()
                return lab.bfd_up()

            links = beside.submit(first_contact)
            with lab:
                assert list(links.result().values()) == [True] * 8
        return 0

    assert isolated(main) == 0


def test_bfd_can_be_switched_on_later_one_uplink_after_the_other() -> None:
    """A port without BFD up is avoided until then, but can be sent to."""

    def main() -> int:
        its = Lab(PODS, rate_mbit=4, controller_port=None, bfd=False)
        its.bfd_ms = SLOW_BFD_MS
        with its as lab:
            assert lab.bfd_up() == {}
            _avoided(lab)
            lab.ovs.vsctl("set", "Interface", "a0_0-eth4", "bfd:enable=false")
            lab.ovs.vsctl("clear", "Interface", "a0_0-eth4", "bfd")
            for step, report in enumerate(bfd.rollout([lab.ovs.database], lab.tree, SLOW_BFD_MS)):
                assert (report.had, report.enabled, report.single, report.problems) == (0, 16, [], {})
                assert report.switches == set(lab.tree.switches())
                # of every switch with uplinks only this one is out
                for switch in (*lab.tree.switches(Level.EDGE), *lab.tree.switches(Level.AGGREGATION)):
                    ports = states(lab, lab.tree.name(switch))
                    others = {port for index, port in enumerate(("3", "4")) if index != step}
                    assert {ports[port] for port in others} == {"LIVE"}
                eventually(lambda: set(lab.bfd_up().values()), {True})
            eventually(lambda: unsettled(lab), set())
            assert bfd.enable([lab.ovs.database], lab.tree, 500).had == 32
            assert f"TX Interval: Approx {SLOW_BFD_MS}ms" in lab.ovs.appctl("bfd/show", "e0_0-eth3")
        return 0

    assert isolated(main) == 0


def _avoided(lab: Lab) -> None:
    buckets = "bucket=watch_port:4,actions=output:4,bucket=watch_port:3,actions=output:3"
    lab.ovs.ofctl("add-group", "a0_0", f"group_id=1,type=ff,{buckets}")
    lab.ovs.vsctl("set", "Interface", "a0_0-eth4", "bfd:enable=true")
    eventually(lambda: states(lab, "a0_0")["4"], "0")
    bundle = "bundle(eth_src,0,active_backup,ofport,members:4,3)"
    for actions, there in (("output:4", "c0_1"), ("group:1", "c0_0"), (bundle, "c0_0")):
        count_frames(lab, "c0_0", "c0_1")
        lab.ovs.ofctl("packet-out", "a0_0", f"in_port=controller packet={FRAME} actions={actions}")
        eventually(lambda there=there: received(lab, there), {1: 1})
