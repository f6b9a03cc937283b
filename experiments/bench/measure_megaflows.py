"""Megaflows of a switch: how many decisions Open vSwitch caches for labelled flows, at an edge, an aggregation and a core switch.

The dummy datapath has the same masks as the kernel's: both get them from the same translation of the rules.
"""

from __future__ import annotations

import random
import socket
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from ryu.ofproto import ofproto_v1_3
from ryu.ofproto.ofproto_protocol import ProtocolDesc

from flowrules import label
from flowrules.model import SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.southbound.openflow import flow_mod, group_mod
from topologies import Clos, FatTree, Host, Level, Switch
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.structure import GATEWAY_MAC

SIZES = (8, 48)
SWITCHES = ("e0_0", "a0_0", "c0_0")
FLOWS = 100
FLOW_LIMIT = 200_000  # other_config:flow-limit, Open vSwitch's default
KINDS = {"tcp": (6,), "tcp, udp and icmp": (6, 17, 1)}
_L4 = {6: "tcp(src={0},dst={1})", 17: "udp(src={0},dst={1})", 1: "icmp(type=8,code=0)"}
_AT_A_TIME = 200
_BARRIER_REPLY, _HEADER = 21, struct.Struct("!BBHI")


def measure() -> dict[str, Any]:
    """Send each of `FLOWS` flows over all its paths through one switch of each level, and count the megaflows.

    Half of the flows go up through an edge or aggregation switch, the others down; all are between pods.

    Returns:
        Megaflows by size, switch and kinds of flows, and Open vSwitch's ``flow_limit``.
    """
    found: dict[str, Any] = {}
    for k in SIZES:
        tree = FatTree(k)
        switches = [tree.switch(name) for name in SWITCHES]
        with tempfile.TemporaryDirectory() as directory, PrivateOvs(Path(directory), dummy=True) as ovs:
            ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=3600000")
            dummy = DummyFabric(tree, ovs, switches=switches)
            for switch in switches:
                _install(ovs.directory / f"{tree.name(switch)}.mgmt", switch_rules(tree, switch))
                for kind, protocols in KINDS.items():
                    ovs.appctl("revalidator/purge")
                    _send(dummy, switch, zip(_flows(tree, switch), cycle(protocols), strict=False))
                    lines = ovs.appctl("dpctl/dump-flows").splitlines()
                    found[f"k={k} {tree.name(switch)} {kind}"] = sum("recirc_id" in line for line in lines)
    return {**found, "flows": FLOWS, "flow_limit": FLOW_LIMIT}


def _flows(tree: Clos, switch: Switch) -> Iterator[tuple[Host, Host]]:
    """Yield the ends of flows through a switch, by turns upwards and downwards."""
    draw = random.Random(f"{tree.k} {switch}")
    hosts = list(tree.hosts())
    below = [
        host for host in hosts if switch in (tree.edge_of(host), Switch(Level.AGGREGATION, host.pod, switch.index))
    ]
    for number in range(FLOWS):
        here = draw.choice(below or hosts)
        there = draw.choice([host for host in hosts if host.pod != here.pod])
        yield (here, there) if number % 2 else (there, here)


def _send(dummy: DummyFabric, switch: Switch, flows: Iterable[tuple[tuple[Host, Host], int]]) -> None:
    """Send one packet of each flow over each of its paths through a switch."""
    tree, name, draw = dummy.tree, dummy.tree.name(switch), random.Random(1)
    by_port: dict[int, list[str]] = defaultdict(list)
    for (src, dst), protocol in flows:
        ports = draw.randrange(1024, 65536), draw.randrange(1024, 65536)
        for path in tree.candidate_paths(src, dst):
            if name in path.hops:
                position = path.hops.index(name)
                before = tree.switch(path.hops[position - 1]) if position else src
                by_port[tree.port(switch, before)].append(
                    f"in_port(0),eth(src={label.carrier_mac(path.up)},dst={GATEWAY_MAC}),eth_type(0x0800),"
                    f"ipv4(src={tree.ip(src)},dst={tree.ip(dst)},proto={protocol},tos=0,ttl=64,frag=no),"
                    + _L4[protocol].format(*ports)
                )
    for port, packets in by_port.items():
        for start in range(0, len(packets), _AT_A_TIME):
            dummy.ovs.appctl(
                "netdev-dummy/receive", dummy.interface(switch, port), *packets[start : start + _AT_A_TIME]
            )


def _install(channel: Path, rules: SwitchRules) -> None:
    """Install the rules of a switch over its management socket, and wait until they are in force."""
    datapath = ProtocolDesc(ofproto_v1_3.OFP_VERSION)
    parser = datapath.ofproto_parser
    messages = [parser.OFPHello(datapath)]
    messages += [group_mod(datapath, group, ofproto_v1_3.OFPGC_ADD) for group in rules.groups]
    messages += [flow_mod(datapath, flow, 1) for flow in rules.flows]
    messages.append(parser.OFPBarrierRequest(datapath))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(channel))
        for message in messages:
            message.set_xid(1)
            message.serialize()
            sock.sendall(message.buf)
        with sock.makefile("rb") as answers:
            kind = 0
            while kind != _BARRIER_REPLY:
                _, kind, length, _ = _HEADER.unpack(answers.read(_HEADER.size))
                answers.read(length - _HEADER.size)
