"""`Lab`: a fabric with real packets, its management network, its link rates, and what is left of it."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Callable

from tests.helpers.scripts import Script, running
from tests.helpers.waiting import Containing, eventually
from tests.lab.switches import run
from topologies.lab.network import Lab

Start = Callable[[str], Script]

PRELUDE = """
import json, os, subprocess, sys
from topologies.structure import FatTree
from topologies.lab.isolation import isolated

def run(command):
    return subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

def alive(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/net") is not None
    except OSError:
        return False

def main():
    from topologies.lab.network import Lab
    tell = {}
    body(Lab, tell)
    print(json.dumps(tell), flush=True)
    return 0
"""
END = "\nsys.exit(isolated(main))\n"


def lab(start: Start, body: str) -> dict[str, object]:
    """Run ``body(Lab, tell)`` in a lab's process; what it has put into ``tell``."""
    one = start(PRELUDE + body + END)
    status, output, errors = one.end()
    assert status == 0, errors
    told: dict[str, object] = json.loads(output.splitlines()[-1])
    return told


def inside(lab: Lab, host: str, command: str) -> str:
    words = ["nsenter", f"--net={lab.netns(host)}", "sh", "-c", command]
    return subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout


def test_packets_rates_and_routes(switches: Lab) -> None:
    lab = switches
    for one in ("e0_0", "e0_1"):
        lab.ovs.ofctl("del-flows", one)
    # two hosts of one rack, joined by hand
    lab.ovs.ofctl("add-flow", "e0_0", "in_port=1,actions=output:2")
    lab.ovs.ofctl("add-flow", "e0_0", "in_port=2,actions=output:1")
    assert " 0% packet loss" in inside(lab, "h0_0_2", "ping -c1 -W60 10.0.0.3")
    with subprocess.Popen(["nsenter", "--net=" + lab.netns("h0_0_3"), "iperf3", "-s", "-1"], stdout=-3) as server:
        eventually(lambda: inside(lab, "h0_0_3", "ss -ltn"), Containing(":5201 "))
        told = json.loads(inside(lab, "h0_0_2", "iperf3 -c 10.0.0.3 -n 1M -J"))["end"]
        server.wait(60)
    # of 4 Mbit/s on the wire TCP with timestamps gets 1448 bytes of each 1514, and some kilobytes wait in the receiver
    assert 0 < told["sum_received"]["bits_per_second"] < 4.1e6
    assert told["sender_tcp_congestion"] == "cubic"
    routes = [inside(lab, "h0_0_2", "ip route")]
    # as Open vSwitch changes and links flap, the rate stays, and so does the way out of a host
    for up in (False, True):
        lab.set_link("h0_0_2-e0_0", up)
        lab.set_link("e0_0-a0_0", up)
        if not up:
            for end in ("e0_0-eth3", "e0_0-eth1", "a0_0-eth1"):
                assert " DOWN " in run("ip", "-brief", "link", "show", end)
            # the two ports, and LOCAL which is never up
            eventually(lambda: lab.ovs.ofctl("show", "e0_0").count("LINK_DOWN"), 2 + 1)
    lab.ovs.vsctl("set", "bridge", "e0_0", "external_ids:changed=yes")
    shown = run("tc", "qdisc") + "".join(inside(lab, lab.tree.name(host), "tc qdisc") for host in lab.tree.hosts())
    assert set(re.findall(r"qdisc tbf .* rate (\S+)", shown)) == {"4Mbit"}
    assert shown.count(" tbf ") == 2 * len(list(lab.tree.links()))
    lab.net.configLinkStatus("h0_0_2", "e0_0", "down")
    assert "10.0.0" not in inside(lab, "h0_0_2", "ip route")
    lab.net.configLinkStatus("h0_0_2", "e0_0", "up")
    for said in (*routes, inside(lab, "h0_0_2", "ip route")):
        assert "default via 10.0.0.1 dev h0_0_2-eth0 congctl cubic" in said
        assert "10.0.0.0/24 dev h0_0_2-eth0 scope link src 10.0.0.2 congctl cubic" in said
    assert " 0% packet loss" in inside(lab, "h0_0_2", "ping -c1 -W60 10.0.0.3")
    lab.ovs.vsctl("clear", "bridge", "e0_0", "external_ids")
    lab.ovs.ofctl("del-flows", "e0_0")


def test_the_management_network_is_no_way_round_the_fabric(switches: Lab) -> None:
    lab, (a, b) = switches, ("h0_0_2", "h1_0_2")
    other = lab.management_address(b)
    serve = [sys.executable, "-m", "http.server", "--bind", "192.168.0.1", "8080"]
    fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).status)"
    with subprocess.Popen(serve, cwd="/run", stderr=subprocess.DEVNULL) as server:
        eventually(lambda: run("ss", "-ltn"), Containing(":8080 "))
        for host in (a, b):
            assert inside(lab, host, f"{sys.executable} -c '{fetch}' http://192.168.0.1:8080/") == "200\n"
        server.terminate()
    assert " 0% packet loss" in inside(lab, a, "ping -c1 -W60 192.168.0.1")
    assert " 0% packet loss" in run("ping", "-c1", "-W60", str(other))
    assert "100% packet loss" in inside(lab, a, f"ping -c1 -W1 {other}")
    for to in (other, lab.tree.ip(lab.tree.host(b))):
        inside(lab, a, f"ip route replace {to} via 192.168.0.1 dev {a}-mgmt")
        assert "100% packet loss" in inside(lab, a, f"ping -c1 -W1 {to}")
        inside(lab, a, f"ip route del {to}")
    assert "mgmt" not in str([str(link) for link in lab.net.links])


def test_stopping_leaves_nothing_and_it_can_be_started_again(script: Start) -> None:
    told = lab(
        script,
        """
def body(Lab, tell):
    tell["left"] = []
    for _ in range(2):
        with Lab(FatTree(2), rate_mbit=4, controller_port=None) as lab:
            lab.node("h0_0_2").cmd("sleep 1000 &")
            lab.node("h1_0_2").popen("sleep 1000")
        lab.stop()
        processes = [pid for pid in os.listdir("/proc") if pid.isdigit() and alive(pid)]
        variables = [name for name in os.environ if name.startswith("OVS_")]
        tell["left"].append([sorted(os.listdir("/sys/class/net")), len(processes), variables])
""",
    )
    assert told["left"] == [[["lo"], 2, []]] * 2


def test_a_start_that_fails_leaves_nothing(script: Start) -> None:
    told = lab(
        script,
        """
def body(Lab, tell):
    run("ip link add a0_0-eth1 type veth peer name intheway")
    try:
        Lab(FatTree(2), controller_port=None).__enter__()
    except RuntimeError as error:
        tell["said"] = str(error)
    tell["left"] = sorted(os.listdir("/sys/class/net"))
""",
    )
    assert "File exists" in str(told["said"])
    assert told["left"] == ["a0_0-eth1", "intheway", "lo"]


def test_two_side_by_side_and_a_kill(script: Start) -> None:
    body = """
def body(Lab, tell):
    with Lab(FatTree(2), rate_mbit=4) as lab:
        print(lab.ovs.vsctl("list-br").split(), flush=True)
        lab.node("h0_0_2").cmd("sleep MARKER &")
        print("waits", flush=True)
        sys.stdin.read()
"""
    markers = [f"1000.{secrets.randbelow(10**9):09d}" for _ in range(2)]
    labs = [script(PRELUDE + body.replace("MARKER", marker) + END) for marker in markers]
    for one in labs:
        assert one.line() == "['a0_0', 'a1_0', 'c0_0', 'e0_0', 'e1_0']"
        assert one.line() == "waits"
    labs[0].process.kill()
    labs[0].process.wait()
    eventually(lambda: running(markers[0]), [])
    eventually(lambda: len(running(markers[1])), 1)
    assert labs[1].end()[0] == 0
    assert running(markers[1]) == []


def test_outside_of_isolated_it_refuses(script: Start) -> None:
    code = (
        "from topologies.structure import FatTree\nfrom topologies.lab.network import Lab\nLab(FatTree(2)).__enter__()"
    )
    status, _, errors = script(code).end()
    assert status == 1
    assert "isolated()" in errors
