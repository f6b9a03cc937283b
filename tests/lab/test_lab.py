"""`Lab`: a fabric with real packets, its management network, its link rates, and what is left of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

import pytest

from tests.helpers.scripts import Script, running
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.lab

Start = Callable[[str], Script]

PRELUDE = """
import json, os, re, subprocess, sys, time
from tests.helpers.waiting import Containing, eventually
from pathlib import Path
from topologies.structure import FatTree, Host, Level
from topologies.lab.isolation import isolated

def run(command):
    return subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

def alive(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/net") is not None
    except OSError:
        return False

def inside(lab, host, command):
    return run(f"nsenter --net={lab.netns(host)} " + command)

def main():
    from topologies.lab.network import Lab, default_rate, tbf_burst
    tell = {}
    body(Lab, tell)
    print(json.dumps(tell), flush=True)
    return 0
"""
END = "\nsys.exit(isolated(main))\n"


def lab(start: Start, body: str) -> dict[str, object]:
    """Run ``body(Lab, tell)`` in a lab's process; what it has put into ``tell``."""
    one = start(PRELUDE + body + END)
    status, output, errors = one.end(120)
    assert status == 0, errors
    told: dict[str, object] = json.loads(output.splitlines()[-1])
    return told


def test_packets_rates_and_counters(script: Start) -> None:
    told = lab(
        script,
        """
def body(Lab, tell):
    tree = FatTree(4)
    with Lab(tree, rate_mbit=8, queue_packets=50, controller_port=None) as lab:
        tell["quiet"] = lab.port_packets()
        # two hosts of one rack, joined by hand
        lab.ovs.ofctl("add-flow", "e0_0", "in_port=1,actions=output:2")
        lab.ovs.ofctl("add-flow", "e0_0", "in_port=2,actions=output:1")
        tell["ping"] = inside(lab, "h0_0_2", "ping -c1 -W20 10.0.0.3")
        tell["congestion"] = lab.node("h0_0_2").cmd("ip route")
        enter = ["nsenter", "--net=" + lab.netns("h0_0_3")]
        server = subprocess.Popen([*enter, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        eventually(lambda: inside(lab, "h0_0_3", "ss -ltn"), Containing(":5201 "))
        tell["iperf"] = json.loads(inside(lab, "h0_0_2", "iperf3 -c 10.0.0.3 -t 3 -J"))["end"]
        server.wait(60)
        tell["edge"] = lab.port_packets(Level.EDGE)["e0_0"]
        # as Open vSwitch changes and links flap, the rate stays, and so does the way out of a host
        for up in (False, True):
            lab.set_link("h0_0_2-e0_0", up)
            lab.set_link("e0_0-a0_0", up)
            if not up:
                ends = ("e0_0-eth3", "e0_0-eth1", "a0_0-eth1")
                tell["down"] = "".join(run(f"ip -brief link show {end}") for end in ends)
                # the two ports, and LOCAL which is never up
                eventually(lambda: lab.ovs.ofctl("show", "e0_0").count("LINK_DOWN"), 2 + 1)
        lab.ovs.vsctl("set", "bridge", "e0_0", "external_ids:changed=yes")
        tell["rates"] = sorted(set(re.findall(r"qdisc tbf .* rate (\\S+)", run("tc qdisc"))))
        tell["shapers"] = run("tc qdisc").count("tbf")
        tell["shapers"] += sum(inside(lab, host, "tc qdisc").count("tbf") for host in tree.hosts())
        tell["links"] = len(list(tree.links()))
        tell["routes"] = inside(lab, "h0_0_2", "ip route")
        lab.net.configLinkStatus("h0_0_2", "e0_0", "down")
        tell["mininet down"] = inside(lab, "h0_0_2", "ip route")
        lab.net.configLinkStatus("h0_0_2", "e0_0", "up")
        tell["mininet up"] = inside(lab, "h0_0_2", "ip route")
        tell["ping again"] = inside(lab, "h0_0_2", "ping -c1 -W20 10.0.0.3")
""",
    )
    assert set(told["quiet"].values()) == {0}  # type: ignore[attr-defined]  # nothing is sent unasked, not even for IPv6
    assert " 0% packet loss" in str(told["ping"])
    iperf: dict[str, dict[str, float]] = told["iperf"]  # type: ignore[assignment]
    assert told["rates"] == ["8Mbit"]
    # of 8 Mbit/s on the wire TCP with timestamps gets 1448 bytes of each 1514: 7.65, and far less on a busy machine
    assert 1e6 < iperf["sum_received"]["bits_per_second"] < 7.8e6
    assert iperf["sender_tcp_congestion"] == "cubic"
    assert told["edge"] > 400  # type: ignore[operator]
    assert str(told["down"]).count(" DOWN ") == 3
    assert told["shapers"] == 2 * told["links"]  # type: ignore[operator]
    for name in ("congestion", "routes", "mininet up"):
        assert "default via 10.0.0.1 dev h0_0_2-eth0 congctl cubic" in str(told[name])
        assert "10.0.0.0/24 dev h0_0_2-eth0 scope link src 10.0.0.2 congctl cubic" in str(told[name])
    assert "10.0.0" not in str(told["mininet down"])
    assert " 0% packet loss" in str(told["ping again"])


def test_the_management_network_is_no_way_round_the_fabric(script: Start) -> None:
    told = lab(
        script,
        """
def body(Lab, tell):
    tree = FatTree(2)
    with Lab(tree, controller_port=None) as lab:
        a, b = (tree.name(host) for host in tree.hosts())
        other = lab.management_address(b)
        serve = [sys.executable, "-m", "http.server", "--bind", "192.168.0.1", "8080"]
        server = subprocess.Popen(serve, cwd="/run", stderr=subprocess.DEVNULL)
        fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).status)"
        eventually(lambda: run("ss -ltn"), Containing(":8080 "))
        fetch = f"{sys.executable} -c '{fetch}' http://192.168.0.1:8080/"
        tell["fetch"] = [inside(lab, host, fetch) for host in (a, b)]
        server.terminate()
        server.wait()
        tell["to root"] = inside(lab, a, "ping -c1 -W20 192.168.0.1")
        tell["from root"] = run(f"ping -c1 -W20 {other}")
        tell["across"] = inside(lab, a, f"ping -c1 -W1 {other}")
        inside(lab, a, f"ip route replace {other} via 192.168.0.1 dev {a}-mgmt")
        inside(lab, a, f"ip route replace {tree.ip(tree.host(b))} via 192.168.0.1 dev {a}-mgmt")
        tell["forced"] = inside(lab, a, f"ping -c1 -W1 {other}")
        tell["forced to fabric"] = inside(lab, a, f"ping -c1 -W1 {tree.ip(tree.host(b))}")
        tell["links"] = [str(link) for link in lab.net.links]
""",
    )
    assert told["fetch"] == ["200\n", "200\n"]
    for name in ("to root", "from root"):
        assert " 0% packet loss" in str(told[name])
    for name in ("across", "forced", "forced to fabric"):
        assert "100% packet loss" in str(told[name])
    assert "mgmt" not in str(told["links"])
    assert len(told["links"]) == 6  # type: ignore[arg-type]


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
