"""Packets traced through the rules that the controller installed in real Open vSwitch, in fabrics of all kinds.

That the rules themselves lead every packet right is shown by `tests/unit/flowrules`, on tables in memory.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from flowrules.hashed_way import FiveTuple, hashed_way
from sopa_ryu.cli.trace import way_of
from tests.helpers.fabrics import Fabric, of_each_family, packet, running
from tests.helpers.hostile import denied
from tests.helpers.random_fabrics import pairs_of_each_kind, some_pairs, ways_up
from tests.helpers.waiting import eventually
from topologies import Clos, Failures, FatTree, Host, Level, Switch
from topologies.fabric_file import load
from topologies.identity import PREFIX6, Family
from topologies.structure import BFD_MAC, GATEWAY_MAC, TURN_MAC

pytestmark = pytest.mark.switch

OUTSIDE = "198.51.100.7"
FABRICS = {
    **{f"k={k}": FatTree(k, str(PREFIX6)) for k in (4, 6, 8)},
    **{file.stem: load(file) for file in sorted(Path(__file__).parent.glob("fabrics/*.yaml"))},
}
ICMP = {4: 1, 6: 58}
FLOWS = 25
"""Of each fabric, each family and each state, whose way is compared with the computed one."""
SRC, DST = Host(0, 0, 2), Host(1, 0, 2)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Fabric]]:
    with ExitStack() as stack:

        @cache
        def start(name: str) -> Fabric:
            its = running(FABRICS[name], tmp_path_factory.mktemp("fabric"), "--sopa-hold-down=0")
            return stack.enter_context(its)

        yield start


@pytest.fixture
def fabric(shared: Fabric) -> Fabric:
    return shared


@pytest.fixture(params=[name for name in FABRICS if name != "k=8"])
def every(request: pytest.FixtureRequest, started: Callable[[str], Fabric]) -> Fabric:
    return started(request.param)


fattrees = pytest.mark.parametrize("every", ["k=4", "k=6"], indirect=True)


@pytest.fixture(params=["leaf-spine", "irregular"])
def clos(request: pytest.FixtureRequest, started: Callable[[str], Fabric]) -> Fabric:
    return started(request.param)


@pytest.mark.parametrize("every", FABRICS, indirect=True)
def test_a_labelled_packet_passes_the_hops_of_its_candidate_path_and_any_other_those_of_some(every: Fabric) -> None:
    tree = every.tree
    for src, dst in pairs_of_each_kind(tree, 2):
        for family, kind in zip(tree.families, of_each_family(tree), strict=True):
            ends = {"src": str(family.address(src)), "dst": str(family.address(dst))}
            body = every.controller.get("/paths", **ends).json()
            assert body.items() >= ends.items()
            assert [tuple(one["up"]) for one in body["candidates"]] == list(tree.choices_between(src, dst))
            for candidate in body["candidates"]:
                way = every.walk(tree.name(src), packet(every, src, dst, tuple(candidate["up"]), kind))
                assert way == [*candidate["hops"], tree.name(dst)]
            *way, last = every.walk(tree.name(src), packet(every, src, dst, rest=kind))
            assert last == tree.name(dst)
            assert way in [candidate["hops"] for candidate in body["candidates"]]


@pytest.mark.parametrize("every", FABRICS, indirect=True)
def test_a_self_probe_turns_at_the_switch_that_its_ports_lead_to(every: Fabric) -> None:
    tree = every.tree
    src = next(host for host in tree.hosts() if host not in tree.gateways)
    for ports, upwards in ways_up(tree, tree.edge_of(src)):
        probe = packet(every, src, src, ports, "udp").replace(GATEWAY_MAC, TURN_MAC)
        assert every.walk(tree.name(src), probe) == [*upwards, *upwards[-2::-1], tree.name(src)]


@fattrees
def test_each_switch_on_the_way_up_writes_over_the_hop_that_it_has_read_alone(every: Fabric) -> None:
    tree = every.tree
    last = tree.half - 1
    edge, flow = tree.edge_of(SRC), packet(every, SRC, DST, (last, last))
    lower = every.trace(edge, f"in_port=1,{flow}")
    assert lower.source == f"02:53:9e:04:ff:{last:02x}"
    # set bits are matched: a megaflow for each label, if these were more than the hop's
    assert "src=02:53:9e:04:ff:00/ff:ff:ff:ff:ff:00" in lower.actions
    above = tree.switch(f"a0_{last}")
    upper = every.trace(above, f"in_port=1,{flow}".replace(f"04:{last:02x}:", "04:ff:"))
    assert upper.source == "02:53:9e:04:ff:ff"
    assert "src=02:53:9e:04:00:ff/ff:ff:ff:ff:00:ff" in upper.actions
    # and the last one the host's own address
    delivered = every.trace(tree.edge_of(DST), f"in_port={tree.uplink_port(Level.EDGE, 0)},{flow}")
    assert (delivered.ports, delivered.destination) == ([1], tree.mac(DST))


def test_the_edge_switch_answers_arp_by_itself_but_no_host_that_announces_its_own_address(fabric: Fabric) -> None:
    mac = fabric.tree.mac(SRC)
    request = f"in_port=1,arp,dl_src={mac},dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_sha={mac}"
    for sender, target, answered in (
        ("10.0.0.2", "10.0.0.1", True),
        ("10.0.0.2", "10.0.0.3", True),
        ("10.0.0.3", "10.0.0.2", True),
        ("10.0.0.2", "10.3.0.2", True),
        ("10.0.0.2", "10.0.0.2", False),
        ("0.0.0.0", "10.0.0.2", False),
    ):
        traced = fabric.trace(fabric.tree.edge_of(SRC), f"{request},arp_spa={sender},arp_tpa={target}")
        assert traced.ports == [1] * answered
        for what in (f"sip={target}", f"tip={sender}", "op=2", "sha=02:00:00:00:00:01", f"tha={mac}"):
            assert (what in traced.actions) is answered


@fattrees
def test_what_switches_would_take_for_their_own_ends_at_the_hosts_port(every: Fabric) -> None:
    for flow in denied(every, SRC, DST):
        traced = every.trace(every.tree.edge_of(SRC), f"in_port=1,{flow}")
        assert (traced.ports, traced.actions) == ([], "drop"), flow


def depends_on(fabric: Fabric, switch: Switch, flow: str) -> str:
    """The bits of a packet that Open vSwitch's decision depends on: what it would cache as a megaflow."""
    return re.findall(r"^Megaflow: (.*)$", fabric.dummy.trace(switch, flow), re.MULTILINE)[-1]


@fattrees
@pytest.mark.parametrize("kind", ["tcp", "udp", "icmp"])
def test_few_bits_decide_on_a_labelled_packet(every: Fabric, kind: str) -> None:
    tree = every.tree
    dst = Host(tree.pods - 1, 1, 3)
    flow = packet(every, SRC, dst, (1, 0), rest=kind)
    names = ["e0_0", "a0_1", "c1_0", f"a{dst.pod}_1", f"e{dst.pod}_1"]
    downwards = tree.port(tree.switch("c1_0"), tree.switch("a0_1"))
    ports = [1, 1, downwards, tree.uplink_port(Level.EDGE, 0), tree.uplink_port(Level.EDGE, 1)]
    edge, aggregation, *down = (
        depends_on(every, tree.switch(name), f"in_port={port},{flow}") for name, port in zip(names, ports, strict=True)
    )
    # of the label, the hop of the level; of the destination, a prefix, and at the edge bits of its end that say that it is a host's
    assert "dl_src=02:53:9e:04:01:00/ff:ff:ff:ff:ff:00" in edge
    assert "dl_src=02:53:9e:04:00:00/ff:ff:ff:ff:00:ff" in aggregation
    [[end]] = [re.findall(r"nw_dst=[\d.]+/\d+\.\d+\.\d+\.(\d+)", edge)]
    assert int(end) & (int(end) - 1) == 0 or tree.half > 2
    assert int(end) < 1 << (tree.half + 1).bit_length()
    for its in (aggregation, *down):
        assert "nw_ttl" not in its
        assert "_dst=0x" not in its
        assert kind not in its or not re.search(r"tp_|udp_|tcp_", its), its
    for its in down:
        assert "dl_src" not in its
        assert "nw_src" not in its
    assert re.search(r"nw_dst=[\d.]+/(1\d|9)\b", aggregation)


def test_no_decision_of_one_version_covers_that_of_another(fabric: Fabric) -> None:
    """Open vSwitch's userspace datapath may mend the wrong one of two cached decisions, so it has to make the decision anew.

    It does so if the mask of what the decision depends on has other bits; also at ports with BFD, where it depends on the whole
    Ethernet address of the destination (docs/platform.md).
    """
    tree, ovs = fabric.tree, fabric.ovs
    edge, above = tree.switch("e0_0"), tree.switch("a0_0")

    flow = f"in_port=1,{packet(fabric, SRC, Host(2, 0, 2), (0, 0))}"

    def mask(switch: Switch) -> int:
        found = re.search(r"pkt_mark=0/(0x[0-9a-f]+)", depends_on(fabric, switch, flow))
        return int(found[1], 16) if found else 0

    def renewed(switch: Switch, before: int) -> None:
        """Wait for another mask; both entries stand for a moment."""
        eventually(lambda: mask(switch), lambda now: bool(before & ~now and now & ~before))

    healthy = mask(edge)
    ovs.vsctl("set", "Interface", "a0_0-eth1", "bfd:enable=true", f"bfd:bfd_remote_dst_mac={BFD_MAC}")
    try:
        renewed(edge, healthy)  # since the link has failed
        before = mask(above)
        assert "dl_dst=02:00:00:00:00:01," in depends_on(fabric, above, flow)
        fabric.dummy.set_port(above, 3, up=False)
        renewed(above, before)
    finally:
        fabric.dummy.set_port(above, 3, up=True)
        ovs.vsctl("clear", "Interface", "a0_0-eth1", "bfd")
        fabric.fails({})


OWN, GATEWAY = PREFIX6[2], PREFIX6[1]
ND = "eth_type(0x86dd),ipv6(src={own},dst={to},label=0,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type={kind},code=0)"
SENDS = {
    "arp": "dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=10.0.0.2,tip=10.0.0.3,op=1,sha={0},tha=00:00:00:00:00:00)",
    "solicitation": f"dst=33:33:ff:00:00:01),{ND.format(own=OWN, to='ff02::1:ff00:1', kind=135)},"
    f"nd(target={GATEWAY},sll={{0}},tll=00:00:00:00:00:00)",
    "advertisement": f"dst=33:33:00:00:00:01),{ND.format(own=OWN, to='ff02::1', kind=136)},"
    f"nd(target={OWN},sll=00:00:00:00:00:00,tll={{0}})",
}


@pytest.mark.parametrize(("every", "kind"), [("k=4", "arp"), *(("k=6", kind) for kind in SENDS)], indirect=["every"])
def test_a_port_learns_no_more_than_eight_times_a_second(every: Fabric, kind: str) -> None:
    """However many senders its messages have; the last one of a slow host is learned."""

    def request(*senders: str) -> None:
        frames = [f"in_port(1),eth(src={sender},{SENDS[kind].format(sender)}" for sender in senders]
        every.ovs.appctl("netdev-dummy/receive", "e0_0-eth1", *frames)

    for number in range(0, 200, 4):
        request(*(f"02:99:00:00:00:{each:02x}" for each in range(number, number + 4)))
    entries = every.ovs.ofctl("dump-flows", "e0_0", "cookie=0x5000000000000000/-1").splitlines()[1:]
    assert len([line for line in entries if "table=4" in line]) == 1
    assert len(entries) <= 9  # however fast they came
    learned = "priority=2,arp" if kind == "arp" else "priority=2,icmp6"
    eventually(lambda: learned in every.ovs.ofctl("dump-flows", "e0_0", "table=5"), False)
    request("02:99:00:00:01:07")
    eventually(lambda: "load:0x29900000107" in every.ovs.ofctl("dump-flows", "e0_0", "table=4"), True)
    assert every.controller.get("/switches/e0_0/rules").json()["right"]
    every.ovs.ofctl("del-flows", "e0_0", "cookie=0x5000000000000000/-1")


# -- packets to and from the outside --------------------------------------------------------------------------------


def out(fabric: Fabric, src: Host, up: tuple[int, ...] | None = None, rest: str = "tcp") -> str:
    return re.sub("nw_dst=[0-9.]+", f"nw_dst={OUTSIDE}", packet(fabric, src, src, up, rest))


def senders(tree: Clos) -> list[Host]:
    return [host for host in tree.hosts() if host not in tree.gateways]


def test_the_fragments_between_two_addresses_go_to_one_gateway(clos: Fabric) -> None:
    tree = clos.tree
    src = senders(tree)[0]
    flow = out(clos, src, rest="udp")
    whole = {f"{flow},udp_src={port},udp_dst=53,nw_frag=first" for port in range(1024, 1034)}
    assert len({clos.walk(tree.name(src), each)[-1] for each in (*whole, f"{flow},nw_frag=later")}) == 1


def test_the_rules_are_as_intended_and_few_bits_decide_on_a_labelled_packet(clos: Fabric) -> None:
    tree = clos.tree
    for switch in tree.switches():
        assert clos.controller.get(f"/switches/{tree.name(switch)}/rules").json()["right"]
    src = senders(tree)[0]
    gateway = next(each for each in tree.gateways if tree.edge_of(each) != tree.edge_of(src))
    path = tree.candidate_paths(src, gateway)[-1]
    flow = out(clos, src, path.up).replace("02:00:00:00:00:01", tree.mac(gateway))
    assert clos.walk(tree.name(src), flow) == [*path.hops, tree.name(gateway)]
    edge = tree.edge_of(src)
    said = clos.dummy.trace(edge, f"in_port={tree.port(edge, src)},{flow},tcp_src=7,tcp_dst=9")
    megaflow = re.findall(r"^Megaflow: (.*)$", said, re.MULTILINE)[-1]
    assert "tp_src" not in megaflow
    # the first octet says that it is outside, and bits of its end are read for addresses of the fabric
    assert re.search(r"nw_dst=[\d.]+/255\.0\.0\.\d\b", megaflow)


# -- ways that the controller computes ------------------------------------------------------------------------------


@contextmanager
def without(fabric: Fabric, names: list[str]) -> Iterator[None]:
    """Take links between switches away, and give them back."""
    for name in names:
        fabric.set_link(name, False)
    fabric.fails(dict.fromkeys(names, "down"))
    yield
    for name in names:
        fabric.set_link(name, True)
    fabric.fails({})


def random_flows(tree: Clos, family: Family, count: int, seed: int) -> list[tuple[Host, Host, FiveTuple]]:
    choose = random.Random(seed)
    drawn = []
    for src, dst in some_pairs(tree, count, seed):
        protocol = choose.choice((6, 6, 17, 17, 132, ICMP[family.number]))
        ports = (0, 0) if protocol in ICMP.values() else (choose.randrange(65536), choose.randrange(65536))
        drawn.append((src, dst, FiveTuple(family.address(src), family.address(dst), protocol, *ports)))
    return drawn


def asked(fabric: Fabric, src: Host, dst: Host, flow: FiveTuple, family: Family) -> list[str]:
    """The way that Open vSwitch itself gives for the flow."""
    name = {6: "tcp", 17: "udp", 132: "sctp"}.get(flow.protocol, "icmp")
    ports = "" if name == "icmp" else f",{name}_src={flow.sport},{name}_dst={flow.dport}"
    kind = name if family.number == 4 else f"{name}6"
    return fabric.walk(fabric.tree.name(src), packet(fabric, src, dst, rest=kind) + ports)


def compare(fabric: Fabric, failures: Failures, family: Family, seed: int) -> None:
    tree, ways = fabric.tree, set()
    for number, (src, dst, flow) in enumerate(random_flows(tree, family, FLOWS, seed)):
        way = hashed_way(failures, src, dst, flow)
        if way.up is None:  # no path is left between these racks
            assert not way.reachable
            assert asked(fabric, src, dst, flow, family)[-1] != tree.name(dst)
            continue
        assert way.up in way.reachable
        hops = [tree.name(switch) for switch in tree.hops(src, dst, way.up)]
        assert asked(fabric, src, dst, flow, family) == [*hops, tree.name(dst)], (flow, dict(failures))
        if number < 5:  # as the command asks
            assert way_of(tree, src, flow) == [*hops, tree.name(dst)]
        ways.add(way.up)
    assert len(ways) > 2


def test_a_computed_way_is_that_of_open_vswitch(every: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = every.tree
    monkeypatch.setenv("OVS_RUNDIR", str(every.ovs.directory))
    for family in tree.families:
        compare(every, Failures(tree), family, seed=1)
    # all ways are taken: polarised hashing would leave most core switches without any (docs/platform.md, section 1)
    src, *_, dst = tree.hosts()
    choices = tree.choices_between(src, dst)
    flows = [FiveTuple(tree.ip(src), tree.ip(dst), 17, port, 53) for port in range(1024, 1024 + 30 * len(choices))]
    taken = Counter(hashed_way(Failures(tree), src, dst, flow).up for flow in flows)
    assert set(taken) == set(choices)
    assert all(count > 30 / 4 for count in taken.values())
    failed = random.Random(2).sample([tree.name(link) for link in tree.switch_links()], 2)
    failures = Failures(tree, dict.fromkeys(failed, "down"))
    with without(every, failed):
        for family in tree.families:
            compare(every, failures, family, seed=3)
        for src, dst in some_pairs(tree, 4, seed=4):  # labelled packets keep off the links, too
            usable, _ = failures.split(src, dst)
            for path in tree.candidate_paths(src, dst):
                for kind in of_each_family(tree):
                    way = every.walk(tree.name(src), packet(every, src, dst, path.up, kind))
                    assert tuple(way[:-1]) in {path.hops for path in usable} or not usable
