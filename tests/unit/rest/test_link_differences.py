"""What differences between paths say of their links, on fabrics of all kinds with links that lose or delay probes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.rest.trace_answer import LinkGroup, Traced, differences, links_of, quantile
from tests.helpers.random_fabrics import random_fabric, some_pairs
from topologies import Clos, FatTree, Host

PROBES = 200
SIX = FatTree(6)
ENDS = SIX.host("h0_0_2"), SIX.host("h1_1_2")
EVERYWHERE = sorted({link for up in SIX.choices_between(*ENDS) for link in links_of(SIX, *ENDS, up)})


def simulated(
    tree: Clos, src: Host, dst: Host, lossy: dict[str, float], slow: dict[str, int], seed: int = 1, probes: int = PROBES
) -> list[Traced]:
    """What probes find on all paths between two hosts, each link of which takes 10 to 20 us, and more where it is slow."""
    choose = random.Random(seed)
    names = [links_of(tree, src, dst, up) for up in tree.choices_between(src, dst)]
    base = {name: 10_000 + choose.randrange(0, 10_000) for path in names for name in path}
    traced = []
    for path in names:
        lost, delays = [0, 0], []
        for _ in range(probes):
            gone = next((way for way in (0, 1) for name in path if choose.random() < lossy.get(name, 0.0)), None)
            if gone is None:
                delays.append(sum(2 * base[name] + slow.get(name, 0) for name in path) + choose.randrange(2_000))
            else:
                lost[gone] += 1
        traced.append(Traced(path, probes, *lost, delays=sorted(delays)))
    return traced


def group_of(groups: tuple[LinkGroup, ...], link: str) -> LinkGroup:
    [found] = [group for group in groups if link in group.links]
    return found


def between_racks(tree: Clos, seed: int) -> tuple[Host, Host] | None:
    pairs = some_pairs(tree, 20, seed)
    return next((pair for pair in pairs if len(tree.choices_between(*pair)) > 1), None)


@given(st.integers(0, 10**6))
def test_every_link_is_in_one_group_whose_paths_are_those_that_cross_it(seed: int) -> None:
    tree = random_fabric(seed)
    for src, dst in some_pairs(tree, 3, seed):
        paths = [links_of(tree, src, dst, up) for up in tree.choices_between(src, dst)]
        groups = differences([Traced(path, 1) for path in paths]).groups
        crossing = {link: [index for index, path in enumerate(paths) if link in path] for path in paths for link in path}
        assert sorted(link for group in groups for link in group.links) == sorted(crossing)
        assert all(list(group.paths) == crossing[link] for group in groups for link in group.links)
        assert len({group.paths for group in groups}) == len(groups)


@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.3]))
def test_a_link_that_loses_is_in_the_only_group_with_loss(seed: int, loss: float) -> None:
    tree = random_fabric(seed)
    pair = between_racks(tree, seed)
    if pair is None:
        return
    links = sorted({link for up in tree.choices_between(*pair) for link in links_of(tree, *pair, up)})
    bad = random.Random(seed).choice(links)
    groups, undecided = differences(simulated(tree, *pair, {bad: loss}, {}, seed))
    assert not undecided
    assert [group for group in groups if group.loss] == [group_of(groups, bad)]
    both_ways = 1 - (1 - loss) ** 2
    assert group_of(groups, bad).loss == pytest.approx(both_ways, abs=0.2)


@given(st.sampled_from([4, 6, 8, 12]), st.integers(0, 10**6))
def test_two_links_that_lose_are_both_named_unless_they_are_in_one_group(k: int, seed: int) -> None:
    tree, choose = FatTree(k), random.Random(seed)
    src, dst = tree.host("h0_0_2"), tree.host("h1_1_2")
    paths = [links_of(tree, src, dst, up) for up in tree.choices_between(src, dst)]
    groups = differences([Traced(path, 1) for path in paths]).groups
    bad = choose.sample([group.links[0] for group in groups if len(group.paths) == 1], 2)
    found, _ = differences(simulated(tree, src, dst, dict.fromkeys(bad, 1.0), {}, seed, probes=40))
    named = {link for group in found if group.loss for link in group.links}
    # at k=4 all paths of one aggregation switch lose if both are its: the links that they share explain it then
    assert all(named & set(path) for path in paths if set(bad) & set(path))
    assert not any(named & set(path) for path in paths if not set(bad) & set(path))
    if k > 4:
        assert set(bad) <= named


@given(st.integers(0, 10**6))
def test_a_slow_link_is_in_the_group_with_that_much_more_delay_than_those_beside_it(seed: int) -> None:
    tree = FatTree(random.Random(seed).choice([4, 6, 8]))
    src, dst = tree.host("h0_0_2"), tree.host("h1_1_2")
    choices = tree.choices_between(src, dst)
    bad = random.Random(seed).choice(links_of(tree, src, dst, choices[seed % len(choices)])[1:-1])
    groups, _ = differences(simulated(tree, src, dst, {}, {bad: 1_000_000}, seed, probes=30))
    for group in groups[1:]:
        median = group.delay["median"]
        assert median is not None
        assert median >= 0
        assert (median > 900_000) == (bad in group.links)


@pytest.mark.parametrize(
    "lossy", [{"h0_0_2-e0_0": 0.02}, dict.fromkeys(EVERYWHERE, 0.0003)], ids=["at the host's link", "at random"]
)
def test_what_all_paths_lose_alike_names_no_group_beside_the_whole(lossy: dict[str, float]) -> None:
    named = whole = 0
    for seed in range(200):
        groups, undecided = differences(simulated(SIX, *ENDS, lossy, {}, seed, probes=50))
        named += any(group.loss for group in groups[1:])
        whole += groups[0].loss > 0
        assert undecided <= 5
    assert named <= 6  # of 200, with an error of 1%
    assert whole > 150 or len(lossy) > 1


def test_one_lost_probe_is_undecided_and_one_path_is_one_group() -> None:
    tree = FatTree(4)
    src, dst = tree.host("h0_0_2"), tree.host("h1_1_2")
    paths = simulated(tree, src, dst, {}, {}, probes=20)
    paths[1] = paths[1]._replace(lost_unknown=1)
    assert differences(paths).undecided == 1
    assert not any(group.loss for group in differences(paths).groups)
    [alone] = differences(paths[1:2]).groups
    assert alone.links == links_of(tree, src, dst, (1, 0))
    assert alone.loss == 1 / 20


def test_a_path_without_an_answer_has_no_delay() -> None:
    paths = [Traced(("h-e", "e-a"), 5, lost_unknown=5), Traced(("h-e", "e-b"), 5, delays=(7, 8, 9, 9, 9))]
    groups, undecided = differences(paths)
    assert [group.delay["median"] for group in groups] == [9, None, 0]
    assert [group.loss for group in groups] == [0.0, 1.0, 0.0]
    assert undecided == 0
    assert differences([]) == ((), 0)


def test_quantiles_are_nearest_ranks() -> None:
    assert quantile([], 0.5) is None
    assert [quantile(range(100), part) for part in (0.0, 0.5, 0.99)] == [0, 50, 99]
    assert quantile([3], 0.99) == 3


def test_what_a_link_loses_is_a_part_of_what_the_links_that_all_cross_leave() -> None:
    paths = [Traced(("h-e", f"e-a{at}"), 100, lost_out=55 if at == 3 else 10) for at in range(4)]
    groups, undecided = differences(paths)
    assert undecided == 0
    assert [group.loss for group in groups] == pytest.approx([0.1, 0.0, 0.0, 0.0, 0.5])
