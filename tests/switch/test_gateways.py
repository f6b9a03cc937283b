"""Packets to addresses outside the fabric, traced through the rules that the controller installed in real Open vSwitch."""

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.waiting import eventually
from topologies import Clos, Host

pytestmark = pytest.mark.switch

OUTSIDE = "198.51.100.7"
LEAVES = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=3, gateways=["h0_1_2", "h0_2_2", "h0_2_3"])
PODS = Clos(
    pods=3,
    edges=2,
    aggregations=2,
    cores=4,
    hosts=3,
    gateways=["h0_0_2", "h1_1_4", "h2_0_2", "h2_1_3"],
    links={"e2_0-a2_0": "absent"},
)


@pytest.fixture(scope="module", params=[LEAVES, PODS], ids=["leaf-spine", "pods"])
def ways_out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(request.param, tmp_path_factory.mktemp("fabric"), "--sopa-hold-down=0") as fabric:
        yield fabric


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
def test_unlabelled_flows_leave_by_all_gateways(ways_out: Fabric, kind: str) -> None:
    tree = ways_out.tree
    for src in random.Random(1).sample(senders(tree), 2):
        reached = Counter(
            ways_out.walk(tree.name(src), f"{out(ways_out, src, rest=kind)},{kind}_src={port},{kind}_dst=443")[-1]
            for port in range(1024, 1024 + 40 * len(tree.gateways))
        )
        assert set(reached) == {tree.name(gateway) for gateway in tree.gateways}
        assert min(reached.values()) > 10


def test_a_labelled_packet_takes_its_path_to_the_gateway_that_it_names(ways_out: Fabric) -> None:
    tree = ways_out.tree
    src = senders(tree)[-1]
    for gateway in tree.gateways:
        for path in tree.candidate_paths(src, gateway):
            flow = out(ways_out, src, path.up).replace("02:00:00:00:00:01", tree.mac(gateway))
            assert ways_out.walk(tree.name(src), flow) == [*path.hops, tree.name(gateway)]


def test_the_fragments_between_two_addresses_go_to_one_gateway(ways_out: Fabric) -> None:
    tree = ways_out.tree
    src = senders(tree)[0]
    flow = out(ways_out, src, rest="udp")
    whole = {f"{flow},udp_src={port},udp_dst=53,nw_frag=first" for port in range(1024, 1034)}
    assert len({ways_out.walk(tree.name(src), each)[-1] for each in (*whole, f"{flow},nw_frag=later")}) == 1


def test_what_comes_in_keeps_its_source_and_the_fabrics_own_addresses_do_not_come_in(ways_out: Fabric) -> None:
    tree = ways_out.tree
    gateway, dst = tree.gateways[0], senders(tree)[-1]
    inwards = packet(ways_out, gateway, dst)
    for source, arrives in ((OUTSIDE, True), (str(tree.ip(gateway)), True), (str(tree.ip(dst)), False)):
        flow = re.sub("nw_src=[0-9.]+", f"nw_src={source}", inwards)
        assert (ways_out.walk(tree.name(gateway), flow)[-1] == tree.name(dst)) is arrives


def test_the_rules_are_as_intended_and_few_bits_decide_on_a_labelled_packet(ways_out: Fabric) -> None:
    tree = ways_out.tree
    for switch in tree.switches():
        assert ways_out.controller.get(f"/switches/{tree.name(switch)}/rules").json()["right"]
    src = senders(tree)[0]
    gateway = next(each for each in tree.gateways if tree.edge_of(each) != tree.edge_of(src))
    path = tree.candidate_paths(src, gateway)[-1]
    flow = out(ways_out, src, path.up).replace("02:00:00:00:00:01", tree.mac(gateway))
    edge = tree.edge_of(src)
    said = ways_out.dummy.trace(edge, f"in_port={tree.port(edge, src)},{flow},tcp_src=7,tcp_dst=9")
    megaflow = re.findall(r"^Megaflow: (.*)$", said, re.MULTILINE)[-1]
    assert "tp_src" not in megaflow
    # the first octet says that it is outside, and bits of its end are read for addresses of the fabric
    assert re.search(r"nw_dst=[\d.]+/255\.0\.0\.\d\b", megaflow)


def test_a_gateway_that_goes_away_moves_its_own_flows_only(ways_out: Fabric) -> None:
    tree = ways_out.tree
    src = senders(tree)[0]
    gone = tree.gateways[-1]

    def leaving() -> dict[int, str]:
        flow = out(ways_out, src, rest="udp")
        return {
            port: ways_out.walk(tree.name(src), f"{flow},udp_src={port},udp_dst=53")[-1] for port in range(1024, 1064)
        }

    before = leaving()
    away(ways_out, gone, True)
    during = leaving()
    assert tree.name(gone) not in during.values()
    assert {port for port in before if before[port] != during[port]} == {
        port for port in before if before[port] == tree.name(gone)
    }
    labelled = out(ways_out, src, (0, 0)).replace("02:00:00:00:00:01", tree.mac(gone))
    assert ways_out.walk(tree.name(src), labelled)[-1] in set(during.values())
    away(ways_out, gone, False)
    assert leaving() == before
