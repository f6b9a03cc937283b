"""Fabrics that are no fat-trees, in real Open vSwitch: packets traced through the rules that the controller installed."""

import random
from collections.abc import Iterator

import pytest

from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.random_fabrics import random_fabric, some_pairs
from tests.helpers.waiting import eventually
from topologies import Clos, Failures, Level

pytestmark = pytest.mark.switch

FABRICS = {
    "leaf-spine": Clos(pods=1, edges=5, aggregations=3, cores=0, hosts=3),
    "oversubscribed": Clos(pods=3, edges=4, aggregations=2, cores=4, hosts=5),
    "irregular": Clos(
        pods=3,
        edges=3,
        aggregations=3,
        cores=6,
        hosts=2,
        links={"e0_0-a0_0": "absent", "a1_2-c2_1": "absent", "a2_0-c0_0": "absent", "e2_2-a2_1": "absent"},
    ),
    "random": random_fabric(7, most=30),
}


@pytest.fixture(scope="module", params=FABRICS)
def clos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(FABRICS[request.param], tmp_path_factory.mktemp("fabric"), "--sopa-hold-down=0") as fabric:
        yield fabric


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
    name, port = tree.name(link), tree.port(link.upper, link.lower)
    clos.dummy.set_port(link.upper, port, up=False)
    eventually(lambda: [one["name"] for one in clos.controller.fabric()["failures"]] == [name])
    clos.await_installed()
    failures = Failures(tree, {name: "down"})
    edge = link.lower if link.lower.level is Level.EDGE else tree.switch(f"e{link.lower.pod}_0")
    src = next(tree.hosts_of(edge))
    for dst in (host for host in tree.hosts() if host != src):
        usable, _ = failures.split(src, dst)
        for up in (None, *(path.up for path in tree.candidate_paths(src, dst))):
            way = clos.walk(tree.name(src), packet(clos, src, dst, up))
            assert tuple(way[:-1]) in {path.hops for path in usable} or not usable
    clos.dummy.set_port(link.upper, port, up=True)
    eventually(lambda: not clos.controller.fabric()["failures"])


def test_a_switch_that_has_other_ports_than_the_file_says_is_rejected(clos: Fabric) -> None:
    tree, edge = clos.tree, next(clos.tree.switches(Level.EDGE))
    bridge = tree.name(edge)
    number = tree.port_count(Level.EDGE) + 1
    clos.ovs.vsctl(
        "add-port", bridge, "extra", "--", "set", "interface", "extra", "type=dummy", f"ofport_request={number}"
    )
    clos.ovs.vsctl("del-controller", bridge)
    eventually(lambda: bridge in clos.controller.fabric()["missing"])
    clos.ovs.vsctl("set-controller", bridge, clos.controller.openflow)
    eventually(
        lambda: any("controller.fabric.yaml plans" in one["reason"] for one in clos.controller.fabric()["rejected"])
    )
    clos.ovs.vsctl("del-port", bridge, "extra")
    eventually(lambda: not clos.controller.fabric()["missing"], seconds=60)
