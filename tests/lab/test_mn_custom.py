"""``mn --custom topologies/fattree.py --topo fattree,K`` and ``clos,FILE`` as typed: system's Python, private Open vSwitch."""

import os
import re
import subprocess
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from tests.helpers.sopa_lab import in_isolation
from topologies import Clos
from topologies.fabric_file import parse
from topologies.lab.private_ovs import PrivateOvs
from topologies.structure import FatTree

OVS = ["--controller", "remote", "--switch", "ovs,datapath=user"]
LEAF_SPINE = "pods: 1\nedges: 3\naggregations: 2\ncores: 0\nhosts: 2\nlinks:\n  e0_1-a0_0: absent\n"
FILE = Path("/run/fabric.yaml")


def with_mn(test: Callable[[], None]) -> Callable[[], None]:
    """Let a test run where `mn` can be run."""

    @wraps(test)
    def inside() -> None:
        # mn's "cleanup" removes files in /tmp, so it gets one of its own; this checkout may lie there and is seen elsewhere, too
        Path("/run/checkout").mkdir()
        subprocess.run(["mount", "--bind", os.getcwd(), "/run/checkout"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/tmp"], check=True)
        os.chdir("/run/checkout")
        with PrivateOvs(Path("/run/ovs")):
            test()

    return in_isolation(inside)


def mn(topo: str, commands: str = "", options: list[str] = OVS) -> tuple[int, str]:
    """Run mn for a topology, with commands at its prompt; its status and output."""
    command = ["mn", "--custom", "topologies/fattree.py", "--topo", topo, *options]
    done = subprocess.run(command, input=commands, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def cables(tree: Clos) -> set[str]:
    """Return what mn's command ``net`` says of each link at its lower end."""

    def end(one: object, other: object) -> str:
        return f"{tree.name(one)}-eth{tree.port(one, other)}"  # type: ignore[arg-type]

    return {f"{end(link.lower, link.upper)}:{end(link.upper, link.lower)}" for link in tree.links()}


@with_mn
def test_it_builds_the_fabric_as_planned() -> None:
    tree = FatTree(4)
    ip = "ip -color=never"
    commands = f"net\nh3_1_3 {ip} -brief address; {ip} route; ethtool -k h3_1_3-eth0 | grep ^[tg]; cat /proc/net/if_inet6\n"
    commands += "sh ovs-vsctl --columns=name,ofport find interface type!=internal\n"
    commands += "".join(f"sh ovs-ofctl -O OpenFlow13 show {tree.name(each)} | grep dpid\n" for each in tree.switches())
    # names of the custom file land among mn's own: Host, Link, Switch, Path
    others = [*OVS, "--host", "proc", "--link", "default", "--mac", "--test", "none"]
    status, beside = mn("fattree,k=2", options=others)
    assert status == 0, beside
    assert "Starting 5 switches" in beside
    assert "Caught exception" not in beside
    status, output = mn("fattree,4", commands)
    assert status == 0, output
    assert cables(tree) <= set(output.split())
    ofports = dict(re.findall(r'name\s*: "?([a-z0-9_-]+)"?\nofport\s*: (\d+)', output))
    ends = [(tree.name(switch), port) for switch in tree.switches() for port in tree.ports(switch)]
    assert ofports == {f"{name}-eth{port}": str(port) for name, port in ends}
    dpids = [int(dpid, 16) for dpid in re.findall(r"dpid:([0-9a-f]{16})", output)]
    assert dpids == [tree.dpid(switch) for switch in tree.switches()]
    assert re.search(r"h3_1_3-eth0@\S+ +UP +10\.3\.1\.3/24\s*$", output, re.MULTILINE)  # and no IPv6 address
    assert "default via 10.3.1.1 dev h3_1_3-eth0" in output
    offloads = r"^((?:tx|tcp|generic)-[a-z-]*(?:checksumming|offload)): (\w+)(?! \[fixed\])"
    shown = {name: state for name, state in re.findall(offloads, output, re.MULTILINE) if "vlan" not in name}
    wanted = ("tcp-segmentation", "generic-segmentation", "generic-receive")
    assert shown.keys() >= {"tx-checksumming", *(f"{name}-offload" for name in wanted)}
    assert set(shown.values()) == {"off"}


@with_mn
def test_a_fabric_file_is_built_as_it_says() -> None:
    FILE.write_text(LEAF_SPINE)
    status, output = mn(f"clos,{FILE}", "net\nh0_1_2 ip -color=never -brief address\n")
    assert status == 0, output
    assert "Starting 5 switches" in output
    assert cables(parse(LEAF_SPINE).fabric) <= set(output.split())
    assert "e0_1-eth3:" not in output  # its port of the absent link; the others keep their numbers
    assert "e0_1-eth4:a0_1-eth2" in output
    assert re.search(r"h0_1_2-eth0@\S+ +UP +10\.0\.1\.2/24", output)


ONE_FILE = "mn --topo clos,FILE: the only argument is a fabric file"
OTHER_FILE = ("/run/fabric.yaml:1: pods: is missing", ":1: pod: is no key", ":5: hosts: must be a number from 1 to 252")
MISTAKES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("fattree,5", "fattree,2,4", "fattree,size=4"), ("even number from 2 to 128",)),
    **dict.fromkeys(("clos", "clos,a,b"), (ONE_FILE,)),
    "clos,file=/run/none.yaml": ("mn --topo clos,FILE: /run/none.yaml: cannot be read: No such file or directory",),
    f"clos,{FILE}": OTHER_FILE,
}


@with_mn
def test_mistakes_are_said_in_few_lines_without_mns_cleanup() -> None:
    FILE.write_text(LEAF_SPINE.replace("hosts: 2", "hosts: 0").replace("pods", "pod"))
    for topo, said in MISTAKES.items():
        status, output = mn(topo)
        assert status == 1, topo
        assert "Caught exception" not in output
        assert all(text in output for text in said), output
        assert output.count("\n") <= (1 if topo.startswith("fattree") else 3), output
