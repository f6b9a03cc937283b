"""Packets traced through the rules that the controller installed in real Open vSwitch."""

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.waiting import eventually
from topologies import Host, Level, Switch
from topologies.structure import BFD_MAC

pytestmark = pytest.mark.switch


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(6, tmp_path_factory.mktemp("larger")) as its:
        yield its


@pytest.fixture(params=["shared", "larger"], ids=["k=4", "k=6"])
def any_fabric(request: pytest.FixtureRequest) -> Fabric:
    its: Fabric = request.getfixturevalue(request.param)
    return its


@pytest.fixture
def fabric(shared: Fabric) -> Fabric:
    return shared


def sampled_pairs(fabric: Fabric) -> list[tuple[Host, Host]]:
    hosts = list(fabric.tree.hosts())
    choose = random.Random(fabric.tree.k)
    pairs = [(hosts[0], hosts[-1]), (hosts[0], hosts[1]), (hosts[0], hosts[fabric.tree.half])]
    return pairs + [tuple(choose.sample(hosts, 2)) for _ in range(3)]  # type: ignore[misc]


def test_a_labelled_packet_passes_exactly_the_hops_of_its_candidate_path(any_fabric: Fabric) -> None:
    tree = any_fabric.tree
    for src, dst in sampled_pairs(any_fabric):
        body = any_fabric.controller.get("/paths", src=str(tree.ip(src)), dst=str(tree.ip(dst))).json()
        assert body["total"] == len(body["candidates"]) == len(tree.choices(tree.kind(src, dst)))
        for candidate in body["candidates"]:
            way = any_fabric.walk(tree.name(src), packet(any_fabric, src, dst, tuple(candidate["up"])))
            assert way == [*candidate["hops"], tree.name(dst)]


def test_the_last_switch_writes_the_hosts_own_address(fabric: Fabric) -> None:
    tree = fabric.tree
    src, dst = Host(0, 0, 2), Host(1, 0, 2)
    traced = fabric.trace(tree.edge_of(dst), f"in_port={tree.uplink_port(Level.EDGE, 0)},{packet(fabric, src, dst)}")
    assert f"dst={tree.mac(dst)}" in traced.actions
    assert traced.ports == [1]


def test_each_switch_on_the_way_up_writes_over_the_hop_that_it_has_read_and_no_bit_else(any_fabric: Fabric) -> None:
    tree = any_fabric.tree
    src, dst, last = Host(0, 0, 2), Host(1, 0, 2), tree.half - 1
    edge, flow = tree.edge_of(src), packet(any_fabric, src, dst, (last, last))
    lower = any_fabric.trace(edge, f"in_port={tree.port(edge, src)},{flow}")
    assert lower.source == f"02:53:9e:04:ff:{last:02x}"
    # set bits are matched: a megaflow for each label, if these were more than the hop's
    assert "src=02:53:9e:04:ff:00/ff:ff:ff:ff:ff:00" in lower.actions
    above = tree.switch(f"a0_{last}")
    upper = any_fabric.trace(above, f"in_port=1,{flow}".replace(f"04:{last:02x}:", "04:ff:"))
    assert upper.source == "02:53:9e:04:ff:ff"
    assert "src=02:53:9e:04:00:ff/ff:ff:ff:ff:00:ff" in upper.actions


def test_no_switch_has_more_entries_than_documented(any_fabric: Fabric) -> None:
    for name in ("e0_0", "a0_0", "c0_0"):
        assert len(any_fabric.flows(name)) <= 3 * any_fabric.tree.k + 30


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_unlabelled_flows_are_hashed_differently_at_each_level(any_fabric: Fabric, protocol: str) -> None:
    tree = any_fabric.tree
    src, dst = Host(0, 0, 2), Host(2, 1, 3)
    cores: Counter[str] = Counter()
    flows = 30 * tree.half**2
    for port in range(1024, 1024 + flows):
        flow = packet(any_fabric, src, dst, rest=protocol) + f",{protocol}_src={port},{protocol}_dst=5201"
        (up1,) = any_fabric.trace(tree.edge_of(src), f"in_port=1,{flow}").ports
        above = tree.neighbour(tree.edge_of(src), up1)
        (up2,) = any_fabric.trace(above, f"in_port=1,{flow}").ports  # type: ignore[arg-type]
        cores[tree.name(tree.neighbour(above, up2))] += 1  # type: ignore[arg-type]
    # polarised hashing would leave all but k/2 of them without any (docs/platform.md, section 1)
    assert len(cores) == tree.half**2
    assert min(cores.values()) > 30 / 4


def test_a_spoofed_source_is_dropped_at_the_first_switch(fabric: Fabric) -> None:
    tree = fabric.tree
    liar, victim, dst = Host(0, 0, 2), Host(0, 0, 3) if tree.k > 2 else Host(1, 0, 2), Host(1, 0, 2)
    for up in (None, (0, 0)):
        assert fabric.walk(tree.name(liar), packet(fabric, victim, dst, up)) == ["e0_0"]


@pytest.mark.parametrize("up", [(250, 250), (0, 200), (200, 0)])
def test_a_word_out_of_range_still_arrives(fabric: Fabric, up: tuple[int, int]) -> None:
    src, dst = Host(0, 0, 2), Host(1, 0, 2)
    assert fabric.walk("h0_0_2", packet(fabric, src, dst, up))[-1] == "h1_0_2"


def test_what_came_down_never_goes_up_again(fabric: Fabric) -> None:
    tree = fabric.tree
    flow = packet(fabric, Host(1, 0, 2), Host(2, 0, 2), (0, 0))
    for name in ("e0_0", "a0_0"):
        assert fabric.trace(tree.switch(name), f"in_port={tree.uplink_port(Level.EDGE, 0)},{flow}").ports == []


def test_the_edge_switch_answers_arp_by_itself(fabric: Fabric) -> None:
    tree = fabric.tree
    src = Host(0, 0, 2)
    request = f"in_port=1,arp,dl_src={tree.mac(src)},dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_sha={tree.mac(src)},arp_spa=10.0.0.2"
    for target in ("10.0.0.1", "10.0.0.3", f"10.{tree.k - 1}.0.2"):
        traced = fabric.trace(tree.edge_of(src), f"{request},arp_tpa={target}")
        assert traced.ports == [1]
        for what in (f"sip={target}", "tip=10.0.0.2", "op=2", "sha=02:00:00:00:00:01", f"tha={tree.mac(src)}"):
            assert what in traced.actions
    assert (
        fabric.trace(tree.edge_of(src), request.replace("spa=10.0.0.2", "spa=0.0.0.0") + ",arp_tpa=10.0.0.2").ports
        == []
    )


DENIED = [
    *(f"udp,udp_dst={port},nw_ttl={ttl}" for port in (3784, 3785, 4784, 6784, 7784, 7785) for ttl in (1, 64, 255)),
    "udp,nw_frag=first,nw_ttl=255",
    "tcp,dl_dst=02:53:4f:50:41:01",
    "udp,dl_dst=02:53:4f:50:41:01,nw_frag=later",
    *(f"tcp,dl_dst=01:80:c2:00:00:{last:02x}" for last in (0x00, 0x02, 0x03, 0x0E, 0x21)),
    "tcp,dl_dst=01:23:20:00:00:01",
    *(
        f"tcp,nw_dst=10.{address},tcp_dst={port}"
        for port in (6633, 6640, 6653)
        for address in ("0.0.1", "2.1.1", "200.0.1")
    ),
    "udp,nw_dst=10.1.0.1,udp_dst=4789",
    "udp,nw_dst={core},udp_dst=6081",
    "dl_type=0x8902",
    "dl_type=0x88cc,dl_dst=01:80:c2:00:00:0e",
    "dl_type=0x8809,dl_dst=01:80:c2:00:00:02",
    "udp6,udp_dst=3784,nw_ttl=255",
    "dl_type=0x8847",
]


@pytest.mark.parametrize("label", [None, (0, 0)], ids=["unlabelled", "labelled"])
@pytest.mark.parametrize("vlan", ["", ",dl_vlan=7"], ids=["untagged", "tagged"])
def test_what_switches_would_take_for_their_own_ends_at_the_hosts_port(
    fabric: Fabric, label: tuple[int, int] | None, vlan: str
) -> None:
    tree = fabric.tree
    src, dst = Host(0, 0, 2), Host(1, 0, 2)
    base = dict(word.split("=") for word in packet(fabric, src, dst, label).split(",") if "=" in word)
    for text in DENIED:
        kind, *words = text.format(core=f"10.{tree.k}.1.1").split(",")
        fields = base | dict(word.split("=") for word in words)
        if kind.startswith("dl_type") or kind.endswith("6"):  # no IPv4: these have no such fields
            fields = {name: value for name, value in fields.items() if name.startswith("dl_") or "udp" in name}
        flow = ",".join([kind, *(f"{name}={value}" for name, value in fields.items())])
        traced = fabric.trace(tree.edge_of(src), f"in_port=1,{flow}{vlan}")
        assert (traced.ports, traced.actions) == ([], "drop"), flow


def depends_on(fabric: Fabric, switch: Switch, flow: str) -> str:
    """The bits of a packet that Open vSwitch's decision depends on: what it would cache as a megaflow."""
    return re.findall(r"^Megaflow: (.*)$", fabric.dummy.trace(switch, flow), re.MULTILINE)[-1]


@pytest.mark.parametrize("kind", ["tcp", "udp", "icmp"])
def test_few_bits_decide_on_a_labelled_packet(any_fabric: Fabric, kind: str) -> None:
    tree = any_fabric.tree
    src, dst = Host(0, 0, 2), Host(tree.k - 1, 1, 3)
    flow = packet(any_fabric, src, dst, (1, 0), rest=kind)
    names = ["e0_0", "a0_1", "c1_0", f"a{dst.pod}_1", f"e{dst.pod}_1"]
    ports = [
        1,
        1,
        tree.port(tree.switch("c1_0"), tree.switch("a0_1")),
        tree.uplink_port(Level.EDGE, 0),
        tree.uplink_port(Level.EDGE, 1),
    ]
    said = [
        depends_on(any_fabric, tree.switch(name), f"in_port={port},{flow}")
        for name, port in zip(names, ports, strict=True)
    ]
    edge, aggregation, *down = said
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


def test_what_looks_nearly_like_it_passes(fabric: Fabric) -> None:
    src, dst = Host(0, 0, 2), Host(1, 0, 2)
    plain = packet(fabric, src, dst, (0, 0), rest="udp")
    for change in (
        "udp_dst=3783", "udp_dst=3786", "udp_dst=4783", "udp_dst=4789", "udp_src=3784", "nw_frag=first", "nw_frag=later",
        "tcp_dst=3784", "tcp_dst=6653",
    ):  # fmt: skip
        flow = plain.replace("udp,", "tcp,") if change.startswith("tcp") else plain
        assert fabric.walk("h0_0_2", f"{flow},{change}")[-1] == "h1_0_2", change
    assert fabric.walk("h0_0_2", plain.replace("02:00:00:00:00:01", "02:53:4f:50:41:02"))[-1] == "h1_0_2"
    late = plain.replace("nw_ttl=64", "nw_ttl=255") + ",nw_frag=later"
    assert fabric.walk("h0_0_2", late)[-1] == "h1_0_2"


def test_no_decision_of_one_version_covers_that_of_another(fabric: Fabric) -> None:
    """Open vSwitch's userspace datapath may mend the wrong one of two cached decisions, so it has to make the decision anew.

    It does so if the mask of what the decision depends on has other bits; also at ports with BFD, where it depends on the whole
    Ethernet address of the destination (docs/platform.md).
    """
    tree, ovs = fabric.tree, fabric.ovs
    edge, above = tree.switch("e0_0"), tree.switch("a0_0")

    def depends_on(switch: Switch) -> str:
        said = fabric.dummy.trace(switch, f"in_port=1,{packet(fabric, Host(0, 0, 2), Host(2, 0, 2), (0, 0))}")
        return said.rpartition("Megaflow: ")[2].partition("\n")[0]

    def mask(switch: Switch) -> int:
        found = re.search(r"pkt_mark=0/(0x[0-9a-f]+)", depends_on(switch))
        return int(found[1], 16) if found else 0

    def renewed(switch: Switch, before: int) -> None:
        """Wait for another mask; both entries stand for a moment."""
        eventually(lambda: mask(switch), lambda now: bool(before & ~now and now & ~before))

    healthy = mask(edge)
    ovs.vsctl("set", "Interface", "a0_0-eth1", "bfd:enable=true", f"bfd:bfd_remote_dst_mac={BFD_MAC}")
    try:
        renewed(edge, healthy)  # since the link has failed
        before = mask(above)
        assert "dl_dst=02:00:00:00:00:01," in depends_on(above)
        fabric.dummy.set_port(above, 3, up=False)
        renewed(above, before)
    finally:
        fabric.dummy.set_port(above, 3, up=True)
        ovs.vsctl("clear", "Interface", "a0_0-eth1", "bfd")
        eventually(lambda: fabric.controller.fabric()["failures"], [])


def test_a_host_that_announces_its_address_gets_no_answer(fabric: Fabric) -> None:
    for announced, asked, answered in (
        ("10.0.0.2", "10.0.0.2", []),
        ("10.0.0.2", "10.0.0.3", [1]),
        ("10.0.0.3", "10.0.0.2", [1]),
    ):
        request = "in_port=1,arp,dl_src=02:00:0a:00:00:02,dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_sha=02:00:0a:00:00:02"
        traced = fabric.trace(fabric.tree.switch("e0_0"), f"{request},arp_spa={announced},arp_tpa={asked}")
        assert traced.ports == answered


def test_a_port_learns_no_more_than_eight_times_a_second(fabric: Fabric) -> None:
    """However many senders its ARP requests have; the last one of a slow host is learned."""

    def request(*senders: str) -> None:
        frames = []
        for sender in senders:
            arp = f"arp(sip=10.0.0.2,tip=10.0.0.3,op=1,sha={sender},tha=00:00:00:00:00:00)"
            frames.append(f"in_port(1),eth(src={sender},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),{arp}")
        fabric.ovs.appctl("netdev-dummy/receive", "e0_0-eth1", *frames)

    for number in range(0, 200, 4):
        request(*(f"02:99:00:00:00:{each:02x}" for each in range(number, number + 4)))
    entries = fabric.ovs.ofctl("dump-flows", "e0_0", "cookie=0x5000000000000000/-1").splitlines()[1:]
    assert len([line for line in entries if "table=4" in line]) == 1
    assert len(entries) <= 9  # however fast they came
    eventually(lambda: "priority=2,arp" in fabric.ovs.ofctl("dump-flows", "e0_0", "table=5"), False)
    request("02:99:00:00:01:07")
    eventually(lambda: "load:0x29900000107" in fabric.ovs.ofctl("dump-flows", "e0_0", "table=4"), True)
    assert fabric.controller.get("/switches/e0_0/rules").json()["right"]
    fabric.ovs.ofctl("del-flows", "e0_0", "cookie=0x5000000000000000/-1")


def await_walk(fabric: Fabric, src: Host, flow: str, way: list[str]) -> None:
    """Wait until the switches hold the rules by which a packet goes that way."""
    eventually(lambda: fabric.walk(fabric.tree.name(src), flow), way)


def test_a_label_to_a_core_switch_without_a_way_down_is_ignored(fabric: Fabric) -> None:
    src, dst = Host(0, 0, 2), Host(2, 0, 2)
    named = {path.up: [*path.hops, "h2_0_2"] for path in fabric.tree.candidate_paths(src, dst)}
    fabric.dummy.set_port(fabric.tree.switch("a2_0"), fabric.tree.uplink_port(Level.EDGE, 0), up=False)
    await_walk(fabric, src, packet(fabric, src, dst, (0, 0)), named[0, 1])
    for up in ((0, 1), (1, 0), (1, 1)):
        assert fabric.walk("h0_0_2", packet(fabric, src, dst, up)) == named[up]
    fabric.dummy.set_port(fabric.tree.switch("a2_0"), fabric.tree.uplink_port(Level.EDGE, 0), up=True)
    await_walk(fabric, src, packet(fabric, src, dst, (0, 0)), named[0, 0])


def test_a_label_to_an_aggregation_switch_without_a_way_down_is_ignored(fabric: Fabric) -> None:
    src, cut, other = Host(0, 0, 2), Host(2, 0, 2), Host(2, 1, 2)
    fabric.dummy.set_port(fabric.tree.switch("a2_0"), 1, up=False)
    for core in (0, 1):
        flow = packet(fabric, src, cut, (0, core))
        await_walk(fabric, src, flow, ["e0_0", "a0_1", f"c1_{core}", "a2_1", "e2_0", "h2_0_2"])
        for up1, dst, rack in ((1, cut, "e2_0"), (0, other, "e2_1"), (1, other, "e2_1")):
            way = fabric.walk("h0_0_2", packet(fabric, src, dst, (up1, core)))
            assert way == ["e0_0", f"a0_{up1}", f"c{up1}_{core}", f"a2_{up1}", rack, fabric.tree.name(dst)]
    fabric.dummy.set_port(fabric.tree.switch("a2_0"), 1, up=True)
