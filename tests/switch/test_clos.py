"""Fabrics that are no fat-trees, in real Open vSwitch: packets traced through the rules that the controller installed."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flowrules.hashed_way import hashed_way
from flowrules.vswitch_hash import FiveTuple
from sopa_ryu.cli.local_switches import way_of
from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.random_fabrics import some_pairs
from tests.helpers.waiting import eventually
from topologies import Clos, Failures, Host, Level

pytestmark = pytest.mark.switch

OUTSIDE = "198.51.100.7"
FABRICS = {
    "leaf-spine": Clos(  # whose leaves have twice as much to one spine as to the other
        pods=1,
        edges=4,
        aggregations=2,
        cores=0,
        hosts=3,
        mbit={"host": 10000, "edge": 10000},
        links={f"e0_{leaf}-a0_1": 5000 for leaf in range(4)},
        gateways=["h0_1_2", "h0_2_2", "h0_2_3"],
    ),
    "irregular": Clos(  # and oversubscribed
        pods=3,
        edges=3,
        aggregations=2,
        cores=4,
        hosts=4,
        links={"e0_0-a0_0": "absent", "a1_1-c1_1": "absent", "e2_2-a2_1": "absent"},
        gateways=["h0_0_2", "h1_1_4", "h2_0_2", "h2_1_3"],
    ),
}
FLOWS = 25
"""Of each fabric and each state of it, whose way is compared with the computed one."""


@pytest.fixture(scope="module", params=FABRICS)
def clos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(FABRICS[request.param], tmp_path_factory.mktemp("fabric"), "--sopa-hold-down=0") as fabric:
        yield fabric


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


def test_the_controller_says_what_fabric_it_has(clos: Fabric) -> None:
    tree, body = clos.tree, clos.controller.fabric()
    assert [body[name] for name in ("k", "pods", "edges", "aggregations", "cores", "hosts_per_edge")] == [
        None,
        *tree.shape,
    ]
    assert body["hosts"] == tree.host_count
    assert sum(body["switches"].values()) == body["connected"] == tree.switch_count
    assert not body["failures"]
    assert not body["rejected"]
    assert clos.controller.get("/links").json()["total"] == tree.host_count + tree.switch_link_count


def test_a_labelled_packet_passes_exactly_the_hops_of_its_candidate_path(clos: Fabric) -> None:
    tree = clos.tree
    for src, dst in some_pairs(tree, 5):
        body = clos.controller.get("/paths", src=str(tree.ip(src)), dst=str(tree.ip(dst))).json()
        assert [tuple(one["up"]) for one in body["candidates"]] == list(tree.choices_between(src, dst))
        for candidate in body["candidates"]:
            way = clos.walk(tree.name(src), packet(clos, src, dst, tuple(candidate["up"])))
            assert way == [*candidate["hops"], tree.name(dst)]


def test_a_packet_arrives_by_a_candidate_path_whatever_its_label(clos: Fabric) -> None:
    tree = clos.tree
    for src, dst in some_pairs(tree, 5, seed=2):
        paths = {path.hops for path in tree.candidate_paths(src, dst)}
        for up in (None, (0, 0), (tree.aggregations, 0), (tree.aggregations - 1, tree.cores_of_group), (0xFE, 0xFE)):
            way = clos.walk(tree.name(src), packet(clos, src, dst, up))
            assert (way[-1] == tree.name(dst) and tuple(way[:-1]) in paths) or not paths


def test_packets_keep_off_a_failed_link(clos: Fabric) -> None:
    tree, choose = clos.tree, random.Random(3)
    link = choose.choice(list(tree.switch_links()))
    name = tree.name(link)
    failures = Failures(tree, {name: "down"})
    edge = link.lower if link.lower.level is Level.EDGE else tree.switch(f"e{link.lower.pod}_0")
    src = next(tree.hosts_of(edge))
    with without(clos, [name]):
        for dst in (host for host in tree.hosts() if host != src):
            usable, _ = failures.split(src, dst)
            for up in (None, *(path.up for path in tree.candidate_paths(src, dst))):
                way = clos.walk(tree.name(src), packet(clos, src, dst, up))
                assert tuple(way[:-1]) in {path.hops for path in usable} or not usable


def out(fabric: Fabric, src: Host, up: tuple[int, ...] | None = None, rest: str = "tcp") -> str:
    return re.sub("nw_dst=[0-9.]+", f"nw_dst={OUTSIDE}", packet(fabric, src, src, up, rest))


def senders(tree: Clos) -> list[Host]:
    return [host for host in tree.hosts() if host not in tree.gateways]


def away(fabric: Fabric, gateway: Host, gone: bool) -> None:
    """Take the carrier of a gateway's port away or give it back, and wait until every switch has the rules of that."""
    tree = fabric.tree
    edge = tree.edge_of(gateway)
    fabric.dummy.set_port(edge, tree.port(edge, gateway), not gone)
    name = tree.name(tree.link(gateway, edge))
    eventually(lambda: name in str(fabric.controller.fabric()["failures"]), gone)
    # a port that goes down may be reported as silent before
    eventually(
        lambda: {each["name"]: each["away"] for each in fabric.controller.fabric()["gateways"]},
        {tree.name(each): f"link {name} down" if gone and each == gateway else None for each in tree.gateways},
    )
    fabric.await_installed()


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_unlabelled_flows_leave_by_all_gateways(clos: Fabric, kind: str) -> None:
    tree = clos.tree
    for src in random.Random(1).sample(senders(tree), 2):
        reached = Counter(
            clos.walk(tree.name(src), f"{out(clos, src, rest=kind)},{kind}_src={port},{kind}_dst=443")[-1]
            for port in range(1024, 1024 + 40 * len(tree.gateways))
        )
        assert set(reached) == {tree.name(gateway) for gateway in tree.gateways}
        assert min(reached.values()) > 10


def test_a_labelled_packet_takes_its_path_to_the_gateway_that_it_names(clos: Fabric) -> None:
    tree = clos.tree
    src = senders(tree)[-1]
    for gateway in tree.gateways:
        for path in tree.candidate_paths(src, gateway):
            flow = out(clos, src, path.up).replace("02:00:00:00:00:01", tree.mac(gateway))
            assert clos.walk(tree.name(src), flow) == [*path.hops, tree.name(gateway)]


def test_the_fragments_between_two_addresses_go_to_one_gateway(clos: Fabric) -> None:
    tree = clos.tree
    src = senders(tree)[0]
    flow = out(clos, src, rest="udp")
    whole = {f"{flow},udp_src={port},udp_dst=53,nw_frag=first" for port in range(1024, 1034)}
    assert len({clos.walk(tree.name(src), each)[-1] for each in (*whole, f"{flow},nw_frag=later")}) == 1


def test_what_comes_in_keeps_its_source_and_the_fabrics_own_addresses_do_not_come_in(clos: Fabric) -> None:
    tree = clos.tree
    gateway, dst = tree.gateways[-1], senders(tree)[0]
    inwards = packet(clos, gateway, dst)
    for source, arrives in ((OUTSIDE, True), (str(tree.ip(gateway)), True), (str(tree.ip(dst)), False)):
        flow = re.sub("nw_src=[0-9.]+", f"nw_src={source}", inwards)
        assert (clos.walk(tree.name(gateway), flow)[-1] == tree.name(dst)) is arrives


def test_the_rules_are_as_intended_and_few_bits_decide_on_a_labelled_packet(clos: Fabric) -> None:
    tree = clos.tree
    for switch in tree.switches():
        assert clos.controller.get(f"/switches/{tree.name(switch)}/rules").json()["right"]
    src = senders(tree)[0]
    gateway = next(each for each in tree.gateways if tree.edge_of(each) != tree.edge_of(src))
    path = tree.candidate_paths(src, gateway)[-1]
    flow = out(clos, src, path.up).replace("02:00:00:00:00:01", tree.mac(gateway))
    edge = tree.edge_of(src)
    said = clos.dummy.trace(edge, f"in_port={tree.port(edge, src)},{flow},tcp_src=7,tcp_dst=9")
    megaflow = re.findall(r"^Megaflow: (.*)$", said, re.MULTILINE)[-1]
    assert "tp_src" not in megaflow
    # the first octet says that it is outside, and bits of its end are read for addresses of the fabric
    assert re.search(r"nw_dst=[\d.]+/255\.0\.0\.\d\b", megaflow)


def test_a_gateway_that_goes_away_moves_its_own_flows_only(clos: Fabric) -> None:
    tree = clos.tree
    src = senders(tree)[0]
    gone = tree.gateways[-1]

    def leaving() -> dict[int, str]:
        flow = out(clos, src, rest="udp")
        return {port: clos.walk(tree.name(src), f"{flow},udp_src={port},udp_dst=53")[-1] for port in range(1024, 1064)}

    before = leaving()
    away(clos, gone, True)
    during = leaving()
    assert tree.name(gone) not in during.values()
    assert {port for port in before if before[port] != during[port]} == {
        port for port in before if before[port] == tree.name(gone)
    }
    labelled = out(clos, src, (0, 0)).replace("02:00:00:00:00:01", tree.mac(gone))
    assert clos.walk(tree.name(src), labelled)[-1] in set(during.values())
    away(clos, gone, False)
    assert leaving() == before


def random_flows(tree: Clos, count: int, seed: int) -> list[tuple[Host, Host, FiveTuple]]:
    choose = random.Random(seed)
    drawn = []
    for src, dst in some_pairs(tree, count, seed):
        protocol = choose.choice((6, 6, 17, 17, 132, 1))
        ports = (0, 0) if protocol == 1 else (choose.randrange(65536), choose.randrange(65536))
        drawn.append((src, dst, FiveTuple(tree.ip(src), tree.ip(dst), protocol, *ports)))
    return drawn


def asked(fabric: Fabric, src: Host, dst: Host, flow: FiveTuple) -> list[str]:
    """The way that Open vSwitch itself gives for the flow."""
    name = {1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"}[flow.protocol]
    ports = "" if flow.protocol == 1 else f",{name}_src={flow.sport},{name}_dst={flow.dport}"
    return fabric.walk(fabric.tree.name(src), packet(fabric, src, dst, rest=name) + ports)


def compare(fabric: Fabric, failures: Failures, seed: int) -> None:
    tree, ways = fabric.tree, set()
    for number, (src, dst, flow) in enumerate(random_flows(tree, FLOWS, seed)):
        way = hashed_way(failures, src, dst, flow)
        if way.up is None:  # no path is left between these racks
            assert not way.reachable
            assert asked(fabric, src, dst, flow)[-1] != tree.name(dst)
            continue
        assert way.up in way.reachable
        hops = [tree.name(switch) for switch in tree.hops(src, dst, way.up)]
        assert asked(fabric, src, dst, flow) == [*hops, tree.name(dst)], (flow, dict(failures))
        if number < 5:  # as the command asks
            assert way_of(tree, src, dst, *flow[2:]) == [*hops, tree.name(dst)]
        ways.add(way.up)
    assert len(ways) > 2


def compare_all(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = fabric.tree
    monkeypatch.setenv("OVS_RUNDIR", str(fabric.ovs.directory))
    compare(fabric, Failures(tree), seed=1)
    failed = random.Random(2).sample([tree.name(link) for link in tree.switch_links()], 2)
    with without(fabric, failed):
        compare(fabric, Failures(tree, dict.fromkeys(failed, "down")), seed=3)


def test_a_computed_way_is_that_of_open_vswitch_with_and_without_failures(
    clos: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_all(clos, monkeypatch)


def test_a_computed_way_in_a_fat_tree_is_that_of_open_vswitch(shared: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    compare_all(shared, monkeypatch)


def test_unlabelled_flows_follow_the_weights(clos: Fabric) -> None:
    """The ``bundle`` action hashes over the places in its list, so that a port which is there twice has twice as many flows."""
    tree, flows = clos.tree, 600
    src, dst = tree.host("h0_1_3"), tree.host("h0_3_3" if tree.pods == 1 else "h1_2_3")
    edge = tree.edge_of(src)
    taken = Counter(
        clos.trace(edge, f"in_port={tree.port(edge, src)},{packet(clos, src, dst)},tp_src={port},tp_dst=80").ports[0]
        for port in range(10_000, 10_000 + flows)
    )
    shares: Counter[int] = Counter()
    for path in clos.controller.get("/paths", src=tree.name(src), dst=tree.name(dst)).json()["candidates"]:
        shares[tree.uplink_port(edge.level, path["up"][0])] += path["weight"]
    assert sorted(shares.values())[0] < 0.4  # they are not equal
    for port, share in shares.items():
        # four standard deviations of a binomial distribution
        assert taken[port] / flows == pytest.approx(share, abs=0.08), taken
