"""Rules on Open vSwitch with the dummy datapath: the time to install them, and what a switch caches of them."""

from __future__ import annotations

import random
import re
import socket
import struct
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import cycle, product
from pathlib import Path
from statistics import median

from experiments.bench.frame import Results
from experiments.emulation.processes import ControllerProcess
from flowrules import label
from flowrules.model import SwitchRules
from flowrules.switch_rules import fabric_rules, switch_rules
from sopa_ryu.runtime.library import ProtocolDesc, ofproto_v1_3
from sopa_ryu.southbound.openflow import flow_mod, group_mod
from topologies import Clos, FatTree, Host, Level, Switch
from topologies.identity import PREFIX6, Family
from topologies.lab.private_ovs import DummyFabric, PrivateOvs
from topologies.structure import GATEWAY_MAC

K = 16
_SUMMARY = re.compile(
    r"have their rules: (\d+) flow-mods and group-mods, to the last barrier ([\d.]+) s from the first connect, ([\d.]+) s"
)


def cold_start() -> Results:
    """Start the controller, then all switches, and read the time from the last connect to the last barrier reply from its log.

    ``encode_per_second`` is the baseline: the rate at which Ryu builds and serialises these messages without a switch.
    """
    tree = FatTree(K)
    return {"k": K, **_cold_start(tree), "limit_seconds": 5.0, "encode_per_second": _encode_rate(tree)}


def _cold_start(tree: Clos) -> Results:
    """Start a controller, then all switches of a fabric; return the ``seconds`` and what else its log says of them."""
    with tempfile.TemporaryDirectory() as directory:
        controller = ControllerProcess(tree, Path(directory) / "controller.log")
        # the controller first, so that switches connect immediately instead of after their retry intervals
        with controller, PrivateOvs(Path(directory) / "ovs", dummy=True) as ovs:
            started = time.monotonic()
            DummyFabric(tree, ovs, controller.openflow)
            built = time.monotonic() - started
            controller.wait_connected(tree.switch_count, 120)
            summary = _SUMMARY.search(controller.log.read_text())
    assert summary is not None
    messages, whole, seconds = int(summary[1]), float(summary[2]), float(summary[3])
    return {
        "switches": tree.switch_count,
        "ovs_built_seconds": round(built, 1),
        "messages": messages,
        "seconds": seconds,
        "seconds_from_first_connect": whole,
        "messages_per_second": round(messages / whole),
    }


def _encode_rate(tree: Clos) -> int:
    datapath = ProtocolDesc(ofproto_v1_3.OFP_VERSION)
    flows = [flow for _, rules in fabric_rules(tree) for flow in rules.flows]
    started = time.perf_counter()
    for flow in flows:
        message = flow_mod(datapath, flow, 1)
        message.set_xid(1)
        message.serialize()
    return round(len(flows) / (time.perf_counter() - started))


LEAF_SPINE = Clos(pods=1, edges=32, aggregations=4, cores=0, hosts=48)
BASELINE = FatTree(16)  # 1,024 hosts
REQUESTS = 500
SEED = 1


def leaf_spine() -> Results:
    """Measure both fabrics in the same way: ``cold_start_seconds`` are those of `cold_start`; ``k16_*`` is the baseline."""
    ours, baseline = _measured(LEAF_SPINE), _measured(BASELINE)
    limits = {"limit_rules_seconds": 1.0, "limit_cold_start_seconds": 2.0, "limit_paths_ms": 1.0}
    return {**ours, **limits, **{f"k16_{name}": value for name, value in baseline.items()}}


def _measured(tree: Clos) -> Results:
    started = time.perf_counter()
    all_rules = [rules for _, rules in fabric_rules(tree)]
    seconds = time.perf_counter() - started
    return {
        "switches": tree.switch_count,
        "hosts": tree.host_count,
        "flows": sum(len(rules.flows) for rules in all_rules),
        "rules_seconds": round(seconds, 3),
        "cold_start_seconds": _cold_start(tree)["seconds"],
        "paths_median_ms": round(_paths_ms(tree), 2),
    }


def _paths_ms(tree: Clos) -> float:
    """Return the median time of a request for the candidate paths of two random hosts."""
    draw, hosts, taken = random.Random(f"{SEED} bench leaf-spine"), list(tree.hosts()), []
    # without switches and before settling nothing counts as failed: every answer has all paths
    with (
        tempfile.TemporaryDirectory() as directory,
        ControllerProcess(tree, Path(directory) / "log", options=["--sopa-settle=3600"]) as controller,
        closing(HTTPConnection("127.0.0.1", controller.rest_port)) as client,  # httpx takes as long as the controller
    ):
        for _ in range(REQUESTS):
            src, dst = draw.sample(hosts, 2)
            started = time.perf_counter()
            client.request("GET", f"/sopa/v1/paths?src={tree.ip(src)}&dst={tree.ip(dst)}")
            answer = client.getresponse()
            assert answer.status == HTTPStatus.OK
            answer.read()
            taken.append(1000 * (time.perf_counter() - started))
    return median(taken)


# -- megaflows ------------------------------------------------------------------------------------------------------------

SIZES = (8, 48)
SWITCHES = ("e0_0", "a0_0", "c0_0")
FLOWS = 100
FLOW_LIMIT = 200_000  # other_config:flow-limit, Open vSwitch's default
KINDS = {"tcp": (6,), "tcp, udp and icmp": (6, 17, 1)}
_L3 = {
    4: "eth_type(0x0800),ipv4(src={0},dst={1},proto={2},tos=0,ttl=64,frag=no),",
    6: "eth_type(0x86dd),ipv6(src={0},dst={1},label=0,proto={2},tclass=0,hlimit=64,frag=no),",
}
_L4 = {6: "tcp(src={0},dst={1})", 17: "udp(src={0},dst={1})", 1: "icmp(type=8,code=0)", 58: "icmpv6(type=128,code=0)"}
_AT_A_TIME = 30
"""Packets: the switch takes 32 from a port at a time, and a dummy port drops what is more than 100."""
_SETTLE_SECONDS = 0.5
"""Without another decision: they are cached asynchronously, and nothing tells the last one."""
_FORGET_SECONDS = 30
_BARRIER_REPLY, _HEADER = 21, struct.Struct("!BBHI")


def megaflows() -> Results:
    """Send each of `FLOWS` flows over all its paths through one switch of each level, and count the megaflows.

    Half of the flows go up through an edge or aggregation switch, the others down; all are between pods. The dummy datapath has the
    same masks as the kernel's: both get them from the same translation of the rules.
    """
    counts: Results = {}
    for k in SIZES:
        tree = FatTree(k, str(PREFIX6))
        switches = [tree.switch(name) for name in SWITCHES]
        with tempfile.TemporaryDirectory() as directory, PrivateOvs(Path(directory), dummy=True) as ovs:
            ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=3600000")
            dummy = DummyFabric(tree, ovs, switches=switches)
            for switch in switches:
                _install(ovs.directory / f"{tree.name(switch)}.mgmt", switch_rules(tree, switch))
                for family, (kind, protocols) in product(tree.families, KINDS.items()):
                    _forget(ovs)
                    _send(dummy, switch, family, zip(_flows(tree, switch), cycle(protocols), strict=False))
                    counts[f"k={k} {tree.name(switch)} IPv{family.number} {kind}"] = _settled(ovs)
    return {**counts, "flows": FLOWS, "flow_limit": FLOW_LIMIT}


def _forget(ovs: PrivateOvs) -> None:
    """Have nothing cached; what is still being processed is cached after a purge, so that several may be needed."""
    deadline = time.monotonic() + _FORGET_SECONDS
    while left := _cached(ovs):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Open vSwitch still caches {left} decisions {_FORGET_SECONDS} s after they were purged")
        ovs.appctl("revalidator/purge")
        time.sleep(0.05)


def _settled(ovs: PrivateOvs) -> int:
    before, now = -1, _cached(ovs)
    while now != before:
        time.sleep(_SETTLE_SECONDS)
        before, now = now, _cached(ovs)
    return now


def _cached(ovs: PrivateOvs) -> int:
    return sum("recirc_id" in line for line in ovs.appctl("dpctl/dump-flows").splitlines())


def _flows(tree: Clos, switch: Switch) -> Iterator[tuple[Host, Host]]:
    """Yield the ends of flows through a switch, by turns upwards and downwards."""
    draw = random.Random(f"{tree.k} {switch}")
    hosts = list(tree.hosts())
    below = [host for host in hosts if switch in (tree.edge_of(host), Switch(Level.AGGREGATION, host.pod, switch.index))]
    for number in range(FLOWS):
        near = draw.choice(below or hosts)
        far = draw.choice([host for host in hosts if host.pod != near.pod])
        yield (near, far) if number % 2 else (far, near)


def _send(dummy: DummyFabric, switch: Switch, family: Family, flows: Iterable[tuple[tuple[Host, Host], int]]) -> None:
    """Send one packet of each flow over each of its paths through a switch."""
    tree, name, draw = dummy.tree, dummy.tree.name(switch), random.Random(1)
    by_port: dict[int, list[str]] = defaultdict(list)
    for (src, dst), protocol in flows:
        protocol = 58 if (family.number, protocol) == (6, 1) else protocol
        ports = draw.randrange(1024, 65536), draw.randrange(1024, 65536)
        for path in tree.candidate_paths(src, dst):
            if name in path.hops:
                position = path.hops.index(name)
                before = tree.switch(path.hops[position - 1]) if position else src
                by_port[tree.port(switch, before)].append(
                    f"in_port(0),eth(src={label.carrier_mac(path.up)},dst={GATEWAY_MAC}),"
                    + _L3[family.number].format(family.address(src), family.address(dst), protocol)
                    + _L4[protocol].format(*ports)
                )
    for port, packets in by_port.items():
        for start in range(0, len(packets), _AT_A_TIME):
            dummy.ovs.appctl("netdev-dummy/receive", dummy.interface(switch, port), *packets[start : start + _AT_A_TIME])


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
