"""IPv6 goes as IPv4 does, over random fabrics and failures; what of it a host may not send ends at the first switch."""

import random
from itertools import product

import pytest

from flowrules import label
from flowrules.switch_rules import fabric_rules, switch_rules
from tests.helpers.random_fabrics import random_fabric
from tests.models.flow_table import TableFabric, TableSwitch, ipv4_packet, ipv6_packet
from topologies import Clos, Failures, FatTree, Host, Level
from topologies.identity import IPV4, PREFIX6
from topologies.structure import BFD_MAC, GATEWAY_MAC
from topologies.way_out import gateways_from

UDP, ICMPV6, TTL = 17, 58, 255
OUTSIDE = (ipv4_packet, "ipv4", "198.51.100.7"), (ipv6_packet, "ipv6", "2001:db8::7")
SOLICITATION = {"ip_proto": ICMPV6, "icmpv6_type": 135, "icmpv6_code": 0, "nw_ttl": TTL, "eth_dst": "33:33:ff:00:00:01"}
SOLICITATION |= {"ipv6_nd_sll": "00:00:00:00:00:00", "ipv6_dst": "ff02::1:ff00:1"}  # without that option


def with_ipv6(tree: Clos) -> Clos:
    return Clos.from_document({**tree.document(), "prefix6": str(PREFIX6)})


@pytest.mark.parametrize("number", range(30))
def test_ipv6_goes_as_ipv4_over_any_fabric_with_any_failures(number: int) -> None:
    draw, tree = random.Random(f"families {number}"), with_ipv6(random_fabric(number))
    names = [tree.name(its) for its in (*tree.switches(), *tree.links())]
    failures = Failures(tree, dict.fromkeys(draw.sample(names, min(len(names), draw.choice((0, 1, 2, 5)))), "down"))
    unheard = draw.choice(list(tree.hosts()))
    fabric = TableFabric(tree, fabric_rules(tree, failures, [unheard]), failures)
    hosts = list(tree.hosts())
    for _ in range(60):
        src, dst = draw.choice(hosts), draw.choice(hosts)
        up = draw.choice([None, *tree.choices_between(src, dst)])
        mac = None if up is None else label.carrier_mac(up)
        way, seen = fabric.send(src, ipv4_packet(tree, src, dst, mac))
        its_way, its_seen = fabric.send(src, ipv6_packet(tree, src, dst, mac))
        assert (seen is None) == (its_seen is None)
        if seen and its_seen:
            assert its_way[-1] == way[-1]
            if up is not None and src != unheard and up in failures.choices_from(tree.edge_of(src))[tree.edge_of(dst)]:
                assert its_way == way  # its label is followed; of other packets the hashes differ
            assert {its_seen[field] for field in ("eth_dst", "ipv6_dst")} == {seen["eth_dst"], str(tree.families[1].address(dst))}


@pytest.mark.parametrize("number", range(30))
def test_what_leaves_the_fabric_leaves_by_a_gateway_in_use_or_not_at_all(number: int) -> None:
    draw, plain = random.Random(f"outside {number}"), random_fabric(number)
    names = [plain.name(host) for host in plain.hosts()]
    gateways = draw.sample(names, min(len(names), draw.choice((0, 1, 3))))
    tree = with_ipv6(Clos.from_document({**plain.document(), "gateways": gateways}))
    links = [tree.name(its) for its in tree.links()]
    failures = Failures(tree, dict.fromkeys(draw.sample(links, min(len(links), draw.choice((0, 1, 4)))), "down"))
    fabric = TableFabric(tree, fabric_rules(tree, failures), failures)
    for src in {*tree.hosts()} - {*tree.gateways}:
        edge = fabric.switches[tree.edge_of(src)]
        asked = edge.sent_to_controller
        (_, seen), (way, its_seen) = (fabric.send(src, {**made(tree, src, src), f"{ip}_dst": to}) for made, ip, to in OUTSIDE)
        assert (seen is None) == (its_seen is None)
        in_use = gateways_from(failures, tree.edge_of(src))
        assert its_seen is None or tree.host(way[-1]) in in_use
        if not in_use and failures.alive(tree.link(src, tree.edge_of(src))):  # the controller is asked, by each family
            nobody = ipv4_packet(tree, src, src, ipv4_dst="10.250.0.9")  # but not for an address of the fabric
            assert (its_seen, fabric.send(src, nobody)[1], edge.sent_to_controller) == (None, None, asked + 2)
    for gateway, dst in product(tree.gateways, draw.sample(list(tree.hosts()), min(tree.host_count, 6))):
        came_in = [fabric.send(gateway, {**made(tree, gateway, dst), f"{ip}_src": sender})[1] for made, ip, sender in OUTSIDE]
        assert (came_in[0] is None) == (came_in[1] is None)
        for source in ({}, {"ipv6_src": "2001:db8::9"}):  # what a gateway sends to the outside ends at its port
            assert fabric.send(gateway, {**ipv6_packet(tree, gateway, dst), **source, "ipv6_dst": "2001:db8::7"})[1] is None


@pytest.mark.parametrize("number", range(10))
def test_ipv6_costs_as_many_entries_again_and_thirty_at_most_and_nothing_without_it(number: int) -> None:
    plain = random_fabric(number)
    plain = Clos.from_document({**plain.document(), "gateways": [plain.name(next(plain.hosts()))] * (number % 2)})
    tree = with_ipv6(plain)
    for switch in plain.switches():
        before, after = (set(switch_rules(its, switch).flows) for its in (plain, tree))
        assert len(after) <= 2 * len(before) + 30
        if not tree.gateways:
            assert {flow for flow in before if flow.priority != 70} <= after


def test_a_position_and_its_addresses_say_the_same() -> None:
    tree = FatTree(8, str(PREFIX6))
    for family in tree.families:
        for host in tree.hosts():
            edge, address = tree.edge_of(host), family.address(host)
            assert (family.host(address), family.text(host)) == (host, str(address))
            assert all(address in family.prefix(its) for its in (edge, tree.uplink(edge, 0), tree.switch("c0_0")))
            assert family.gateway(host) == family.prefix(edge).network_address + 1
    assert all((IPV4.address(host), IPV4.gateway(host)) == (tree.ip(host), tree.gateway(host)) for host in tree.hosts())
    for wrong in ("fd53:4f50:4200::2", "fd53:4f50:4100:0:1::2", "fd53:4f50:4100::1:2"):
        with pytest.raises(ValueError, match="no host"):
            tree.families[1].host(tree.families[1].network.network_address.__class__(wrong))


def test_a_host_with_another_ethernet_address_is_learned_from_what_it_says_of_itself_only() -> None:
    tree = FatTree(4, str(PREFIX6))
    src, mate, *_ = tree.hosts()
    switch, other = TableSwitch(switch_rules(tree, tree.edge_of(src))), "02:99:00:00:00:01"
    own, its_mate, gateway = (str(each) for each in (*map(tree.families[1].address, (src, mate)), tree.families[1].gateway(src)))
    asked = {**SOLICITATION, "ipv6_nd_target": gateway}
    told = {**SOLICITATION, "icmpv6_type": 136, "ipv6_nd_target": own}

    def used(**sent: object) -> str:
        """Send neighbour discovery from the host's port; tell where a packet for it goes then."""
        switch.receive(ipv6_packet(tree, src, mate, **sent), tree.port(tree.edge_of(src), src))
        [there] = switch.receive(ipv6_packet(tree, mate, src), tree.port(tree.edge_of(mate), mate))
        return str(there.packet["eth_dst"])

    planned = tree.mac(src)
    for forgotten in ({**asked, "ipv6_nd_sll": planned}, {**told, "ipv6_nd_tll": planned}):
        assert used(**told, ipv6_src=its_mate, ipv6_nd_tll=other) == planned  # forged, of another host
        assert used(**{**asked, "ipv6_src": "::", "ipv6_nd_sll": other}) == planned
        assert used(**asked) == planned  # it says none
        for heard in ({**asked, "ipv6_nd_sll": other}, {**told, "ipv6_nd_tll": other}):
            assert used(**heard) == other
            assert used(**{**heard, "nw_ttl": 64}) == other
        assert used(**forgotten) == planned


@pytest.mark.parametrize("k", [2, 4, 16])
def test_neighbour_discovery_ends_at_the_first_switch_which_answers_for_the_gateway(k: int) -> None:
    draw, tree = random.Random(k), FatTree(k, str(PREFIX6))
    src, *_, dst = tree.hosts()
    edge, family = tree.edge_of(src), tree.families[1]
    switch, port = TableSwitch(switch_rules(tree, edge)), tree.port(edge, src)
    gateway = str(family.gateway(src))
    asked = {**SOLICITATION, "ipv6_nd_target": gateway}
    for again in ({}, {"ipv6_dst": gateway, "eth_dst": GATEWAY_MAC}):
        [answer] = switch.receive(ipv6_packet(tree, src, dst, **asked | again), port)
        assert (answer.port, answer.packet["ipv6_src"], answer.packet["ipv6_nd_tll"]) == (port, gateway, GATEWAY_MAC)
        assert (answer.packet["ipv6_dst"], answer.packet["icmpv6_type"]) == (str(family.address(src)), 136)
    stranger = str(family.address(Host(src.pod, src.edge, 200)))
    for wrong in (
        {**asked, "ipv6_src": "::"},
        {**asked, "ipv6_src": "::", "ipv6_dst": gateway},
        {**asked, "ipv6_dst": "ff02::1:ff00:3"},
        {**asked, "nw_ttl": 64},
        {**asked, "ipv6_nd_target": stranger},
        {"ip_proto": ICMPV6, "ip_frag": 1, "nw_ttl": TTL},
        *({"ip_proto": ICMPV6, "icmpv6_type": kind, "nw_ttl": draw.choice((64, TTL))} for kind in range(133, 138)),
        {"ipv6_src": stranger},
        {"ipv6_src": "fe80::1"},
        {"ipv6_dst": gateway},
        {"ipv6_dst": "2001:db8::1"},
        {"ipv6_dst": str(family.address(Host(k, 0, 2)))},
        {"eth_dst": "33:33:00:00:00:01"},
        {"eth_dst": BFD_MAC},
        {"ip_proto": UDP, "udp_dst": 3784},
        {"ip_proto": UDP, "ip_frag": 1, "nw_ttl": 255},
        {"ip_proto": 0},  # as Open vSwitch shows extension headers that it cannot read
    ):
        assert switch.receive(ipv6_packet(tree, src, dst, **wrong), port) == [], wrong
    assert len(switch.receive(ipv6_packet(tree, src, dst), port)) == 1
    assert tree.edge_of(dst).level is Level.EDGE
