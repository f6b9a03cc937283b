"""The lab's links, routes, BFD and faults that can be injected: what each does, and that nothing of it is left once undone."""

import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sopa_ryu.southbound import bfd
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.shared_lab import changes, disciplines
from tests.helpers.sopa_lab import in_isolation
from tests.helpers.veth import run
from tests.helpers.waiting import eventually, throughout
from tests.lab.conftest import PODS
from tests.lab.switches import (
    DOWN,
    FRAME,
    LLDP,
    UP,
    bfd_of,
    carries,
    count_frames,
    ends,
    forget_frames,
    received,
    sent,
    settings,
    states,
    unsettled,
)
from topologies import FatTree, Level, TopologyError
from topologies.lab.batch_net import run_batch
from topologies.lab.faults import kill_switch, restore_switch, set_silent, swap_cables
from topologies.lab.links import past_the_queue
from topologies.lab.network import Lab

SLOW_BFD_MS = 3000
"""Three missing packets are a failure, which no link has only because the machine stands still for five seconds."""


def at(lab: Lab, host: str, command: str) -> str:
    words = ["nsenter", f"--net={lab.netns(host)}", "sh", "-c", command]
    return subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout


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
        found = re.search(pattern, run(f"tc -s qdisc show dev {lower} root"))
        return int(found[1]) if found else 0

    code = "import socket; s = socket.socket(type=socket.SOCK_DGRAM)\nwhile 1: s.sendto(bytes(1400), ('10.1.0.2', 9))"
    flooding = subprocess.Popen(["nsenter", f"--net={switches.netns(host)}", sys.executable, "-c", code])
    eventually(lambda: counted(r"backlog \w+ (\d+)p"), lambda value: value > 80)
    before, waiting = counted(r"Sent \d+ bytes (\d+) pkt"), counted(r"backlog \w+ (\d+)p")
    sent(switches, "e0_0", 3, LLDP)
    eventually(lambda: received(switches, "a0_0").get(1, 0), lambda value: value > 0)
    assert counted(r"Sent \d+ bytes (\d+) pkt") - before < waiting
    # in the queue, BFD comes late and then not at all
    run(f"tc filter del dev {lower} egress")
    eventually(lambda: bfd_of(switches, link), DOWN)
    flooding.kill()
    flooding.wait()
    forget_frames(switches, "e0_0", "a0_0")
    switches.set_share(lower, 1.0)
    run_batch(["tc", "-batch", "-"], past_the_queue(*ends(switches, link)))
    eventually(lambda: bfd_of(switches, link), UP)


def state(lab: Lab) -> dict[str, object]:
    return {**settings(lab), "disciplines": disciplines()}


def handle(lab: Lab, before: dict[str, object], step: Step) -> str:
    """Let something fail, or wait for what a line says, or look at a switch."""
    words, out_of = step.words, step.command in ("silence", "cut")
    faults: dict[str, Callable[[], object]] = {
        **dict.fromkeys(("cut", "plug"), lambda: lab.set_link(words[0], not out_of)),
        **dict.fromkeys(("silence", "hear"), lambda: set_silent(lab, words[0], words[1], out_of)),
        "kill": lambda: kill_switch(lab, *words),
        "restore": lambda: restore_switch(lab, *words),
        "swap": lambda: swap_cables(lab, *words),
        "entry": lambda: lab.ovs.ofctl("add-flow", *words, "actions=drop"),
        "forget": lambda: forget_frames(lab, *words),
    }
    match [step.command, *words]:
        case [name, *_] if name in faults:
            try:
                faults[name]()
            except TopologyError as error:
                return f"refused: {error}"
        case "bfd", link, wanted:
            eventually(lambda: bfd_of(lab, link), UP if wanted == "up" else DOWN)
        case "stays", link, "down":
            throughout(lambda: bfd_of(lab, link) == UP, False, seconds=1.0)
        case "port", switch, number, wanted:
            eventually(lambda: states(lab, switch)[number], wanted)
        case "carries", link, *ways:
            carries(lab, link, "up" in ways, "down" in ways)
        case "way", switch, port, *to:
            count_frames(lab, *to)
            sent(lab, switch, int(port))
            [found] = eventually(lambda: [name for name in to if received(lab, name)])
            forget_frames(lab, *to)
            return found
        case "exists", switch:
            return str(switch in lab.ovs.vsctl("list-br").split())
        case "entries", switch:
            return str(lab.ovs.ofctl("dump-flows", switch).count("actions="))
        case "interfaces", *names:
            return " ".join(run(f"ip -brief link show {name}").split()[1] for name in names)
        case "errors", switch, port:
            return " ".join(re.findall(r"tx pkts=\d+, bytes=\d+, (.*)", lab.ovs.ofctl("dump-ports", switch, port)))
        case "mininet", switch, port:
            return str(lab.net.get(switch).intfs[int(port)])
        case ["settled" | "whole" as wanted]:
            eventually(lambda: unsettled(lab), set())
            if wanted == "whole":
                eventually(lambda: changes(before, state(lab)), [])
        case _:
            raise AssertionError(step)
    return ""


@each_script(__file__, "faults")
def test_faults(switches: Lab, script: Script) -> None:
    assert {bridge["controller"] for bridge in settings(switches)["Bridge"]} == {1}
    script.play(partial(handle, switches, state(switches)))


def test_mininet_goes_on_and_its_prompts_commands_do_the_same(switches: Lab) -> None:
    lab = switches
    lab.net.get("a0_0").stop(deleteIntfs=False)
    assert "a0_0" not in lab.ovs.vsctl("list-br").split()
    lab.net.get("a0_0").start(lab.net.controllers)
    lab.net.configLinkStatus("a0_0", "c0_0", "down")
    eventually(lambda: states(lab, "a0_0")["3"], "LINK_DOWN")
    lab.net.configLinkStatus("a0_0", "c0_0", "up")


def test_packets_rates_and_routes(switches: Lab) -> None:
    """As Open vSwitch changes and links flap, the rate stays, and so does the way out of a host."""
    lab, ping = switches, "ping -c1 -W60 10.0.0.3"

    def routes_of_a_host() -> str:
        """Return them once the kernel has seen its link's carrier, which it does in the background."""
        return eventually(lambda: at(lab, "h0_0_2", "ip route"), lambda shown: "linkdown" not in shown)

    # two hosts of one rack, joined by hand
    for one, other in ((1, 2), (2, 1)):
        lab.ovs.ofctl("add-flow", "e0_0", f"in_port={one},actions=output:{other}")
    assert " 0% packet loss" in at(lab, "h0_0_2", ping)
    before = routes_of_a_host()
    for up in (False, True):
        lab.set_link("h0_0_2-e0_0", up)
        lab.set_link("e0_0-a0_0", up)
        if not up:
            for end in ("e0_0-eth3", "e0_0-eth1", "a0_0-eth1"):
                assert " DOWN " in run(f"ip -brief link show {end}")
            # the two ports, and LOCAL which is never up
            eventually(lambda: lab.ovs.ofctl("show", "e0_0").count("LINK_DOWN"), 2 + 1)
    lab.ovs.vsctl("set", "bridge", "e0_0", "external_ids:changed=yes")
    shown = run("tc qdisc") + "".join(at(lab, lab.tree.name(host), "tc qdisc") for host in lab.tree.hosts())
    assert re.findall(r"qdisc tbf .* rate (\S+)", shown) == ["4Mbit"] * (2 * len(list(lab.tree.links())))
    lab.net.configLinkStatus("h0_0_2", "e0_0", "down")
    assert "10.0.0" not in at(lab, "h0_0_2", "ip route")
    lab.net.configLinkStatus("h0_0_2", "e0_0", "up")
    for said in (before, routes_of_a_host()):
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
    assert " 0% packet loss" in run(f"ping -c1 -W60 {other}")
    assert "100% packet loss" in at(lab, a, f"ping -c1 -W1 {other}")
    for to in (other, lab.tree.ip(lab.tree.host(b))):
        at(lab, a, f"ip route replace {to} via 192.168.0.1 dev {a}-mgmt")
        assert "100% packet loss" in at(lab, a, f"ping -c1 -W1 {to}")
        at(lab, a, f"ip route del {to}")
    assert "mgmt" not in str([str(link) for link in lab.net.links])


@in_isolation
def test_switches_meet_the_controller_once_their_links_are_up() -> None:
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


@in_isolation
def test_bfd_can_be_switched_on_later_one_uplink_after_the_other() -> None:
    """A port without BFD up is avoided until then, but can be sent to."""
    its = Lab(PODS, rate_mbit=4, controller_port=None, bfd=False)
    its.bfd_ms = SLOW_BFD_MS
    with its as lab:
        assert lab.bfd_up() == {}
        lab.ovs.vsctl("--no-wait", "add-br", "fresh", "--", "set", "bridge", "fresh", "datapath_type=nosuch")  # not ours
        _avoided(lab)
        lab.ovs.vsctl("set", "Interface", "a0_0-eth4", "bfd:enable=false")
        lab.ovs.vsctl("clear", "Interface", "a0_0-eth4", "bfd")
        for step, report in enumerate(bfd.rollout(every := {lab.ovs.database: set(PODS.switches())}, PODS, SLOW_BFD_MS)):
            assert (report.had, report.enabled, report.single, report.problems) == (0, 16, [], {})
            assert report.switches == set(lab.tree.switches())
            # of every switch with uplinks only this one is out
            for switch in (*lab.tree.switches(Level.EDGE), *lab.tree.switches(Level.AGGREGATION)):
                ports = states(lab, lab.tree.name(switch))
                others = {port for index, port in enumerate(("3", "4")) if index != step}
                assert {ports[port] for port in others} == {"LIVE"}
            eventually(lambda: set(lab.bfd_up().values()), {True})
        eventually(lambda: unsettled(lab), set())
        assert bfd.enable(every, PODS, 500).had == 32
        assert f"TX Interval: Approx {SLOW_BFD_MS}ms" in lab.ovs.appctl("bfd/show", "e0_0-eth3")


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
