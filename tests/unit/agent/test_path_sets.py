"""The path sets that an agent computes are those that the controller returns over REST, without those that the host avoids."""

import random
from collections import Counter
from ipaddress import IPv4Address, IPv4Network

import pytest

from flowrules import label
from flowrules.label import UNUSED
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section
from sopa_ryu.agent.paths.path_sets import PathSets, path_table
from sopa_ryu.agent.paths.path_table import GATEWAY_SLOTS, PARAMETERS, PathTable, Policy, WayOut
from tests.helpers.path_tables import decode
from topologies import Clos, Failures, FatTree
from topologies.failures import Reason
from topologies.weights import weights

TREE = FatTree(4)
FAR, NEAR, OWN = (TREE.ip(TREE.host(name)) for name in ("h2_1_3", "h0_1_2", "h0_0_3"))


def sets_of(tree: Clos = TREE, **options: bool) -> PathSets:
    return PathSets(tree, next(tree.hosts()), 7, Policy.ROUND_ROBIN, **options)


def table_of(sets: PathSets, failures: Failures, avoided: Avoided = NOTHING) -> PathTable:
    table = sets.follow(failures, avoided)
    assert table is not None
    return table


def avoiding(*sections: Section) -> Avoided:
    return Avoided(frozenset(sections))


def down(*names: str) -> Failures:
    return Failures(TREE, dict.fromkeys(names, "down"))


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("broken", [(), ("a0_0-c0_0",), ("a0_0", "e1_0-a1_0")])
def test_the_table_has_exactly_the_usable_candidate_paths_by_their_weights(k: int, broken: tuple[str, ...]) -> None:
    tree = FatTree(k)
    failures, src = Failures(tree, dict.fromkeys(broken, "down")), next(tree.hosts())
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


def test_a_fabric_whose_second_spine_has_half_the_rate_has_each_third_packet_there() -> None:
    tree = Clos(1, 3, 2, 0, 2, mbit={"edge": 10}, links={f"e0_{leaf}-a0_1": 5 for leaf in range(3)})
    far = tree.ip(tree.host("h0_2_2"))
    table = table_of(sets_of(tree), Failures(tree))
    assert table.candidates(far) == ((0, 0xFF), (1, 0xFF), (0, 0xFF))
    assert len(table.sets) == 2
    alike = table_of(sets_of(tree, weighted=False), Failures(tree))
    assert alike.candidates(far) == ((0, 0xFF), (1, 0xFF))


def test_a_healthy_fabric_needs_three_sets_however_large_it_is() -> None:
    table = table_of(sets_of(FatTree(48)), Failures(FatTree(48)))
    assert (len(table.sets), len(table.destinations)) == (3, 48 * 24)
    assert len(table.encode()) < 200_000


@pytest.mark.parametrize("address", ["10.4.0.2", "10.0.2.2", "192.168.0.1", "224.0.0.1", "255.255.255.255"])
def test_what_is_outside_the_fabric_has_no_candidates(address: str) -> None:
    assert table_of(sets_of(), down()).candidates(IPv4Address(address)) is None


@pytest.mark.parametrize("k", [4, 6])
def test_a_change_swaps_the_table_for_the_one_computed_anew_if_that_is_another(k: int) -> None:
    tree = FatTree(k)
    names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
    draw = random.Random(f"{k} follow")
    for host in draw.sample(list(tree.hosts()), 2):
        sets, failures = PathSets(tree, host, 7, Policy.ROUND_ROBIN), Failures(tree)
        table, often = sets.follow(failures), draw.sample(names, 4)
        for _ in range(40):
            name = draw.choice(often if draw.random() < 0.5 else names)
            heals = name in failures and draw.random() < 0.7  # or fails for another reason
            failures = failures.without(name) if heals else failures.with_failed(name, draw.choice(list(Reason)))
            before, table = table, path_table(tree, host, failures, 7, Policy.ROUND_ROBIN)
            assert sets.follow(failures) == (table if table != before else None)


def test_a_failure_that_excludes_no_path_of_this_host_shifts_its_weights() -> None:
    sets, one = sets_of(), down("a0_0-c0_0")
    sets.follow(one)
    other = one.with_failed("a1_0-c0_0")  # over a core switch that this host's pod has lost already
    edge = TREE.edge_of(next(TREE.hosts()))
    assert one.choices_from(edge) == other.choices_from(edge)
    assert table_of(sets, other) != table_of(sets_of(), one)


def test_only_what_a_change_touches_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sets, asked, whole = sets_of(FatTree(8)), list[object](), Failures.choices_from
    sets.follow(Failures(FatTree(8)))
    noted = lambda its, edge, pods=None: asked.append(pods) or whole(its, edge, pods)  # noqa: E731
    monkeypatch.setattr(Failures, "choices_from", noted)
    sets.follow(Failures(FatTree(8), {"e5_1-a5_0": "down"}))
    assert asked == [frozenset({5})]


def test_a_table_without_avoided_paths_follows_failures_and_healings() -> None:
    sets, one = sets_of(), down("c1_0")
    two = one.with_failed("a0_0-c0_0").with_failed("c1_1")
    every = {(0, 0), (0, 1), (1, 0), (1, 1)}
    avoided = avoiding(Section(0, 1))
    for failures, its, paths, count in [
        (down(), NOTHING, every, 0),
        (down(), avoided, every - {(0, 1)}, 6),  # to each rack of other pods
        (one, avoided, {(0, 0), (1, 1)}, 6),
        (two, avoided, {(0, 1)}, 0),  # the last one stays
        (one, avoided, {(0, 0), (1, 1)}, 6),
        (one, NOTHING, every - {(1, 0)}, 0),
    ]:
        assert set(table_of(sets, failures, its).candidates(FAR) or ()) == paths
        assert sets.avoided_paths == count
        assert sets.follow(failures, its) is None


def test_weights_of_what_is_left_stay_in_proportion() -> None:
    tree = Clos(1, 4, 3, 0, 2, mbit={"edge": 40}, links={f"e0_{leaf}-a0_1": 10 for leaf in range(4)})
    table = table_of(sets_of(tree), Failures(tree), avoiding(Section(0)))
    assert sorted(table.candidates(tree.ip(tree.host("h0_2_2"))) or ()) == [(1, 255), *[(2, 255)] * 4]


def test_of_paths_that_another_has_chosen_only_those_that_the_host_avoids_are_replaced_by_turns() -> None:
    sets, failures = sets_of(), down("c1_1")
    sets.follow(failures)
    assert sets.instead(FAR, (0, 1), 5) == (0, 1)
    sets.follow(failures, avoiding(Section(0, 1)))
    assert [sets.instead(FAR, (0, 1), turn) for turn in range(4)] == [(0, 0), (1, 0), (0, 0), (1, 0)]
    # what the host does not avoid stays, also what its version excludes and that of the arbiter does not, or the other way round
    for destination, chosen in ((FAR, (0, 0)), (FAR, (1, 1)), (NEAR, (0, UNUSED)), (OWN, (UNUSED, UNUSED))):
        assert sets.instead(destination, chosen, 3) == chosen
    sets.follow(failures, avoiding(Section(0)))
    assert {sets.instead(FAR, (0, up2), turn) for up2 in (0, 1) for turn in range(4)} == {(1, 0)}
    assert {sets.instead(NEAR, (0, UNUSED), turn) for turn in range(4)} == {(1, UNUSED)}
    for avoided in (avoiding(Section(0), Section(1)), NOTHING):  # all look dead: none is avoided
        sets.follow(failures, avoided)
        assert sets.instead(FAR, (0, 1), 2) == (0, 1)


@pytest.mark.parametrize("policy", Policy)
def test_a_policys_parameter_is_its_default_unless_another_one_is_given(policy: Policy) -> None:
    for given, wanted in ((0, PARAMETERS.get(policy, 0)), (77, 77)):
        table = path_table(TREE, next(TREE.hosts()), down(), 7, policy, given)
        assert table.parameter == decode(table.encode()).parameter == wanted


WAYS = tuple(WayOut(bytes.fromhex(f"02000a0{pod}0002"), ((0, 0),)) for pod in range(4))


@pytest.mark.parametrize("gone", WAYS)
def test_a_gateway_that_leaves_moves_its_own_flows_only(gone: WayOut) -> None:
    def slots(*ways: WayOut) -> list[bytes]:
        return [ways[at].mac for at in PathTable(IPv4Network("10.0.0.0/8"), 1, (), (), ways_out=ways).slots]

    before, after = slots(*WAYS), slots(*(way for way in WAYS if way != gone))
    assert len(before) == len(after) == GATEWAY_SLOTS
    assert {was for was, now in zip(before, after, strict=True) if was != now} == {gone.mac}
    assert min(Counter(before).values()) > GATEWAY_SLOTS / len(WAYS) / 2
