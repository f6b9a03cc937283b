"""The path sets that an agent computes are those that the controller returns over REST."""

import random
from collections.abc import Iterable
from ipaddress import IPv4Address

import pytest

from flowrules import label
from flowrules.label import UNUSED
from sopa_ryu.agent.paths.avoided import Avoided, Section
from sopa_ryu.agent.paths.path_sets import PathSets, path_table
from sopa_ryu.agent.paths.path_table import PARAMETERS, Policy
from tests.helpers.path_tables import decode
from topologies import Clos, Failures, FatTree, Switch
from topologies.weights import weights


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("broken", [(), ("a0_0-c0_0",), ("a0_0", "e1_0-a1_0")])
def test_the_path_table_has_exactly_the_usable_candidate_paths_by_their_weights(
    k: int, broken: tuple[str, ...]
) -> None:
    tree = FatTree(k)
    failures = Failures(tree, dict.fromkeys(broken, "down"))
    src = next(tree.hosts())
    table = path_table(tree, src, failures, seed=7, policy=Policy.ROUND_ROBIN)
    for dst in tree.hosts():
        usable = [label.hop_bytes(path.up) for path in failures.split(src, dst)[0]]
        order = list(table.candidates(tree.ip(dst)) or ())
        if not broken:
            assert order == usable
        elif dst != src:
            assert set(order) <= set(usable)
            shares = [order.count(its) / len(order) for its in usable]
            assert shares == pytest.approx(weights(failures, src, dst))


def test_a_failure_elsewhere_that_shifts_weights_swaps_the_table() -> None:
    tree = FatTree(4)
    sets = PathSets(tree, tree.host("h0_0_2"), seed=7, policy=Policy.ROUND_ROBIN)
    before = sets.follow(Failures(tree))
    assert before is not None
    # what goes to that pod takes the other aggregation switch more often, and what goes elsewhere makes room for it
    after = sets.follow(Failures(tree, {"a1_0-c0_0": "down"}))
    assert after is not None
    elsewhere = tree.ip(tree.host("h3_0_2"))
    assert set(after.candidates(elsewhere) or ()) == set(before.candidates(elsewhere) or ())
    assert after.candidates(elsewhere) != before.candidates(elsewhere)


def test_a_fabric_whose_second_spine_has_half_the_rate_has_each_third_packet_there() -> None:
    tree = Clos(1, 3, 2, 0, 2, mbit={"edge": 10}, links={f"e0_{leaf}-a0_1": 5 for leaf in range(3)})
    table = path_table(tree, next(tree.hosts()), Failures(tree), seed=7, policy=Policy.ROUND_ROBIN)
    assert table.candidates(tree.ip(tree.host("h0_2_2"))) == ((0, 0xFF), (1, 0xFF), (0, 0xFF))
    assert len(table.sets) == 2
    alike = PathSets(tree, next(tree.hosts()), 7, Policy.ROUND_ROBIN, weighted=False).follow(Failures(tree))
    assert alike is not None
    assert alike.candidates(tree.ip(tree.host("h0_2_2"))) == ((0, 0xFF), (1, 0xFF))


@pytest.mark.parametrize("k", [4, 48])
def test_a_healthy_fabric_needs_three_sets_however_large_it_is(k: int) -> None:
    tree = FatTree(k)
    table = path_table(tree, next(tree.hosts()), Failures(tree), seed=0, policy=Policy.ROUND_ROBIN)
    assert len(table.sets) == 3
    assert len(table.destinations) == k * k // 2
    assert len(table.encode()) < 200_000


@pytest.mark.parametrize("address", ["10.4.0.2", "10.0.2.2", "192.168.0.1", "224.0.0.1", "255.255.255.255"])
def test_what_is_outside_the_fabric_has_no_candidates(address: str) -> None:
    tree = FatTree(4)
    table = path_table(tree, next(tree.hosts()), Failures(tree), seed=0, policy=Policy.ROUND_ROBIN)
    assert table.candidates(IPv4Address(address)) is None


@pytest.mark.parametrize("k", [4, 6])
def test_following_change_by_change_ends_where_computing_anew_does(k: int) -> None:
    tree = FatTree(k)
    names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
    draw = random.Random(f"{k} follow")
    for host in draw.sample(list(tree.hosts()), 2):
        sets = PathSets(tree, host, seed=7, policy=Policy.ROUND_ROBIN)
        failures, table = Failures(tree), sets.follow(Failures(tree))
        for _ in range(40):
            name = draw.choice(names)
            failures = failures.without(name) if name in failures else failures.with_failed(name)
            followed = sets.follow(failures)
            anew = path_table(tree, host, failures, 7, Policy.ROUND_ROBIN)
            if followed is None:
                assert anew == table  # there was nothing to swap
            else:
                table = followed
            assert table == anew


def test_what_touches_none_of_a_hosts_paths_swaps_nothing() -> None:
    tree = FatTree(4)
    sets = PathSets(tree, tree.host("h0_0_2"), seed=7, policy=Policy.ROUND_ROBIN)
    assert sets.follow(Failures(tree)) is not None
    for name in ("h2_0_2-e2_0", "h0_0_2-e0_0"):
        assert sets.follow(Failures(tree, {name: "down"})) is None
    assert sets.follow(Failures(tree, {"a2_0-c0_1": "down"})) is not None
    assert sets.follow(Failures(tree, {"a2_0-c0_1": "silent"})) is None  # for another reason, that is all


def test_only_what_a_change_touches_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = FatTree(8)
    sets = PathSets(tree, tree.host("h0_0_2"), seed=7, policy=Policy.ROUND_ROBIN)
    sets.follow(Failures(tree))
    asked: list[object] = []
    whole = Failures.choices_from

    def noted(failures: Failures, edge: Switch, pods: Iterable[int] | None = None) -> object:
        asked.append(pods)
        return whole(failures, edge, pods)

    monkeypatch.setattr(Failures, "choices_from", noted)
    sets.follow(Failures(tree, {"e5_1-a5_0": "down"}))
    assert asked == [frozenset({5})]


def test_of_paths_that_another_has_chosen_only_those_that_the_host_avoids_are_replaced_by_turns() -> None:
    tree = FatTree(4)
    sets = PathSets(tree, tree.host("h0_0_2"), seed=7, policy=Policy.ROUND_ROBIN)
    far, near, own = (tree.ip(tree.host(name)) for name in ("h2_1_3", "h0_1_2", "h0_0_3"))
    failures = Failures(tree, {"c1_1": "down"})
    sets.follow(failures)
    assert sets.instead(far, (0, 1), 5) == (0, 1)
    sets.follow(failures, Avoided(frozenset({Section(0, 1)})))
    assert [sets.instead(far, (0, 1), turn) for turn in range(4)] == [(0, 0), (1, 0), (0, 0), (1, 0)]
    # what the host does not avoid stays, also what its version excludes and that of the arbiter does not, or the other way round
    for destination, chosen in ((far, (0, 0)), (far, (1, 1)), (near, (0, UNUSED)), (own, (UNUSED, UNUSED))):
        assert sets.instead(destination, chosen, 3) == chosen
    sets.follow(failures, Avoided(frozenset({Section(0)})))
    assert {sets.instead(far, (0, up2), turn) for up2 in (0, 1) for turn in range(4)} == {(1, 0)}
    assert {sets.instead(near, (0, UNUSED), turn) for turn in range(4)} == {(1, UNUSED)}
    sets.follow(failures, Avoided(frozenset({Section(0), Section(1)})))  # all look dead: none is avoided
    assert sets.instead(far, (0, 1), 2) == (0, 1)
    sets.follow(failures)
    assert sets.instead(far, (0, 1), 2) == (0, 1)


@pytest.mark.parametrize("policy", Policy)
def test_a_policys_parameter_is_its_default_unless_another_one_is_given(policy: Policy) -> None:
    tree = FatTree(4)
    host, failures = next(tree.hosts()), Failures(tree)
    for given, wanted in ((0, PARAMETERS.get(policy, 0)), (77, 77)):
        table = path_table(tree, host, failures, 7, policy, given)
        assert table.parameter == wanted
        assert decode(table.encode()).parameter == wanted
