"""Two network namespaces connected by a veth pair, whose ends are hosts of a k=4 fat-tree, and TCP between them.

All connections use CUBIC, by their route: a socket that was BBR's keeps BBR's pacing whatever it asks for.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.bench.frame import Figures
from experiments.core.machine import busy_seconds
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import build
from topologies import FatTree
from topologies.identity import IPV4, PREFIX6, Family

TREE = FatTree(4, str(PREFIX6))
HOST, PEER = TREE.host("h0_0_2"), TREE.host("h2_1_3")
PEER_NETNS = "/run/netns/peer"
SECONDS = 2
FLOWS = 16
_PORT = "5201"
SWITCHED = Path(__file__).with_name("switched.o")
_PRIORITY, _HANDLE = 20, 1  # behind the agent's


def join() -> None:
    """Make the peer's namespace and the veth pair."""
    run("ip netns add peer")
    run("ip link add host0 type veth peer name peer0 netns peer")
    for words, name, host in (("ip", "host0", HOST), ("ip -n peer", "peer0", PEER)):
        run(f"{words} link set {name} up")
        for family in TREE.families:  # all hosts are on the link; an address with its length would have a route of its own
            run(f"{words} addr add {family.address(host)} dev {name}{' nodad' if family.number == 6 else ''}")
            run(f"{words} route replace {family.network} dev {name} congctl cubic")
    run("ip -n peer link set lo up")
    run("ethtool -K host0 gro on")
    run("ip netns exec peer ethtool -K peer0 gro on")


def iperf(*options: str, family: Family = IPV4) -> Any:
    """Return what one run of iperf3 reports, which has to go without an error."""
    server = subprocess.Popen(
        ["ip", "netns", "exec", "peer", "iperf3", "-s", "-1", "-p", _PORT, "--forceflush"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if "listening" in line:
                break
        client = ["iperf3", "-c", str(family.address(PEER)), "-p", _PORT, "-t", str(SECONDS), "-J", *options]
        done = subprocess.run(client, capture_output=True, text=True, check=False)
        report = json.loads(done.stdout)
        if "error" in report:
            raise RuntimeError(f"iperf3: {report['error']}")
        return report
    finally:
        server.terminate()
        server.communicate()


def tcp_figures(family: Family = IPV4) -> Figures:
    """Return the throughput in Gbit/s of one and of `FLOWS` flows, and the seconds of all processors per Gbit."""
    figures: Figures = {}
    for flows in (1, FLOWS):
        busy = busy_seconds()
        bits = iperf("-P", str(flows), family=family)["end"]["sum_received"]["bits_per_second"] * SECONDS
        figures |= {f"tcp_{flows}_gbit": bits / SECONDS / 1e9, f"cpu_{flows}": (busy_seconds() - busy) / (bits / 1e9)}
    return figures


def run(command: str) -> None:
    """Run a command, which has to succeed."""
    subprocess.run(command.split(), check=True)


@contextmanager
def at_egress(ifname: str, program: int) -> Iterator[None]:
    """Have a program at tc egress of an interface of this namespace, behind the agent's."""
    ifindex = socket.if_nametoindex(ifname)
    created = tc.create_clsact(ifindex)
    tc.attach(ifindex, program, handle=_HANDLE, priority=_PRIORITY, replace=False)
    try:
        yield
    finally:
        tc.detach(ifindex, handle=_HANDLE, priority=_PRIORITY)
        if created:
            tc.destroy_clsact(ifindex)


@contextmanager
def switched(ifname: str) -> Iterator[None]:
    """Write over the hops of labels that leave by an interface of this namespace, as switches do; look at other packets only."""
    build([SWITCHED])
    with libbpf.Object(SWITCHED) as program, at_egress(ifname, program.program_fd("switched")):
        yield
