"""``mn --custom topologies/fattree.py --topo fattree,K`` and ``clos,FILE`` as typed: system's Python, private Open vSwitch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tests.helpers.scripts import Script
from topologies.fabric_file import parse
from topologies.structure import FatTree

Start = Callable[[str], Script]

# mn's "cleanup" removes files in /tmp, so it gets one of its own; this checkout may lie there and is seen elsewhere, too.
MN = """
import json, os, subprocess, sys
from pathlib import Path
from topologies.lab.isolation import isolated
from topologies.lab.private_ovs import PrivateOvs

def main():
    Path("/run/checkout").mkdir()
    subprocess.run(["mount", "--bind", os.getcwd(), "/run/checkout"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/tmp"], check=True)
    os.chdir("/run/checkout")
    with PrivateOvs(Path("/run/ovs")):
        for topo, more, commands, fabric in RUNS:
            Path("/run/fabric.yaml").write_text(fabric)
            command = ["mn", "--custom", "topologies/fattree.py", "--topo", topo, *more]
            done = subprocess.run(command, input=commands, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(json.dumps([done.returncode, done.stdout]))
    return 0

sys.exit(isolated(main))
"""
OVS = ["--controller", "remote", "--switch", "ovs,datapath=user"]


def mn(start: Start, *runs: tuple[str, list[str], str, str]) -> list[tuple[int, str]]:
    """Run mn for topologies, each with more options, commands, and what is /run/fabric.yaml; statuses and outputs."""
    status, output, errors = start(f"RUNS = {runs!r}\n" + MN).end()
    assert (status, errors) == (0, "")
    return [tuple(json.loads(line)) for line in output.splitlines()]


def test_it_builds_the_fabric_as_planned(script: Start) -> None:
    tree = FatTree(4)
    commands = "\n".join(
        [
            "net",
            "h3_1_3 ip -brief address; ip route; ethtool -k h3_1_3-eth0 | grep ^[tg]; cat /proc/net/if_inet6",
            "sh ovs-vsctl --columns=name,ofport find interface type!=internal",
            *(f"sh ovs-ofctl -O OpenFlow13 show {tree.name(switch)} | grep dpid" for switch in tree.switches()),
            "h0_0_2 arp -d 10.0.0.3; ip neigh; echo end",
        ]
    )
    # names of the custom file land among mn's own: Host, Link, Switch, Path
    others = [*OVS, "--host", "proc", "--link", "default", "--mac", "--test", "none"]
    (status, output), beside = mn(script, ("fattree,4", OVS, commands, ""), ("fattree,k=2", others, "", ""))
    assert beside[0] == 0, beside[1]
    assert "Starting 5 switches" in beside[1]
    assert "Caught exception" not in beside[1]
    assert status == 0, output

    for link in tree.links():
        lower, upper = tree.name(link.lower), tree.name(link.upper)
        one = f"{lower}-eth{tree.port(link.lower, link.upper)}"
        other = f"{upper}-eth{tree.port(link.upper, link.lower)}"
        assert f"{one}:{other}" in output
        assert f"{other}:{one}" in output or lower.startswith("h")
    ofports = dict(re.findall(r'name\s*: "?([a-z0-9_-]+)"?\nofport\s*: (\d+)', output))
    assert ofports == {
        f"{tree.name(switch)}-eth{port}": str(port) for switch in tree.switches() for port in tree.ports(switch)
    }
    dpids = [int(dpid, 16) for dpid in re.findall(r"dpid:([0-9a-f]{16})", output)]
    assert dpids == [tree.dpid(switch) for switch in tree.switches()]

    assert re.search(r"h3_1_3-eth0@\S+ +UP +10\.3\.1\.3/24\s*$", output, re.MULTILINE)  # and no IPv6 address
    assert "default via 10.3.1.1 dev h3_1_3-eth0" in output
    offloads = re.findall(
        r"^((?:tx|tcp|generic)-[a-z-]*(?:checksumming|offload)): (\w+)(?! \[fixed\])", output, re.MULTILINE
    )
    checked = {name: state for name, state in offloads if "vlan" not in name}
    assert checked.keys() >= {
        "tx-checksumming",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
    }
    assert set(checked.values()) == {"off"}


LEAF_SPINE = "pods: 1\nedges: 3\naggregations: 2\ncores: 0\nhosts: 2\nlinks:\n  e0_1-a0_0: absent\n"


def test_a_fabric_file_is_built_as_it_says(script: Start) -> None:
    tree = parse(LEAF_SPINE).fabric
    [(status, output)] = mn(script, ("clos,/run/fabric.yaml", OVS, "net\nh0_1_2 ip -brief address", LEAF_SPINE))
    assert status == 0, output
    assert "Starting 5 switches" in output
    for link in tree.links():
        lower, upper = tree.name(link.lower), tree.name(link.upper)
        assert (
            f"{lower}-eth{tree.port(link.lower, link.upper)}:{upper}-eth{tree.port(link.upper, link.lower)}" in output
        )
    assert "e0_1-eth3:" not in output  # its port of the absent link; the others keep their numbers
    assert "e0_1-eth4:a0_1-eth2" in output
    assert re.search(r"h0_1_2-eth0@\S+ +UP +10\.0\.1\.2/24", output)


WRONG = LEAF_SPINE.replace("hosts: 2", "hosts: 0").replace("pods", "pod")
ONE_FILE = "mn --topo clos,FILE: the only argument is a fabric file"
MISTAKES = {
    "fattree,5": ["even number from 2 to 128"],
    "fattree,many": ["even number from 2 to 128"],
    "fattree,2,4": ["even number from 2 to 128"],
    "fattree,size=4": ["even number from 2 to 128"],
    "clos": [ONE_FILE],
    "clos,a,b": [ONE_FILE],
    "clos,file=/run/none.yaml": ["mn --topo clos,FILE: /run/none.yaml: cannot be read: No such file or directory"],
    "clos,/run/fabric.yaml": [
        "/run/fabric.yaml:1: pods: is missing",
        ":1: pod: is no key",
        ":5: hosts: must be a number from 1 to 252",
    ],
}


def test_mistakes_are_said_in_few_lines_without_mns_cleanup(script: Start) -> None:
    done = mn(script, *((topo, OVS, "", WRONG) for topo in MISTAKES))
    for (topo, said), (status, output) in zip(MISTAKES.items(), done, strict=True):
        assert status == 1, topo
        assert "Caught exception" not in output
        assert all(text in output for text in said), output
        assert output.count("\n") <= (1 if topo.startswith("fattree") else 3), output
