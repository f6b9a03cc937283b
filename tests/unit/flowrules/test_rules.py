"""The rules of a whole fabric, run through tables in memory: who reaches whom, by which way, and what is dropped."""

import random
from functools import partial
from typing import Any

import pytest

from flowrules import label
from flowrules.model import Flow, Table, ToController, digest
from flowrules.switch_rules import fabric_rules, switch_rules
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.random_fabrics import random_fabric, ways_up
from tests.models.flow_table import TableFabric, TableSwitch, ipv4_packet
from topologies import Clos, Failures, FatTree, Host, Level, Switch
from topologies.structure import BFD_MAC, TURN_MAC

SIZES = [2, 4, 6, 8]
UDP, TCP = 17, 6


def healthy(k: int) -> TableFabric:
    tree = FatTree(k)
    return TableFabric(tree, fabric_rules(tree))


FABRICS = [*map(random_fabric, range(40)), *map(FatTree, (2, 4, 32))]


@pytest.mark.parametrize("tree", FABRICS, ids=lambda tree: tree.title)
def test_entries_grow_with_the_ports_of_a_switch_and_with_nothing_else(tree: Clos) -> None:
    for core in tree.switches(Level.CORE):
        assert len(switch_rules(tree, core).flows) == len(tree.ports(core)) + 4
    whole = Clos(*tree.shape)
    for switch in whole.switches():
        below, above = whole.downlink_count(switch.level), whole.uplink_count(switch.level)
        flows = len(switch_rules(whole, switch).flows)
        if switch.level is Level.EDGE:
            assert flows <= 4 * below + 2 * above + 30
        elif switch.level is Level.AGGREGATION:
            assert flows == (2 * below + above + 12 if above else below + 4)


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_host_without_a_right_to_a_label_is_heard_but_its_word_is_not(k: int) -> None:
    tree = FatTree(k)
    src, *_, dst = tree.hosts()
    edge = tree.edge_of(src)
    fabric = TableFabric(tree, fabric_rules(tree, no_label=[src]))
    hashed, _ = fabric.send(src, ipv4_packet(tree, src, dst))
    for path in tree.candidate_paths(src, dst):
        way, seen = fabric.send(src, ipv4_packet(tree, src, dst, label.carrier_mac(path.up)))
        assert (way, seen is not None, way[-1]) == (hashed, True, tree.name(dst))
    hits = fabric.switches[edge].hits
    assert sum(hits[flow] for flow in hits if "no right to a label" in flow.purpose) == (k // 2) ** 2
    for switch, rules in fabric_rules(tree, no_label=[src]):  # which costs one entry, and every other host chooses as before
        assert len(set(rules.flows) - set(switch_rules(tree, switch).flows)) == (switch == edge)
    for other in set(tree.hosts_of(edge)) - {src}:
        for path in tree.candidate_paths(other, dst):
            way, _ = fabric.send(other, ipv4_packet(tree, other, dst, label.carrier_mac(path.up)))
            assert way == [*path.hops, tree.name(dst)]


@pytest.mark.parametrize("tree", FABRICS[:-1], ids=lambda tree: tree.title)
def test_a_self_probe_turns_at_the_switch_that_its_label_leads_to_whatever_has_failed_and_returns_as_it_came(tree: Clos) -> None:
    src = next(host for host in tree.hosts() if host not in tree.gateways)
    draw = random.Random(tree.title)
    edge, others = tree.edge_of(src), sorted(map(tree.name, tree.links()))
    for barred in (False, True):
        failures = Failures(tree, dict.fromkeys(draw.sample(others, len(others) // 4), "down"))
        fabric = TableFabric(tree, fabric_rules(tree, failures, no_label=[src] * barred))
        for ports, upwards in ways_up(tree, edge):
            probe = ipv4_packet(tree, src, src, label.carrier_mac(ports), eth_dst=TURN_MAC)
            way, seen = fabric.send(src, probe)
            assert way == ([upwards[0]] if barred else [*upwards, *upwards[-2::-1], tree.name(src)])
            assert bool(seen) != barred
            # a forged one reaches nobody but the host that it is for, which any other packet reaches as well
            other = max(set(tree.hosts()) - set(tree.gateways))
            way, seen = fabric.send(src, ipv4_packet(tree, src, other, label.carrier_mac(ports), eth_dst=TURN_MAC))
            assert not seen or (way[-1], seen["eth_dst"]) == (tree.name(other), tree.mac(other))


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_host_cannot_send_from_anothers_address(k: int) -> None:
    fabric = healthy(k)
    tree = fabric.tree
    src, *others = tree.hosts()
    for other in others:
        for mac in (None, label.carrier_mac((0, 0))):
            packet = ipv4_packet(tree, src, others[-1], mac, ipv4_src=str(tree.ip(other)))
            assert fabric.send(src, packet) == ([tree.name(tree.edge_of(src))], None)
    edge = fabric.switches[tree.edge_of(src)]
    assert sum(edge.hits[flow] for flow in edge.hits if "foreign source" in flow.purpose) == 2 * len(others)


def arp(tree: FatTree, host: Host, target: str, mac: str | None = None, sender: str | None = None) -> dict[str, object]:
    mac, sender = mac or tree.mac(host), sender or str(tree.ip(host))
    asked = {"arp_op": 1, "arp_sha": mac, "arp_spa": sender, "arp_tpa": target, "arp_tha": "00:00:00:00:00:00"}
    return {"eth_type": 0x0806, "eth_src": mac, "eth_dst": "ff:ff:ff:ff:ff:ff", **asked}


@each_script(__file__, "packets")
def test_packets(script: Script) -> None:
    fabric = healthy(4)
    tree = fabric.tree

    def handle(step: Step) -> str:
        """Have a host ask by ARP or send a packet, or one come in by a switch's port; tell what leaves, and how."""
        its, words = step.options, step.words
        if step.command == "arp":
            src, edge = tree.host(words[0]), tree.edge_of(tree.host(words[0]))
            asked = arp(tree, src, words[1], its.get("mac"), its.get("sender"))
            left = fabric.switches[edge].receive(asked, tree.port(edge, src))
            return "\n".join(f"port {port}: {dict(sorted(answer.items()))}" for port, answer in left)
        src, dst = map(tree.host, words[-2:])
        mac = label.carrier_mac(tuple(map(int, its["label"].split(",")))) if "label" in its else None
        packet = ipv4_packet(tree, src, dst, mac, **({"ipv4_dst": its["to"]} if "to" in its else {}))
        if step.command == "receive":
            return f"leaves by {fabric.switches[tree.switch(words[0])].receive(packet, int(words[1]))}"
        for switch in fabric.switches.values():
            switch.hits.clear()
        way, seen = fabric.send(src, packet)
        ignored = any("out of range" in flow.purpose for switch in fabric.switches.values() for flow in switch.hits)
        arrives = f"{way[-1]} gets it for {seen['eth_dst']}" if seen else f"dropped by switch {len(way)} of its way"
        return arrives + ", its label is out of range" * ignored

    script.play(handle)


@pytest.mark.parametrize("k", SIZES)
def test_probes_from_switches_go_to_the_controller_and_from_hosts_nowhere(k: int) -> None:
    tree = FatTree(k)
    probe = {"eth_type": 0x88CC, "eth_src": "02:00:00:00:00:02", "eth_dst": "01:80:c2:00:00:0e"}
    for switch in tree.switches():
        tables = TableSwitch(switch_rules(tree, switch))
        for port, neighbour in tree.ports(switch).items():
            tables.hits.clear()
            assert tables.receive(probe, port) == []
            (flow,) = tables.hits
            assert flow.apply == (() if isinstance(neighbour, Host) else (ToController(),))


def test_a_digest_tells_entries_apart_and_is_the_same_in_every_process() -> None:
    flows = {flow for _, rules in fabric_rules(FatTree(6)) for flow in rules.flows}
    assert len({digest(flow) for flow in flows}) == len(flows)
    assert digest(Flow(Table.DOWN, 0, (), "x")) == 0xC5255B


def test_a_change_of_upward_entries_changes_the_mask_of_the_match() -> None:
    """The packet's mark has it, and no other entry reads that."""
    tree = FatTree(6)
    names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
    draw = random.Random("shapes")

    def shape(switch: Switch, failures: Failures) -> tuple[int, frozenset[Flow]]:
        flows = switch_rules(tree, switch, failures).flows
        (((value, mask),),) = ((found for name, found in flow.match if name == "pkt_mark") for flow in flows if flow.priority == 70)
        assert value
        assert not any(name == "pkt_mark" for flow in flows for name, _ in flow.match if flow.priority != 70)
        upward = frozenset(flow for flow in flows if flow.table in (Table.UP, Table.UNLABELLED))
        return mask, upward

    for switch in (tree.switch("e0_0"), tree.switch("a3_1")):
        seen = {shape(switch, Failures(tree))}
        for _ in range(60):
            seen.add(shape(switch, Failures(tree, dict.fromkeys(draw.sample(names, draw.randrange(1, 4)), "down"))))
        assert len({mask for mask, _ in seen}) == len({upward for _, upward in seen}) == len(seen) > 10
        for one, _ in seen:
            for other, _ in seen:
                assert one == other or (one & ~other and other & ~one)


def taken_for_their_own(tree: FatTree, draw: random.Random) -> dict[str, Any]:
    """Draw what makes a packet one that a switch would take."""
    byte = draw.randrange
    return draw.choice([
        {"ip_proto": UDP, "udp_dst": draw.choice([3784, 3785, 4784, 6784, 7784, 7785]), "nw_ttl": byte(256)},
        {"ip_proto": UDP, "udp_dst": 0, "nw_ttl": 255, "ip_frag": 1},
        {"ip_proto": byte(256), "eth_dst": BFD_MAC, "ip_frag": byte(4)},
        {"eth_type": draw.choice([0x0806, 0x86DD, 0x8902, 0x0800]), "eth_dst": BFD_MAC, "arp_op": 1},
        {"eth_dst": f"{byte(256) | 1:02x}:{byte(256):02x}:c2:00:00:{byte(256):02x}"},
        {"ipv4_dst": f"10.{byte(256)}.{byte(256)}.1", "tcp_dst": draw.choice([6633, 6640, 6653])},
        {"ipv4_dst": f"10.{tree.k}.{byte(256)}.{byte(256)}", "ip_proto": UDP, "udp_dst": draw.choice([4789, 6081])},
        {"eth_type": draw.choice([0x8902, 0x88CC, 0x8809, 0x86DD, 0x8847, 0x88A8])},
    ])  # fmt: skip


@pytest.mark.parametrize("k", [2, 4, 16, 128])
def test_what_a_switch_would_take_for_its_own_ends_at_the_first_one_and_all_else_leaves(k: int) -> None:
    draw, tree = random.Random(k), FatTree(k)
    pod, number = draw.randrange(k), partial(draw.randrange, tree.half)
    src, dst = Host(pod, number(), 2 + number()), Host((pod + 1) % k, number(), 2 + number())
    here = tree.edge_of(src)
    switch = TableSwitch(switch_rules(tree, here, None, [src] if draw.random() < 0.3 else []))
    ports = [53, 179, 3783, 3786, 4783, 4785, 4789, 6081, 6653, 6783, 7783, 7786, 65535]
    for _ in range(500):
        mac = draw.choice([None, label.carrier_mac((number(), number())), BFD_MAC])
        packet = ipv4_packet(tree, src, dst, mac, **taken_for_their_own(tree, draw))
        assert switch.receive(packet, tree.port(here, src)) == [], packet
        kind, protocol = draw.choice([("tcp", TCP), ("udp", UDP)])
        near = {"ip_proto": protocol, f"{kind}_dst": draw.choice(ports), f"{kind}_src": 3784}
        late, ordinary = ({"ip_proto": UDP, "nw_ttl": ttl, "ip_frag": frag} for ttl, frag in ((255, 3), (64, 1)))
        packet = ipv4_packet(tree, src, dst, **draw.choice([near, late, ordinary]))
        assert len(switch.receive(packet, tree.port(here, src))) == 1, packet
