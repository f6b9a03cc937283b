"""The way out of a fabric, in tables in memory: packets to addresses outside reach gateways in use, and only these."""

import random
from collections import Counter
from typing import Any

import pytest

from flowrules import label
from flowrules.switch_rules import fabric_rules, switch_rules
from tests.models.flow_table import TableFabric, ipv4_packet
from topologies import Clos, Failures, Host, Level
from topologies.way_out import gateways_from

OUTSIDE = "198.51.100.7"
LEAVES = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=3, gateways=["h0_1_2", "h0_2_2", "h0_2_3"])
PODS = Clos(pods=3, edges=2, aggregations=2, cores=4, hosts=3, gateways=["h0_0_2", "h1_1_4", "h2_0_2", "h2_1_3"])
UNEVEN = Clos(
    *(3, 3, 3, 6, 2),
    gateways=["h0_2_3", "h1_0_2", "h2_2_2"],
    links=dict.fromkeys(["e0_2-a0_0", "a1_1-c1_0", "e2_2-a2_2", "a2_0-c0_1"], "absent"),
)
each_fabric = pytest.mark.parametrize("tree", [LEAVES, PODS, UNEVEN], ids=lambda tree: tree.title)


def out(tree: Clos, src: Host, port: int, **fields: Any) -> dict[str, Any]:
    return ipv4_packet(tree, src, src, **{"ipv4_dst": OUTSIDE, "tcp_src": port, "tcp_dst": 443} | fields)  # type: ignore[arg-type]


def gateway_of(fabric: TableFabric, src: Host, port: int, **fields: Any) -> str | None:
    way, packet = fabric.send(src, out(fabric.tree, src, port, **fields))
    if packet is None:
        return None
    assert packet["ipv4_dst"] == OUTSIDE
    assert packet["eth_dst"] == fabric.tree.mac(fabric.tree.host(way[-1]))
    return way[-1]


def insiders(tree: Clos) -> list[Host]:
    return [host for host in tree.hosts() if host not in tree.gateways]


def drawn_failures(tree: Clos, draw: random.Random) -> Failures:
    links = [tree.name(link) for link in tree.switch_links()]
    links += [tree.name(tree.link(gateway, tree.edge_of(gateway))) for gateway in tree.gateways]
    return Failures(tree, {name: draw.choice(["down", "silent", "drained"]) for name in draw.sample(links, 3)})


@each_fabric
@pytest.mark.parametrize("seed", range(3))
def test_every_flow_leaves_by_a_gateway_in_use_and_each_takes_its_share(tree: Clos, seed: int) -> None:
    failures = drawn_failures(tree, random.Random(seed)) if seed else Failures(tree)
    fabric = TableFabric(tree, fabric_rules(tree, failures), failures.hard)
    for edge in tree.switches(Level.EDGE):
        src = next(host for host in tree.hosts_of(edge) if host not in tree.gateways)
        in_use = {tree.name(gateway) for gateway in gateways_from(failures, edge)}
        reached = Counter(gateway_of(fabric, src, port) for port in range(100))
        assert set(reached) == (in_use or {None})
        assert min(reached.values()) > 100 / len(reached) / 4


def test_a_gateway_that_goes_away_moves_its_own_flows_only_and_they_return() -> None:
    flows = [(src, port) for src in insiders(PODS) for port in range(30)]

    def leaving(away: tuple[str, ...]) -> dict[tuple[Host, int], str | None]:
        down = Failures(PODS, {f"{name}-e{name[1:4]}": "down" for name in away})
        fabric = TableFabric(PODS, fabric_rules(PODS, down), down)
        return {flow: gateway_of(fabric, *flow) for flow in flows}

    before = leaving(())
    for away in (("h1_1_4",), ("h1_1_4", "h0_0_2")):
        after = leaving(away)
        assert {flow for flow in flows if after[flow] != before[flow]} == {flow for flow in flows if before[flow] == away[-1]}
        before = after
    # the one gateway that is left takes all
    assert set(leaving(("h0_0_2", "h1_1_4", "h2_1_3")).values()) == {"h2_0_2"}


@each_fabric
def test_a_packet_that_an_agent_has_labelled_takes_the_path_to_the_gateway_it_names(tree: Clos) -> None:
    fabric = TableFabric(tree, fabric_rules(tree))
    for src in insiders(tree):
        for gateway in tree.gateways:
            for path in tree.candidate_paths(src, gateway):
                fields = {"eth_dst": tree.mac(gateway), "eth_src": label.carrier_mac(path.up)}
                way, packet = fabric.send(src, out(tree, src, 1, **fields))
                assert way == [*path.hops, tree.name(gateway)]
                assert packet


@each_fabric
@pytest.mark.parametrize("seed", range(3))
def test_whatever_ethernet_addresses_a_host_writes_its_packets_leave_by_a_gateway_in_use(tree: Clos, seed: int) -> None:
    draw = random.Random(seed)
    failures = drawn_failures(tree, draw)
    fabric = TableFabric(tree, fabric_rules(tree, failures), failures.hard)
    macs = [tree.mac(host) for host in tree.hosts()] + ["02:00:0a:fe:fe:fe", "02:00:00:00:00:01", "06:11:22:33:44:55"]
    for _ in range(150):
        src = draw.choice(insiders(tree))
        source = draw.choice([None, label.carrier_mac((draw.randrange(4), draw.randrange(4))), "02:53:9e:04:ff:ff"])
        fields = {"eth_dst": draw.choice(macs), **({"eth_src": source} if source else {})}
        in_use = {tree.name(gateway) for gateway in gateways_from(failures, tree.edge_of(src))} or {None}
        assert gateway_of(fabric, src, draw.randrange(1 << 16), **fields) in in_use
        # and those within the fabric arrive where they would, unless they name another gateway
        dst = draw.choice([host for host in tree.hosts() if host != src])
        honest = ipv4_packet(tree, src, dst, **{**fields, "eth_dst": "02:00:00:00:00:01"})  # type: ignore[arg-type]
        for mac in (tree.mac(dst), "02:00:0a:fe:fe:fe", "06:11:22:33:44:55"):
            way, packet = fabric.send(src, {**honest, "eth_dst": mac})
            assert (way, packet) == fabric.send(src, honest)


def test_the_fragments_between_two_hosts_go_to_one_gateway() -> None:
    fabric = TableFabric(PODS, fabric_rules(PODS))
    src = PODS.host("h0_1_2")
    # the table in memory compares ip_frag like any field: 1 is the first fragment's, 3 that of a later one
    assert len({gateway_of(fabric, src, port, ip_frag=frag) for port in range(50) for frag in (1, 3)}) == 1
    one_each = Counter(gateway_of(fabric, src, 1, ip_frag=1, ipv4_dst=OUTSIDE, ip_proto=17) for src in insiders(PODS))
    assert len(one_each) > 1


@each_fabric
def test_from_a_gateway_come_its_own_address_and_all_outside_into_the_fabric_only(tree: Clos) -> None:
    fabric = TableFabric(tree, fabric_rules(tree))
    for gateway in tree.gateways:
        own = str(tree.ip(gateway))
        for dst in set(tree.hosts()) - {gateway}:
            for source in (OUTSIDE, "11.0.0.1", "9.255.255.255", own):
                way, packet = fabric.send(gateway, ipv4_packet(tree, gateway, dst, ipv4_src=source))
                assert packet is not None, (gateway, dst, source)
                assert (way[-1], packet["ipv4_src"]) == (tree.name(dst), source)
            for source in (str(tree.ip(dst)), "10.255.0.9"):
                assert fabric.send(gateway, ipv4_packet(tree, gateway, dst, ipv4_src=source))[1] is None
        for source in (OUTSIDE, own):  # nor does anything go through
            packet = ipv4_packet(tree, gateway, gateway, ipv4_src=source, ipv4_dst="203.0.113.1")
            assert fabric.send(gateway, packet) == ([tree.name(tree.edge_of(gateway))], None)


def test_a_gateway_without_the_right_to_label_is_hashed() -> None:
    tree = LEAVES
    gateway, dst = tree.gateways[0], tree.host("h0_0_3")
    fabric = TableFabric(tree, fabric_rules(tree, None, [gateway]))
    for source in (str(tree.ip(gateway)), OUTSIDE):
        packet = ipv4_packet(tree, gateway, dst, label.carrier_mac((1,)), ipv4_src=source)
        ways = {fabric.send(gateway, {**packet, "tcp_src": port})[0][1] for port in range(30)}
        assert ways == {"a0_0", "a0_1"}


def test_gateways_cost_few_entries_and_a_fabric_without_any_none() -> None:
    plain = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=3)
    for level, few in ((Level.EDGE, 2 * len(LEAVES.gateways) + 7), (Level.AGGREGATION, 3)):
        for switch in plain.switches(level):
            assert len(switch_rules(LEAVES, switch).flows) - len(switch_rules(plain, switch).flows) <= few
    assert sum(flow.table == 6 for flow in switch_rules(plain, plain.switch("e0_0")).flows) == 0
