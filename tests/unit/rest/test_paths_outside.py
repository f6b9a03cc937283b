"""``GET /paths`` to an address outside the fabric, and what else REST says of gateways."""

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.rest.operations import Problem
from sopa_ryu.rest.resources import Resources
from tests.helpers.stub_fabric import StubFabric
from topologies import Clos, FatTree, Host, Reason

OUTSIDE = "198.51.100.7"
PODS = Clos(pods=3, edges=2, aggregations=2, cores=4, hosts=3, gateways=["h0_0_2", "h1_1_4", "h2_0_2"])


def fabric_of(tree: Clos) -> tuple[FabricState, Resources]:
    state = FabricState(tree, epoch=1)
    for switch in tree.switches():
        state.switch_heard(switch, {}, 0)
        state.switch_ready(switch, 0)
    state.settle(0)
    return state, Resources(StubFabric(state))


def test_every_candidate_leads_to_a_gateway_and_the_weights_sum_to_one() -> None:
    tree = PODS
    _, rest = fabric_of(tree)
    body = rest.paths("h0_0_3", OUTSIDE)
    assert (body["kind"], body["dst"], body["src"], body["excluded"]) == ("outside", OUTSIDE, "10.0.0.3", [])
    assert body["total"] == len(body["candidates"]) == 1 + 4 + 4
    assert sum(path["weight"] for path in body["candidates"]) == pytest.approx(1)
    for gateway in tree.gateways:
        its = [path for path in body["candidates"] if path["gateway"] == tree.name(gateway)]
        expected = [list(path.hops) for path in tree.candidate_paths(Host(0, 0, 3), gateway)]
        assert [path["hops"] for path in its] == expected
        assert sum(path["weight"] for path in its) == pytest.approx(1 / 3)


def test_paths_to_a_gateway_that_is_away_are_excluded_for_that() -> None:
    tree = PODS
    state, rest = fabric_of(tree)
    state.port_changed(tree.switch("e1_1"), 3, Reason.DOWN, 1)
    body = rest.paths("h0_1_2", OUTSIDE)
    assert {path["gateway"] for path in body["candidates"]} == {"h0_0_2", "h2_0_2"}
    assert {(path["gateway"], path["reason"]) for path in body["excluded"]} == {("h1_1_4", "link h1_1_4-e1_1 down")}
    assert body["total"] == 2 + 4 + 4
    assert sum(path["weight"] for path in body["candidates"]) == pytest.approx(1)
    assert {each["name"]: each["away"] for each in rest.fabric()["gateways"]} == {
        "h0_0_2": None,
        "h1_1_4": "link h1_1_4-e1_1 down",
        "h2_0_2": None,
    }


def test_the_packets_of_a_flow_take_the_paths_to_one_gateway_in_turn() -> None:
    _, rest = fabric_of(PODS)
    taken = set()
    for port in range(20):
        body = rest.paths("h0_1_2", OUTSIDE, packets=8, sport=port, dport=443)
        gateways = {body["candidates"][at]["gateway"] for at in body["packets"]}
        assert len(gateways) == 1
        assert len(set(body["packets"])) == sum(path["gateway"] in gateways for path in body["candidates"])
        taken |= gateways
    assert len(taken) == 3


def test_a_gateways_link_may_be_drained_and_no_other_hosts() -> None:
    state, rest = fabric_of(PODS)
    rest.put_drain("h2_0_2-e2_0")
    assert rest.fabric()["gateways"][2]["away"] == "link h2_0_2-e2_0 drained"
    assert {path["gateway"] for path in rest.paths("h0_1_2", OUTSIDE)["candidates"]} == {"h0_0_2", "h1_1_4"}
    assert state.drainable("h2_0_2-e2_0") == "h2_0_2-e2_0"
    with pytest.raises(ValueError, match="only link of its host"):
        state.drainable("h2_0_3-e2_0")
    rest.delete_drain("h2_0_2-e2_0")
    assert not state.drained


@pytest.mark.parametrize("dst", ["10.250.0.2", "224.0.0.1", "255.255.255.255", "127.0.0.1", "0.0.0.0"])
def test_what_is_no_address_outside_is_not_found(dst: str) -> None:
    _, rest = fabric_of(PODS)
    with pytest.raises(Problem) as problem:
        rest.paths("h0_1_2", dst)
    assert problem.value.status == 404


def test_without_gateways_nothing_leads_out_and_a_gateway_does_not_use_others() -> None:
    _, rest = fabric_of(FatTree(4))
    with pytest.raises(Problem) as problem:
        rest.paths("10.0.0.2", OUTSIDE)
    assert problem.value.status == 404
    assert "gateways" not in rest.fabric()
    _, rest = fabric_of(PODS)
    with pytest.raises(Problem, match="is a gateway"):
        rest.paths("h2_0_2", OUTSIDE)
    hosts = rest.hosts().page(0, 100)["hosts"]
    assert [host["name"] for host in hosts if host.get("gateway")] == [PODS.name(gateway) for gateway in PODS.gateways]
