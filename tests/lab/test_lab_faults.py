"""BFD in the lab, and faults that can be injected: what each does to the fabric, and that nothing of it is left once undone."""

from __future__ import annotations

import random
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.southbound import bfd
from tests.helpers.waiting import eventually, throughout
from topologies import FatTree, Host, Level, TopologyError, ovsdb
from topologies.lab.faults import kill_switch, restore_switch, set_silent, swap_cables
from topologies.lab.isolation import isolated
from topologies.lab.network import Lab, bfd_interval_ms
from topologies.lab.private_ovs import OvsError

pytestmark = pytest.mark.lab

LINK = "a0_0-c0_1"
FRAME = f"ffffffffffff{'0' * 12}88b5{'00' * 46}"
LLDP = f"0180c200000e{'0' * 12}88cc{'00' * 46}"


def in_lab(body: Callable[[Lab], None], k: int = 4, bfd_ms: int | None = None, **options: Any) -> None:
    """Run a test's body inside a lab of its own, without a controller; what it asserts there fails the test."""

    def main() -> int:
        its = Lab(FatTree(k), **{"controller_port": None, **options})
        its.bfd_ms = bfd_ms or its.bfd_ms
        with its as lab:
            body(lab)
        return 0

    assert isolated(main) == 0


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ends(lab: Lab, link: str = LINK) -> tuple[str, str]:
    """The interfaces at the lower and the upper end of a link."""
    lower, upper = (lab.tree.switch(name) for name in link.split("-"))
    return lab.interface(lower, lab.tree.port(lower, upper)), lab.interface(upper, lab.tree.port(upper, lower))


def bfd_of(lab: Lab, link: str = LINK) -> list[bool | None]:
    """Return for each end of a link whether BFD is up; None for an end without BFD."""
    state = lab.bfd_up()
    return [state.get(end) for end in ends(lab, link)]


UP, DOWN = [True, True], [False, False]  # of `bfd_of`


def unsettled(lab: Lab) -> set[str]:
    """Sessions that are not up, or not as fast as they should be: they start slowly (RFC 5880, section 6.8.3)."""
    state, shown = lab.bfd_up(), lab.ovs.appctl("bfd/show")
    fast = f"RX Interval: Approx {bfd_interval_ms(lab.tree)}ms"
    sessions = re.findall(r"^---- (\S+) ----\n(.*?)(?=^----|\Z)", shown, re.MULTILINE | re.DOTALL)
    settled = {name for name, text in sessions if fast in text and state.get(name)}
    return {interface for interface, _ in lab.fabric_interfaces()} - settled


def states(lab: Lab, switch: str) -> dict[str, str]:
    """From each port of a switch, by number, to its OpenFlow state."""
    shown = lab.ovs.ofctl("show", switch)
    return dict(re.findall(r"^ (\w+)\(.*?\n +config: .*?\n +state: +(.*?)$", shown, re.MULTILINE | re.DOTALL))


def sent(lab: Lab, switch: str, port: int, frame: str = FRAME) -> None:
    """Have a switch send a frame out of a port."""
    lab.ovs.ofctl("packet-out", switch, f"in_port=controller packet={frame} actions=output:{port}")


def received(lab: Lab, switch: str) -> dict[int, int]:
    """From each port of a switch to the frames received on it, of those that `sent` sends."""
    flows = lab.ovs.ofctl("dump-flows", switch)
    return {int(port): int(count) for count, port in re.findall(r"n_packets=(\d+).*in_port=(\d+)", flows) if int(count)}


def count_frames(lab: Lab, *switches: str) -> None:
    """Have switches count from 0 what `received` tells."""
    ports, kinds = range(1, lab.tree.k + 1), ("0x88b5", "0x88cc")
    entries = [f"reset_counts,dl_type={kind},in_port={port},actions=drop" for port in ports for kind in kinds]
    for switch in switches:
        lab.ovs.ofctl("add-flows", switch, "-", stdin="\n".join(entries))


def carries(lab: Lab, link: str, up: bool, down: bool) -> None:
    """Check that a link carries frames up, or down, or not; its switches have no entries but those of `count_frames`."""
    lower, upper = (lab.tree.switch(name) for name in link.split("-"))
    for one, other, carried in ((lower, upper, up), (upper, lower, down)):
        there, port = lab.tree.name(other), lab.tree.port(other, one)
        count_frames(lab, there)
        sent(lab, lab.tree.name(one), lab.tree.port(one, other))
        if carried:
            eventually(lambda there=there: received(lab, there), {port: 1})
        else:
            throughout(lambda there=there: received(lab, there), {}, seconds=0.5)


def settings(lab: Lab) -> dict[str, list[Any]]:
    """Return the settings in the database, by table."""
    columns = {
        "Bridge": ["name", "controller", "datapath_type", "datapath_id", "fail_mode", "protocols", "other_config"],
        "Port": ["name", "tag", "trunks", "qos"],
        "Interface": ["name", "type", "ofport", "ofport_request", "bfd", "options", "link_state", "admin_state"],
        "Controller": ["target", "max_backoff", "inactivity_probe"],
    }
    selects = [{"op": "select", "table": table, "where": [], "columns": names} for table, names in columns.items()]
    rows = [result["rows"] for result in lab.ovs.transact(selects)]
    for bridge in rows[0]:
        bridge["controller"] = len(ovsdb.elements(bridge["controller"]))
    return {table: sorted(each, key=str) for table, each in zip(columns, rows, strict=True)}


def queues() -> list[str]:
    """Every queueing discipline and filter of the lab's root namespace, without numbers that the kernel draws."""
    lines = re.sub(r"qdisc (\w+) \w+:", r"qdisc \1", run("tc", "qdisc", "show")).splitlines()
    return sorted(line for line in lines if " tbf " in line or " clsact " in line)


def test_bfd_is_up_on_every_link_between_switches_and_on_no_other() -> None:
    def body(lab: Lab) -> None:
        assert set(lab.bfd_up()) == {interface for interface, _ in lab.fabric_interfaces()}
        assert all(lab.bfd_up().values())
        for switch in lab.tree.switches():
            name, numbers = lab.tree.name(switch), list(map(str, lab.tree.ports(switch)))
            eventually(lambda name=name, its=numbers: {states(lab, name)[each] for each in its}, {"LIVE"})
        assert lab.ovs.vsctl("get", "Interface", "e0_0-eth1", "bfd") == "{}\n"
        eventually(lambda: unsettled(lab), set())

    in_lab(body)


def test_switches_meet_the_controller_once_their_links_are_up() -> None:
    def main() -> int:
        with socket.create_server(("127.0.0.1", 6653)) as controller, ThreadPoolExecutor(1) as beside:
            controller.settimeout(150)
            lab = Lab(FatTree(4))

            def first_contact() -> dict[str, bool]:
                controller.accept()[0].close()
                return lab.bfd_up()

            links = beside.submit(first_contact)
            with lab:
                assert list(links.result().values()) == [True] * 64
        return 0

    assert isolated(main) == 0


@pytest.mark.parametrize(("k", "interval"), [(2, 100), (4, 100), (6, 338), (8, 800)])
def test_the_interval_grows_with_the_sessions(k: int, interval: int) -> None:
    assert bfd_interval_ms(FatTree(k)) == interval


def test_bfd_and_lldp_do_not_wait_in_a_full_queue() -> None:
    """100 frames at 0.2 Mbit/s are 6 s, and BFD takes a link down after 1.5 s: a machine may stand still for most of that."""

    def body(lab: Lab) -> None:
        tree, link = lab.tree, "e0_0-a0_0"
        host, lower = tree.host("h0_0_2"), ends(lab, link)[0]
        enter = ["nsenter", f"--net={lab.netns(host)}"]
        interface = lab.interface(host, 0)
        run(*enter, "ip", "neigh", "replace", str(tree.gateway(host)), "lladdr", "02:00:00:00:00:01", "dev", interface)
        # twice what the link carries
        lab.ovs.ofctl("add-flow", "e0_0", "in_port=1,actions=output:3,output:3")
        count_frames(lab, "a0_0")
        code = "import socket; s = socket.socket(type=socket.SOCK_DGRAM)\nwhile True: s.sendto(bytes(1400), ('10.1.0.2', 9))"

        def flood() -> subprocess.Popen[bytes]:
            flooding = subprocess.Popen([*enter, sys.executable, "-c", code])
            eventually(backlog, lambda value: value > 80)
            return flooding

        def counted(pattern: str) -> int:
            found = re.search(pattern, run("tc", "-s", "qdisc", "show", "dev", lower, "root"))
            return int(found[1]) if found else 0

        def backlog() -> int:
            return counted(r"backlog \w+ (\d+)p")

        def left() -> int:
            return counted(r"Sent \d+ bytes (\d+) pkt")

        flooding = flood()
        flaps = _flaps(lab)
        throughout(lambda: (backlog() > 50, bfd_of(lab, link)), (True, UP), seconds=4)
        assert _flaps(lab) == flaps
        before, waiting = left(), backlog()
        sent(lab, "e0_0", 3, LLDP)
        eventually(lambda: received(lab, "a0_0").get(1, 0), lambda value: value > 0)
        assert left() - before < waiting
        # in the queue, BFD comes late and then not at all
        run("tc", "filter", "del", "dev", lower, "egress")
        eventually(lambda: bfd_of(lab, link), DOWN)
        flooding.kill()
        flooding.wait()
        eventually(lambda: bfd_of(lab, link), UP, seconds=60)

    in_lab(body, bfd_ms=500, rate_mbit=0.2)


def _flaps(lab: Lab) -> dict[str, str]:
    """Return the number of changes of each session so far."""
    select = {"op": "select", "table": "Interface", "where": [], "columns": ["name", "bfd_status"]}
    rows = lab.ovs.transact([select])[0]["rows"]
    return {row["name"]: ovsdb.entries(row["bfd_status"]).get("flap_count", "") for row in rows}


@pytest.mark.parametrize("rate_mbit", [None, 4])
def test_one_way_loss_is_silent_and_bfd_finds_it(rate_mbit: float | None) -> None:
    def body(lab: Lab) -> None:
        carries(lab, LINK, True, True)
        eventually(lambda: unsettled(lab), set())
        took = []
        for towards, carried in (("c0_1", (False, True)), ("a0_0", (True, False))):
            before = time.monotonic()
            set_silent(lab, LINK, towards, True)
            eventually(lambda: bfd_of(lab), DOWN)
            took.append(time.monotonic() - before)
            set_silent(lab, LINK, towards, True)
            carries(lab, LINK, *carried)
            assert [states(lab, "a0_0")["4"], states(lab, "c0_1")["1"]] == ["0", "0"]  # not LINK_DOWN
            assert run("ip", "-brief", "link", "show", "a0_0-eth4").split()[1] == "UP"
            errors = lab.ovs.ofctl("dump-ports", "a0_0", "4") + lab.ovs.ofctl("dump-ports", "c0_1", "1")
            assert set(re.findall(r"tx pkts=\d+, bytes=\d+, (.*)", errors)) == {"drop=0, errs=0, coll=0"}
            set_silent(lab, LINK, towards, False)
            eventually(lambda: bfd_of(lab), UP)
            set_silent(lab, LINK, towards, False)
            eventually(lambda: unsettled(lab), set())
        assert min(took) < 1  # some process may have waited for a processor once
        for towards in ("c0_1", "a0_0"):
            set_silent(lab, LINK, towards, True)
        eventually(lambda: bfd_of(lab), DOWN)
        carries(lab, LINK, False, False)
        set_silent(lab, LINK, "c0_1", False)
        carries(lab, LINK, True, False)
        assert bfd_of(lab) == DOWN
        set_silent(lab, LINK, "a0_0", False)
        eventually(lambda: unsettled(lab), set())

    in_lab(body, rate_mbit=rate_mbit)


def test_faults_of_one_link_in_any_order_are_independent() -> None:
    def body(lab: Lab) -> None:
        faults = {
            "cut": (lambda: lab.set_link(LINK, False), lambda: lab.set_link(LINK, True)),
            "up": (lambda: set_silent(lab, LINK, "c0_1", True), lambda: set_silent(lab, LINK, "c0_1", False)),
            "down": (lambda: set_silent(lab, LINK, "a0_0", True), lambda: set_silent(lab, LINK, "a0_0", False)),
            "lower": (lambda: kill_switch(lab, "a0_0"), lambda: restore_switch(lab, "a0_0")),
            "upper": (lambda: kill_switch(lab, "c0_1"), lambda: restore_switch(lab, "c0_1")),
            "swap": (lambda: swap_cables(lab, LINK, "a0_0-c0_0"), lambda: swap_cables(lab, "a0_0-c0_0", LINK)),
        }
        before, shaped = settings(lab), queues()
        chance = random.Random(7)
        for _ in range(4):
            names = list(faults)
            chance.shuffle(names)
            for name in names:
                faults[name][0]()
            chance.shuffle(names)
            for number, name in enumerate(names):
                faults[name][1]()
                if number == len(names) - 2:
                    if names[-1] == "swap":
                        eventually(lambda: bfd_of(lab), UP)
                    else:
                        throughout(lambda: bfd_of(lab) == UP, False, seconds=2.5)
            eventually(lambda: unsettled(lab), set())
            eventually(lambda: settings(lab), before)
            assert queues() == shaped
            carries(lab, LINK, True, True)

    in_lab(body, rate_mbit=4)


def test_a_switch_dies_and_comes_back_empty_and_as_it_was() -> None:
    def body(lab: Lab) -> None:
        before, shaped = settings(lab), queues()
        assert {bridge["controller"] for bridge in before["Bridge"]} == {1}
        for name in ("a0_0", "e1_1", "c1_0"):
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
            assert queues() == shaped
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
        eventually(lambda: unsettled(lab), set())
        eventually(lambda: settings(lab), before)
        assert queues() == shaped

    in_lab(body, rate_mbit=4, controller_port=6653)


def test_swapped_cables_lead_to_each_others_switches() -> None:
    def way(lab: Lab, switch: str, port: int, *to: str) -> str:
        """Return the switch, of those, that a port leads to."""
        count_frames(lab, *to)
        sent(lab, switch, port)
        [found] = eventually(lambda: [name for name in to if received(lab, name)])
        return found

    def body(lab: Lab) -> None:
        before, shaped = settings(lab), queues()
        swap_cables(lab, "a0_0-c0_0", "a0_0-c0_1")
        assert way(lab, "a0_0", 3, "c0_0", "c0_1") == "c0_1"
        assert way(lab, "a0_0", 4, "c0_0", "c0_1") == "c0_0"
        assert queues() == shaped
        # and at an upper end; the switch remembers over its death
        swap_cables(lab, "e1_0-a1_0", "e1_1-a1_0")
        kill_switch(lab, "a1_0")
        swap_cables(lab, "a1_0-c0_0", "a1_0-c0_1")
        restore_switch(lab, "a1_0")
        assert way(lab, "a1_0", 1, "e1_0", "e1_1") == "e1_1"
        assert way(lab, "a1_0", 3, "c0_0", "c0_1") == "c0_1"
        assert way(lab, "c0_1", 2, "a1_0", "a0_0") == "a1_0"
        eventually(lambda: unsettled(lab), set())
        # a name keeps meaning the same cable
        lab.set_link("a0_0-c0_1", False)
        eventually(lambda: states(lab, "a0_0")["3"], "LINK_DOWN")
        lab.set_link("a0_0-c0_1", True)
        for links in (("a1_0-c0_0", "a1_0-c0_1"), ("e1_0-a1_0", "e1_1-a1_0"), ("a0_0-c0_1", "a0_0-c0_0")):
            swap_cables(lab, *links)
        eventually(lambda: unsettled(lab), set())
        eventually(lambda: settings(lab), before)
        assert queues() == shaped
        assert way(lab, "a0_0", 3, "c0_0", "c0_1") == "c0_0"
        swap_cables(lab, "h0_0_2-e0_0", "h0_0_3-e0_0")
        assert lab.net.get("e0_0").intfs[1].name == "e0_0-eth2"

    in_lab(body, rate_mbit=4)


def test_what_is_not_there_cannot_fail() -> None:
    def body(lab: Lab) -> None:
        for mistake, message in (
            (lambda: set_silent(lab, "a0_0-c1_0", "a0_0", True), "not cabled together"),
            (lambda: set_silent(lab, "a0_0", "a0_0", True), "is a switch, not a link"),
            (lambda: set_silent(lab, LINK, "c0_0", True), "c0_0 is not an end of a0_0-c0_1"),
            (lambda: set_silent(lab, "h0_0_2-e0_0", "e0_0", True), "is a host's link"),
            (lambda: kill_switch(lab, "h0_0_2"), "h0_0_2 is a host"),
            (lambda: kill_switch(lab, "x9"), "no switch or host"),
            (lambda: restore_switch(lab, "a9_0"), "no switch or host"),
            (lambda: swap_cables(lab, LINK, LINK), "not two links"),
            (lambda: swap_cables(lab, LINK, "e0_0-a0_0"), "not two links of the same level"),
            (lambda: swap_cables(lab, LINK, "a1_1-c1_1"), "do not end at the same switch"),
            (lambda: swap_cables(lab, LINK, "a0_0-c1_1"), "not cabled together"),
        ):
            with pytest.raises(TopologyError, match=message):
                mistake()
        assert all(lab.bfd_up().values())

    in_lab(body)


def test_bfd_can_be_switched_on_later_one_uplink_after_the_other() -> None:
    def body(lab: Lab) -> None:
        assert lab.bfd_up() == {}
        for step, report in enumerate(bfd.rollout([lab.ovs.database], lab.tree, 100)):
            assert (report.had, report.enabled, report.single, report.problems) == (0, 32, [], {})
            assert report.switches == set(lab.tree.switches())
            # of every switch with uplinks only this one is out
            for switch in (*lab.tree.switches(Level.EDGE), *lab.tree.switches(Level.AGGREGATION)):
                ports = states(lab, lab.tree.name(switch))
                others = set(range(lab.tree.half)) - {step}
                assert {ports[str(lab.tree.uplink_port(Level.EDGE, index))] for index in others} == {"LIVE"}
            eventually(lambda: set(lab.bfd_up().values()), {True})
        eventually(lambda: unsettled(lab), set())
        assert bfd.enable([lab.ovs.database], lab.tree, 500).had == 64
        assert "TX Interval: Approx 100ms" in lab.ovs.appctl("bfd/show", "e0_0-eth3")

    in_lab(body, rate_mbit=4, bfd=False)


def test_a_port_without_bfd_up_is_avoided_but_can_be_sent_to() -> None:
    def body(lab: Lab) -> None:
        count_frames(lab, "c0_0", "c0_1")
        buckets = "bucket=watch_port:4,actions=output:4,bucket=watch_port:3,actions=output:3"
        lab.ovs.ofctl("add-group", "a0_0", f"group_id=1,type=ff,{buckets}")
        lab.ovs.vsctl("set", "Interface", "a0_0-eth4", "bfd:enable=true")
        eventually(lambda: states(lab, "a0_0")["4"], "0")
        bundle = "bundle(eth_src,0,active_backup,ofport,members:4,3)"
        for actions, there in (("output:4", "c0_1"), ("group:1", "c0_0"), (bundle, "c0_0")):
            count_frames(lab, "c0_0", "c0_1")
            lab.ovs.ofctl("packet-out", "a0_0", f"in_port=controller packet={FRAME} actions={actions}")
            eventually(lambda there=there: received(lab, there), {1: 1})

    in_lab(body, bfd=False)


@pytest.mark.slow
def test_k8_starts_quickly_and_is_stable_idle_and_under_load() -> None:
    def body(lab: Lab) -> None:
        # of its own and of the commands that it ran: the time that passes depends on what else runs
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        assert sum(each.ru_utime + each.ru_stime for each in used) < 15
        assert len(lab.ovs.vsctl("list-br").split()) == 80
        assert run("tc", "qdisc", "show").count("tbf") == 640
        assert " 0% packet loss" in run("nsenter", f"--net={lab.netns('h7_3_5')}", "ping", "-c1", "-W1", "192.168.0.1")
        flaps = _flaps(lab)
        watched = 3 * 3 * lab.bfd_ms / 1000  # seconds in which each session may go down three times
        throughout(lambda: _flaps(lab), flaps, seconds=watched, poll=1)
        # each host sends to its neighbour in the rack, by way of a core switch and back
        tree = lab.tree
        for switch in (*tree.switches(Level.EDGE), *tree.switches(Level.AGGREGATION)):
            ups = [tree.uplink_port(Level.EDGE, port) for port in range(tree.half)]
            entries = [f"in_port={port},actions=output:{up}" for port, up in enumerate(ups, 1)]
            lab.ovs.ofctl("add-flows", tree.name(switch), "-", stdin="\n".join(entries))
        senders = [_sender(lab, host) for host in tree.hosts()]
        flood = subprocess.Popen(
            [sys.executable, "-c", _FLOOD, *(str(sender.fileno()) for sender in senders)],
            pass_fds=[sender.fileno() for sender in senders],
        )
        before = lab.port_packets()
        throughout(lambda: _flaps(lab), flaps, seconds=watched, poll=1)
        after = lab.port_packets()
        assert flood.poll() is None
        flood.kill()
        flood.wait()
        for sender in senders:
            sender.close()
        assert all(after[name] - before[name] > 100 for name in after)  # how many more depends on the machine
        assert _flaps(lab) == flaps
        assert unsettled(lab) == set()

    in_lab(body, k=8, rate_mbit=0.5)


_FLOOD = """
import selectors, socket, sys
writable = selectors.DefaultSelector()
for number in sys.argv[1:]:
    writable.register(socket.socket(fileno=int(number)), selectors.EVENT_WRITE)
while True:
    for key, _ in writable.select():
        key.fileobj.send(bytes(1400), socket.MSG_DONTWAIT)
"""


def _sender(lab: Lab, host: Host) -> socket.socket:
    """Return a socket of a host that sends datagrams to an address outside the fabric, by way of the gateway."""
    entry = f"{lab.tree.gateway(host)} lladdr 02:00:00:00:00:01 dev {lab.interface(host, 0)}"
    run("nsenter", f"--net={lab.netns(host)}", "ip", "neigh", "replace", *entry.split())
    with inside(lab.netns(host)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("10.9.0.2", 9))
    return sender
