"""`Lab`: what is left of it, and two side by side."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

from tests.helpers.scripts import Script, running
from tests.helpers.waiting import eventually

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
