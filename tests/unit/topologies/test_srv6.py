"""uSIDs: every candidate path's list leads over its switches, by what routers are told and by nothing else."""

from ipaddress import IPv6Address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.random_fabrics import random_fabric, some_pairs, ways_up
from tests.helpers.srv6_routers import Routers
from topologies import Clos, FatTree, Level, Switch, TopologyError, fabric_of
from topologies.fabric_file import dump, parse
from topologies.identity import PREFIX6
from topologies.srv6 import source_prefix, usid_list
from topologies.usids import usid

BLOCK = "fc00:5a::/32"


def with_srv6(tree: Clos) -> Clos:
    return Clos.from_document({**tree.document(), "prefix6": str(PREFIX6), "srv6": {"block": BLOCK}})


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
@example(1)
def test_lists_of_any_fabric_lead_over_their_paths_and_self_probes_come_back(seed: int) -> None:
    tree = with_srv6(random_fabric(seed))
    routers = Routers(tree)
    for src, dst in some_pairs(tree, 12, seed) if tree.host_count > 1 else ():
        here, there = tree.edge_of(src), tree.edge_of(dst)
        for family in tree.families:
            for path in tree.candidate_paths(src, dst):
                way = routers.follow(src, usid_list(tree, here, there, path.up), family.address(dst))
                assert (way.hops, way.host) == (path.hops, dst), way
        for upwards in ([tree.name(here)], *(names for _, names in ways_up(tree, here))):
            turn = tuple(tree.switch(name).index for name in upwards[1:])
            way = routers.follow(src, usid_list(tree, here, here, turn), tree.ip(src))
            assert (list(way.hops), way.host) == ([*upwards, *upwards[-2::-1]], src), way


@pytest.mark.parametrize("tree", [FatTree(4), FatTree(6), Clos(3, 4, 2, 6, 3), Clos(1, 3, 2, 0, 2)])
def test_what_any_router_of_a_path_says_of_a_list_finds_the_host_that_has_named_it(tree: Clos) -> None:
    tree = with_srv6(tree)
    routers = Routers(tree)
    for src, dst in some_pairs(tree, 12, 1):
        told = source_prefix(tree, src)[5]
        for path in tree.candidate_paths(src, dst):
            for at in map(tree.switch, path.hops[:-1]):  # the last one takes the list off
                assert routers.follow_error(at, told).host == src, (at, path.hops)


def test_all_usids_of_the_largest_fabric_that_has_them_are_different() -> None:
    tree = Clos(64, 64, 64, 64 * 64, 1, srv6={"block": BLOCK})
    assert len({usid(switch) for switch in tree.switches()}) == tree.switch_count
    assert parse(dump(tree)).fabric == tree != Clos(64, 64, 64, 64 * 64, 1)


def test_a_fat_tree_with_usids_keeps_them_on_its_way_to_agents() -> None:
    tree = with_srv6(FatTree(4))
    assert fabric_of(tree.document()) == tree


@pytest.mark.parametrize(("shape", "said"), [
    ((1, 65, 4, 0, 1), "e0_64 has no uSID: a group has 64 at most, e0_0 to e0_63"),
    ((1, 4, 65, 0, 1), "a0_64 has no uSID: a group has 64 at most, a0_0 to a0_63"),
    ((2, 4, 2, 130, 1), "c0_64 has no uSID: a group has 64 at most, c0_0 to c0_63"),
    ((65, 1, 1, 1, 1), "e64_0 and e0_0 have the same uSID 0x1000"),
])  # fmt: skip
def test_a_fabric_whose_switches_cannot_all_have_a_usid_is_refused_by_two_names(shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        Clos(*shape, srv6={"block": BLOCK})
    Clos(*shape)  # it may have its size without them


def test_what_leads_nowhere_or_comes_from_a_port_without_the_right_is_dropped() -> None:
    tree = Clos(4, 2, 2, 4, 2, no_label=["h0_0_3"], links={"e2_0-a2_1": "absent"}, srv6={"block": BLOCK})
    routers, (src, other, far) = Routers(tree), map(tree.host, ("h0_0_2", "h0_0_3", "h2_0_2"))
    here, there = tree.edge_of(src), tree.edge_of(far)
    for to, last in (
        (IPv6Address("fc00:5a:4000:8003:1080::"), "a0_0"),  # to no switch
        (usid_list(tree, here, there, (1, 0)), "c1_0"),  # over the absent link
        (usid_list(tree, here, Switch(Level.EDGE, 9, 0), (0, 0)), "c0_0"),  # beyond the fabric
    ):
        way = routers.follow(src, to, tree.ip(far))
        assert (way.hops[-1], way.host) == (last, None)
    closed = routers.follow(other, usid_list(tree, here, there, (0, 0)), tree.ip(far))
    assert (closed.hops, closed.host) == (("e0_0",), None)
