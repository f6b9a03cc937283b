"""Clos fabrics of any shape: fat-trees, leaf-spine, oversubscribed and irregular fabrics."""

import contextlib
import json
from collections.abc import Callable
from itertools import pairwise

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.golden import Script, Step, each_script
from tests.helpers.random_fabrics import random_fabric, some_pairs
from topologies import Clos, FatTree, Host, Level, Switch, TopologyError
from topologies.identity import LARGEST, PREFIX6

FABRICS = [*map(random_fabric, range(16)), *map(FatTree, (2, 4, 6, 16))]
SHAPE = {"pods": 4, "edges": 2, "aggregations": 2, "cores": 4, "hosts": 2}
some_fabric = pytest.mark.parametrize("tree", FABRICS, ids=lambda tree: tree.title)


@some_fabric
def test_every_identity_converts_there_and_back(tree: Clos) -> None:
    told = tree.graph().nodes
    for switch in tree.switches():
        assert tree.switch(tree.name(switch)) == tree.switch_by_dpid(tree.dpid(switch)) == switch
        assert told[tree.name(switch)]["dpid"] == tree.dpid(switch)
    both = Clos.from_document(tree.document() | {"prefix6": str(PREFIX6)})
    for host in tree.hosts():
        assert {both.host_called(text) for text in (tree.name(host), *(str(its.address(host)) for its in both.families))} == {host}
        assert told[tree.name(host)].items() >= {"level": "host", "ip": str(tree.ip(host)), "mac": tree.mac(host)}.items()
        assert tree.host(tree.name(host)) == tree.host_by_ip(tree.ip(host)) == tree.host_by_mac(tree.mac(host)) == host
    for link in tree.links():
        assert tree.element(tree.name(link)) == link
    assert len(list(tree.switches())) == tree.switch_count
    assert len(list(tree.hosts())) == tree.host_count
    assert len(list(tree.switch_links())) == tree.switch_link_count


def test_the_largest_fabric_has_an_address_and_a_datapath_id_for_everything() -> None:
    tree = Clos(**LARGEST._asdict())
    last = Host(tree.pods - 1, tree.edges - 1, tree.hosts_per_edge + 1)
    assert str(tree.ip(last)) == "10.254.254.253"
    assert tree.host_by_ip("10.254.254.253") == tree.host_by_mac(tree.mac(last)) == last
    for level in Level:
        switch = Switch(level, tree.groups(level) - 1, tree.group_size(level) - 1)
        assert tree.switch_by_dpid(tree.dpid(switch)) == switch
    assert max(tree.choices("inter-rack")) == (253,)


@some_fabric
def test_both_ends_of_every_cable_agree_and_absent_ones_have_none(tree: Clos) -> None:
    seen, graph = 0, tree.graph()
    for switch in tree.switches():
        for port, neighbour in tree.ports(switch).items():
            assert graph.edges[tree.name(switch), tree.name(neighbour)]["ports"][tree.name(switch)] == port
            assert 1 <= port <= tree.port_count(switch.level)
            assert tree.neighbour(switch, port) == neighbour
            assert tree.port(switch, neighbour) == port
            if isinstance(neighbour, Switch):
                assert tree.neighbour(neighbour, tree.port(neighbour, switch)) == switch
                seen += 1
            else:
                assert tree.edge_of(neighbour) == switch
        for index in tree.uplinks(switch):
            assert tree.port(switch, tree.uplink(switch, index)) == tree.uplink_port(switch.level, index)
    assert seen == 2 * tree.switch_link_count
    for link in tree.absent:
        assert link not in set(tree.links())
        its = link.lower, link.upper.index
        for lookup, *what in ((tree.link, *link), (tree.element, tree.name(link)), (tree.capacity, link), (tree.uplink, *its)):
            with pytest.raises(TopologyError):
                lookup(*what)


@some_fabric
def test_candidate_paths_are_exactly_those_that_rise_and_fall_in_the_graph(tree: Clos) -> None:
    graph = tree.graph()
    for src, dst in some_pairs(tree, 6):
        first, last = tree.name(tree.edge_of(src)), tree.name(tree.edge_of(dst))
        edges = 0 if first == last else 2 if src.pod == dst.pod else 4
        found = networkx.all_simple_paths(graph, first, last, cutoff=edges) if edges else [[first]]
        paths = tree.candidate_paths(src, dst)
        assert sorted(path.hops for path in paths) == sorted(tuple(way) for way in found if len(way) == edges + 1)
        assert [path.up for path in paths] == list(tree.choices_between(src, dst))
        for path in paths:
            assert path.hops == tuple(tree.name(switch) for switch in tree.hops(src, dst, path.up))


@some_fabric
def test_the_aggregation_switch_changes_from_packet_to_packet(tree: Clos) -> None:
    whole = tree.choices("inter-pod")
    assert tree.aggregations == 1 or all(one[0] != other[0] for one, other in pairwise(whole))


@given(st.integers(0, 2**32))
def test_any_number_is_a_known_datapath_id_or_refused(dpid: int) -> None:
    tree = FatTree(6)
    try:
        assert tree.dpid(tree.switch_by_dpid(dpid)) == dpid
    except TopologyError:
        assert dpid not in {tree.dpid(switch) for switch in tree.switches()}


def test_identities_are_the_plan() -> None:
    tree = FatTree(4)
    host = Host(3, 1, 2)
    assert (tree.name(host), str(tree.ip(host)), tree.mac(host)) == ("h3_1_2", "10.3.1.2", "02:00:0a:03:01:02")
    assert str(tree.gateway(host)) == "10.3.1.1"
    assert [tree.dpid(tree.switch(name)) for name in ("e3_1", "a2_0", "c1_0")] == [0x010301, 0x020200, 0x030100]
    assert tree.element("a0_0-c0_1") == (Switch(Level.AGGREGATION, 0, 0), Switch(Level.CORE, 0, 1))
    kinds = [tree.kind(Host(0, 0, 2), dst) for dst in (Host(0, 0, 3), Host(0, 1, 2), Host(1, 0, 2))]
    assert kinds == ["intra-rack", "inter-rack", "inter-pod"]
    with pytest.raises(TopologyError):
        tree.candidate_paths(Host(0, 0, 2), Host(4, 0, 2))


@pytest.mark.parametrize("k", [2, 4, 6, 8, 30, 128])
def test_a_fat_tree_has_the_papers_counts_and_changes_the_aggregation_switch_on_every_packet(k: int) -> None:
    half = k // 2
    tree = Clos(pods=k, edges=half, aggregations=half, cores=half * half, hosts=half)
    assert (tree, tree.k, FatTree(k).k, tree.even) == (FatTree(k), k, k, True)
    assert (tree.host_count, tree.switch_link_count) == (k**3 // 4, k**3 // 2)
    assert [sum(1 for _ in tree.switches(level)) for level in reversed(Level)] == [half**2, 2 * half**2, 2 * half**2]
    assert list(tree.choices("inter-pod")) == [(n % half, n // half) for n in range(half * half)]
    assert tree.choices("inter-rack") == tuple((j,) for j in range(half))
    assert tree.choices("intra-rack") == ((),)


def test_what_lacks_a_cable_or_has_other_numbers_is_no_fat_tree() -> None:
    assert Clos(**SHAPE, links={"a0_0-c0_0": "absent"}).k is None
    for name, number in SHAPE.items():
        other = Clos(**{**SHAPE, name: 2 * number})
        assert other.k is None
        assert other != FatTree(4)


def test_rates_are_those_of_the_level_or_of_the_link() -> None:
    tree = Clos(4, 2, 2, 4, 2, mbit={"host": 10, "edge": 20}, links={"a0_0-c0_1": 5, "h0_0_2-e0_0": 1})
    rates = {"h0_0_3-e0_0": 10, "e0_0-a0_0": 20, "a0_0-c0_0": 1, "a0_0-c0_1": 5, "h0_0_2-e0_0": 1}
    assert {name: tree.capacity(tree.link_by_name(name)) for name in rates} == rates
    assert not tree.even
    assert Clos(4, 2, 2, 4, 2, mbit={"edge": 20}, links={"h0_0_2-e0_0": 1}).even


@each_script(__file__, "refused")
def test_what_is_no_fabric_or_of_another_is_refused_with_why(script: Script) -> None:
    asked: dict[str, Callable[[str], object]] = {
        "clos": lambda text: Clos(**{**SHAPE, **json.loads(text)}),
        "fattree": lambda text: FatTree(json.loads(text)),
        "node": FatTree(4).node,
        "address": FatTree(4).host_by_ip,
        "link": FatTree(4).element,
    }

    def handle(step: Step) -> str:
        with pytest.raises(ValueError, match=r".") as caught:
            asked[step.command](step.words[0])
        return str(caught.value) if isinstance(caught.value, TopologyError) else "no address at all"

    script.play(handle)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["pods", "edges", "aggregations", "cores", "hosts", "mbit", "links", "gateways", "no_label", "k"]


@settings(max_examples=50)
@given(ANYTHING | st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.integers(0, 4)))
def test_any_data_are_a_fabric_or_refused(document: object) -> None:
    with contextlib.suppress(TopologyError):
        assert isinstance(Clos.from_document(document), Clos)
