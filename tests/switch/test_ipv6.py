"""IPv6 through the rules that the controller installed in real Open vSwitch."""

import random
import re
import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address

import pytest

from flowrules.host_ports import ADVERTISEMENT, SOLICITATION
from tests.helpers.fabrics import Fabric, running
from tests.helpers.frames import ICMPV6, LATER, SKIPPED, UDP, chained6, ip, ports
from tests.helpers.waiting import eventually
from topologies import FatTree, Host
from topologies.identity import PREFIX6

pytestmark = pytest.mark.switch

SRC, DST = Host(0, 0, 2), PREFIX6[2 << 72 | 2]
SRC6 = PREFIX6[2]
FORGED, ROUTER = (struct.pack("!BBHI", kind, 0, 0, 1 << 29) + PREFIX6[1].packed + bytes(8) for kind in (136, 134))
HEADERS = [header for name, header in SKIPPED.items() if name != "first fragment"]
FIRST, OPTIONS, HOPS = SKIPPED["first fragment"], (60, bytes(8)), SKIPPED["hop-by-hop"]
PASS = {
    "too big": chained6(struct.pack("!BBHI", 2, 0, 0, 1280) + bytes(100), ICMPV6, dst=DST),
    "every header": chained6(ports(5, 6), UDP, *HEADERS, dst=DST),
    "40 headers": chained6(ports(5, 6), UDP, *[OPTIONS] * 40, dst=DST),
    "first fragment": chained6(ports(5, 6), UDP, FIRST, dst=DST),
    "first fragment of an error": chained6(bytes([2]) + bytes(99), ICMPV6, FIRST, dst=DST),
    "later fragment": chained6(bytes(64), UDP, LATER, dst=DST, hops=255),
}
END = {
    **{f"{len(its)} headers": chained6(FORGED, ICMPV6, *its, dst=DST, hops=255) for its in ([], [HOPS], HEADERS, [OPTIONS] * 40)},
    "router, 40 headers": chained6(ROUTER, ICMPV6, *[OPTIONS] * 40, dst=DST, hops=64),
    "first fragment": chained6(FORGED, ICMPV6, FIRST, dst=DST, hops=255),
    "first fragment, then a header": chained6(FORGED, ICMPV6, FIRST, OPTIONS, dst=DST, hops=255),
    "the type in a later fragment": chained6(b"", ICMPV6, FIRST, OPTIONS, dst=DST, hops=255),
    "without a length": chained6(FORGED, ICMPV6, HOPS, dst=DST, hops=255, length=0),
    "header longer than the packet": chained6(FORGED, ICMPV6, (60, b"\0\xff" + bytes(6)), dst=DST, hops=255),
    "longer than the frame": chained6(bytes(8), UDP, dst=DST, length=65535),
    "BFD, 40 headers": chained6(ports(3784, 3784), UDP, *[OPTIONS] * 40, dst=DST),
    "another's address": chained6(ports(5, 6), UDP, src=PREFIX6[3], dst=DST),
    **{f"{cut} bytes": chained6(FORGED, ICMPV6, OPTIONS, dst=DST, hops=255)[:cut] for cut in (14, 40, 54, 58, 62, 65)},
}


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(FatTree(4, str(PREFIX6)), tmp_path_factory.mktemp("fabric")) as its:
        yield its


def test_the_edge_switch_answers_solicitations_for_the_gateway_by_itself(fabric: Fabric) -> None:
    tree, gateway = fabric.tree, fabric.tree.families[1].gateway(SRC)
    for source, target, answered in ((tree.ip6(SRC), gateway, True), ("::", gateway, False), (tree.ip6(SRC), gateway + 2, False)):
        asked = f"icmp6,icmpv6_type=135,icmpv6_code=0,nw_ttl=255,ipv6_src={source},ipv6_dst=ff02::1:ff00:1,nd_target={target}"
        traced = fabric.trace(tree.edge_of(SRC), f"in_port=1,{asked},dl_src={tree.mac(SRC)},dl_dst=33:33:ff:00:00:01")
        assert traced.ports == [1] * answered
        whole = (
            f"ipv6(src={gateway},dst={source})",
            "nd_reserved=0xe0000000,nd_options_type=2",
            "nd(tll=02:00:00:00:00:01)",
            "type=136",
        )
        assert [said in traced.actions for said in whole] == [answered] * len(whole)


def test_what_headers_hide_ends_at_the_hosts_port_and_all_else_passes(fabric: Fabric) -> None:
    """Open vSwitch gets whole packets here, as its userspace datapath reads them."""
    for frames in (PASS, END):
        for name, frame in frames.items():
            said = fabric.ovs.appctl("ofproto/trace", "e0_0", "in_port=1", frame.hex())
            assert ("Datapath actions: drop" in said) is (frames is END), (name, said)


def test_without_a_way_out_the_gateway_answers_with_1280_bytes(fabric: Fabric) -> None:
    def answered() -> tuple[float, int]:
        [count] = re.findall(r'^sopa_undeliverable_packets_total{outcome="answered"} (.*)$', fabric.metrics(), re.MULTILINE)
        sent = re.search(r"tx pkts=1, bytes=(\d+)", fabric.ovs.ofctl("dump-ports", "e0_0", "1"))
        return float(count), int(sent[1]) if sent else 0

    assert answered() == (0, 0)
    fabric.ovs.appctl("netdev-dummy/receive", "e0_0-eth1", chained6(bytes(1400)).hex())
    eventually(answered, (1, 14 + 1280))


def solicited(kind: int, target: IPv6Address, src: object = SRC6) -> bytes:
    at = IPv6Address("ff02::1:ff00:0") + int(target) % (1 << 24) if kind == SOLICITATION else "ff02::1"
    return chained6(struct.pack("!BBHI", kind, 0, 0, 0) + target.packed, ICMPV6, src=src, dst=at, hops=255)


INVENTED: dict[str, Callable[[random.Random], bytes]] = {
    "sources": lambda draw: ip(ports(5, 6), src=str(IPv4Address(draw.getrandbits(32))), proto=UDP),
    "sources, IPv6": lambda draw: chained6(ports(5, 6), src=IPv6Address(draw.getrandbits(128)), dst=DST),
    "sources of the rack, IPv6": lambda draw: chained6(ports(5, 6), src=PREFIX6[draw.getrandbits(64)], dst=DST),
    "destinations, IPv6": lambda draw: chained6(ports(5, 6), dst=IPv6Address(draw.getrandbits(127))),
    "solicited hosts": lambda draw: solicited(SOLICITATION, PREFIX6[draw.getrandbits(64)]),
    "advertised hosts": lambda draw: solicited(ADVERTISEMENT, PREFIX6[draw.getrandbits(64)]),
    "advertising hosts": lambda draw: solicited(ADVERTISEMENT, *[PREFIX6[draw.getrandbits(64)]] * 2),
}


@pytest.mark.parametrize("kind", INVENTED)
def test_a_switch_caches_few_decisions_on_invented_addresses(fabric: Fabric, kind: str) -> None:
    def cached() -> int:
        return sum("recirc_id" in line for line in fabric.ovs.appctl("dpctl/dump-flows").splitlines())

    def forgotten() -> bool:
        fabric.ovs.appctl("revalidator/purge")
        return not cached()

    def received() -> int:
        [count] = re.findall(r"rx pkts=(\d+)", fabric.ovs.ofctl("dump-ports", "e0_0", "1"))
        return int(count)

    def sent() -> int:
        fabric.ovs.appctl("netdev-dummy/receive", "e0_0-eth1", *(INVENTED[kind](draw).hex() for _ in range(20)))
        return received() - before

    eventually(forgotten)
    draw, before = random.Random(kind), received()
    eventually(sent, lambda count: count > 200)
    looks: list[int] = []

    def settled() -> bool:  # a decision is cached after its packet has gone
        looks.append(cached())
        return looks[-1] > 0 and looks[-8:] == 8 * looks[-1:]

    eventually(settled)
    assert looks[-1] <= 32
