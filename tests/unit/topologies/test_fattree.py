"""The fat-tree's sizes, identities, graph and order of candidate paths; what holds for any Clos fabric is in `test_clos`."""

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import FatTree, Host, Level, Link, Switch, TopologyError

EVERY_K = [2, 4, 6, 8, 16, 30, 48, 64, 128]
SMALL_K = [2, 4, 6, 8]


def test_the_counts_are_the_papers() -> None:
    for k in EVERY_K:
        tree = FatTree(k)
        assert tree.host_count == k**3 // 4
        counts = [sum(1 for _ in tree.switches(level)) for level in (Level.EDGE, Level.AGGREGATION, Level.CORE)]
        assert counts == [k * k // 2, k * k // 2, (k // 2) ** 2]
        assert sum(1 for _ in tree.switches()) == tree.switch_count
    for k in [*SMALL_K, 12]:
        assert sum(1 for _ in FatTree(k).links()) == 3 * FatTree(k).host_count


def test_identities_are_the_plan() -> None:
    tree = FatTree(4)
    host = Host(3, 1, 2)
    assert (tree.name(host), str(tree.ip(host)), tree.mac(host)) == ("h3_1_2", "10.3.1.2", "02:00:0a:03:01:02")
    assert str(tree.gateway(host)) == "10.3.1.1"
    assert tree.dpid(Switch(Level.EDGE, 3, 1)) == 0x010301
    assert tree.dpid(Switch(Level.AGGREGATION, 2, 0)) == 0x020200
    assert tree.dpid(tree.switch("c1_0")) == 0x030100


@pytest.mark.parametrize("address", ["", "10.0.0", "10.0.0.256", "h0_0_2", "::1", "10.0.0.2/8", " 10.0.0.2"])
def test_what_is_no_address_is_told_from_a_foreign_one(address: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        FatTree(4).host_by_ip(address)
    assert not isinstance(error.value, TopologyError)


@given(st.integers(0, 2**32))
def test_any_number_is_a_known_datapath_id_or_refused(dpid: int) -> None:
    tree = FatTree(6)
    try:
        assert tree.dpid(tree.switch_by_dpid(dpid)) == dpid
    except TopologyError:
        assert dpid not in {tree.dpid(switch) for switch in tree.switches()}


def test_links_and_switches_have_names() -> None:
    tree = FatTree(4)
    assert tree.element("a0_0-c0_1") == Link(Switch(Level.AGGREGATION, 0, 0), Switch(Level.CORE, 0, 1))
    assert tree.element("a0_0") == Switch(Level.AGGREGATION, 0, 0)


@pytest.mark.parametrize("k", SMALL_K)
def test_the_graph_is_a_fat_tree_with_what_the_structure_says(k: int) -> None:
    tree = FatTree(k)
    graph = tree.graph()
    assert networkx.is_connected(graph)
    degrees = {level: {graph.degree(n) for n, its in graph.nodes(data="level") if its == level} for level in LEVELS}
    assert degrees == {"host": {1}, "edge": {k}, "aggregation": {k}, "core": {k}}
    for name, data in graph.nodes(data=True):
        if data["level"] == "host":
            assert tree.name(tree.host_by_ip(data["ip"])) == tree.name(tree.host_by_mac(data["mac"])) == name
        else:
            assert tree.name(tree.switch_by_dpid(data["dpid"])) == name
    for a, b, ports in graph.edges(data="ports"):
        assert ports == {a: tree.port(tree.node(a), tree.node(b)), b: tree.port(tree.node(b), tree.node(a))}


LEVELS = ["host", "edge", "aggregation", "core"]


def test_interleaving_changes_the_aggregation_switch_on_every_packet() -> None:
    for k in EVERY_K:
        tree, half = FatTree(k), k // 2
        assert list(tree.choices("inter-pod")) == [(n % half, n // half) for n in range(half * half)]
        assert tree.choices("inter-rack") == tuple((j,) for j in range(half))
        assert tree.choices("intra-rack") == ((),)


def test_kinds_tell_rack_and_pod_apart() -> None:
    tree = FatTree(4)
    kinds = [tree.kind(Host(0, 0, 2), dst) for dst in (Host(0, 0, 3), Host(0, 1, 2), Host(1, 0, 2))]
    assert kinds == ["intra-rack", "inter-rack", "inter-pod"]
    assert [path.hops for path in tree.candidate_paths(Host(0, 0, 2), Host(0, 0, 3))] == [("e0_0",)]


def test_paths_of_a_host_outside_the_fabric_are_refused() -> None:
    with pytest.raises(TopologyError):
        FatTree(4).candidate_paths(Host(0, 0, 2), Host(4, 0, 2))
