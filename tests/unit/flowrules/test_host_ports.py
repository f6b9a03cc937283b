"""What a host may send, over many sizes of fabric: nothing that a switch would take for its own leaves the first one."""

import random
from typing import Any

import pytest

from flowrules import label
from flowrules.switch_rules import switch_rules
from tests.models.flow_table import TableSwitch, ipv4_packet
from topologies import FatTree, Host
from topologies.structure import BFD_MAC

SIZES = [2, 4, 16, 128]
UDP, TCP = 17, 6


def first_switch(k: int, draw: random.Random) -> tuple[FatTree, TableSwitch, Host, Host, int]:
    """Return an edge switch of a fabric, a host there and one elsewhere, and the first one's port."""
    tree = FatTree(k)
    pod, edge = draw.randrange(k), draw.randrange(tree.half)
    src = Host(pod, edge, 2 + draw.randrange(tree.half))
    dst = Host((pod + 1) % k, draw.randrange(tree.half), 2 + draw.randrange(tree.half))
    here = tree.edge_of(src)
    no_label = [src] if draw.random() < 0.3 else []
    return tree, TableSwitch(switch_rules(tree, here, None, no_label)), src, dst, tree.port(here, src)


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


@pytest.mark.parametrize("k", SIZES)
def test_what_a_switch_would_take_for_its_own_ends_at_the_first_one(k: int) -> None:
    draw = random.Random(k)
    tree, switch, src, dst, port = first_switch(k, draw)
    for _ in range(500):
        mac = draw.choice([None, label.carrier_mac((draw.randrange(tree.half), draw.randrange(tree.half))), BFD_MAC])
        packet = ipv4_packet(tree, src, dst, mac, **taken_for_their_own(tree, draw))
        assert switch.receive(packet, port) == [], packet


@pytest.mark.parametrize("k", SIZES)
def test_everything_else_from_the_own_address_to_a_host_leaves_as_before(k: int) -> None:
    draw = random.Random(k)
    tree, switch, src, dst, port = first_switch(k, draw)
    ports = [53, 179, 3783, 3786, 4783, 4785, 4789, 6081, 6653, 6783, 7783, 7786, 65535]
    for _ in range(300):
        kind = draw.choice(["tcp", "udp"])
        fields = {"ip_proto": TCP if kind == "tcp" else UDP, f"{kind}_dst": draw.choice(ports), f"{kind}_src": 3784}
        late = {"ip_proto": UDP, "nw_ttl": 255, "ip_frag": 3}
        ordinary = {"ip_proto": UDP, "nw_ttl": 64, "ip_frag": 1}
        packet = ipv4_packet(tree, src, dst, **draw.choice([fields, late, ordinary]))
        assert len(switch.receive(packet, port)) == 1, packet
