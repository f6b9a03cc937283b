"""Collective operations: every step is a permutation, and what is sent in all is what the operation needs."""

from collections import Counter, defaultdict
from itertools import permutations

import pytest

from experiments.workloads import Plan, Scale, named
from experiments.workloads.checks import fair_share
from experiments.workloads.collectives import SHARE
from topologies import Clos, FatTree, Host

SCALE = Scale(4.0, 20.0)
LEAVES = Clos(1, 3, 2, 0, 3)
OVERSUBSCRIBED = Clos(2, 2, 2, 2, 4, mbit={"host": 10, "edge": 10, "aggregation": 20})


def built(name: str, tree: Clos = LEAVES, seed: int = 1) -> Plan:
    return named(name).build(tree, seed, SCALE)


def steps(plan: Plan) -> list[list[int]]:
    """The transfers by step: one more than the latest step of those that they follow."""
    of: dict[int, int] = {}
    for number, one in enumerate(plan.transfers):
        of[number] = 1 + max((of[before] for before in one.after), default=-1)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for number, step in of.items():
        found[step].append(number)
    return [found[step] for step in sorted(found)]


def assert_all_know_all(plan: Plan) -> None:
    """Check that every host has everybody's block in the end, or a sum with it."""
    known = {one.src: {one.src} for one in plan.transfers}
    for step in steps(plan):
        now = {host: set(parts) for host, parts in known.items()}
        for number in step:
            known[plan.transfers[number].dst] |= now[plan.transfers[number].src]
    assert all(parts == set(known) for parts in known.values())


@pytest.mark.parametrize(
    "name", ["all-to-all", "all-reduce-ring", "all-reduce-halving+8", "all-to-all+5", "all-reduce-ring+4", "all-gather"]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_step_is_a_permutation_that_waits_for_its_hosts_step_before(name: str, seed: int) -> None:
    plan = built(name, seed=seed)
    assert plan.collective
    for before, now in zip([[], *steps(plan)], steps(plan), strict=False):
        for hosts in ([plan.transfers[n].src for n in now], [plan.transfers[n].dst for n in now]):
            assert len(hosts) == len(set(hosts)) == int(name.partition("+")[2] or LEAVES.host_count)
        for number in now:
            one = plan.transfers[number]
            ends = {n for n in before if one.src in (plan.transfers[n].src, plan.transfers[n].dst)}
            assert set(one.after) == ends
            assert len(one.after) == (0 if not before else 2)


def test_all_to_all_sends_one_block_from_each_to_each() -> None:
    plan = built("all-to-all")
    assert len(steps(plan)) == LEAVES.host_count - 1
    pairs = Counter((one.src, one.dst) for one in plan.transfers)
    assert pairs == Counter(permutations(LEAVES.hosts(), 2))
    assert len({one.bytes for one in plan.transfers}) == 1


@pytest.mark.parametrize(("name", "count", "rounds"), [("all-reduce-ring", 9, 16), ("all-reduce-halving", 8, 6)])
def test_an_all_reduce_sums_all_vectors_everywhere(name: str, count: int, rounds: int) -> None:
    plan = built(f"{name}+{count}")
    assert len(steps(plan)) == rounds
    vector = SCALE.bytes_of(SHARE * fair_share(LEAVES)) * count / (2 * (count - 1))
    assert_all_know_all(plan)
    sent: Counter[Host] = Counter()
    for one in plan.transfers:
        sent[one.src] += one.bytes or 0
    # the least that every host of an all-reduce has to send: 2 (N-1)/N vectors (Patarasuk and Yuan, 2009)
    assert all(total == pytest.approx(vector * 2 * (count - 1) / count, rel=0.001) for total in sent.values())
    assert Counter(one.kind for one in plan.transfers) == dict.fromkeys(("reduce-scatter", "all-gather"), len(plan.transfers) // 2)


def test_an_all_gather_brings_every_block_to_every_host() -> None:
    plan = built("all-gather+5")
    assert_all_know_all(plan)
    assert sum(one.bytes or 0 for one in plan.transfers) == pytest.approx(5 * SCALE.bytes_of(SHARE * fair_share(LEAVES)), rel=0.001)


@pytest.mark.parametrize("zipf", [0, 1, 1.5])
def test_experts_get_tokens_by_their_popularity_and_send_as_many_back(zipf: float) -> None:
    plan = built(f"mixture-of-experts+zipf={zipf}")
    dispatch, combine = steps(plan)
    sizes = {(plan.transfers[n].src, plan.transfers[n].dst): plan.transfers[n].bytes or 0 for n in dispatch}
    assert sorted(sizes) == sorted(permutations(LEAVES.hosts(), 2))
    assert {(plan.transfers[n].dst, plan.transfers[n].src): plan.transfers[n].bytes for n in combine} == sizes
    for number in combine:  # an expert begins to answer when it has everything
        its = plan.transfers[number].src
        assert set(plan.transfers[number].after) == {n for n in dispatch if its in (plan.transfers[n].src, plan.transfers[n].dst)}
    received: Counter[Host] = Counter()
    for (_, dst), size in sizes.items():
        received[dst] += size
    most, *others = sorted(received.values(), reverse=True)
    # the busiest host's link carries the same at any skew
    assert most == pytest.approx(SCALE.bytes_of(SHARE * fair_share(LEAVES)) / 2, rel=0.001)
    assert [other / most for other in others] == pytest.approx([rank**-zipf for rank in range(2, 10)], rel=0.001)


def test_jobs_at_once_share_no_host_and_wait_for_none_of_another() -> None:
    plan = built("all-reduce-ring,all-gather+3+jobs=3")
    hosts: defaultdict[int, set[Host]] = defaultdict(set)
    for one in plan.transfers:
        hosts[one.job] |= {one.src, one.dst}
        assert all(plan.transfers[before].job == one.job for before in one.after)
    assert [len(its) for its in hosts.values()] == [3, 3, 3]
    assert len(set().union(*hosts.values())) == 9
    assert Counter(one.job for one in plan.transfers) == {0: 12, 1: 6, 2: 12}


def test_it_sends_as_much_as_the_fabric_carries_in_the_time() -> None:
    assert fair_share(FatTree(4)) == fair_share(FatTree(6)) == 1
    assert fair_share(OVERSUBSCRIBED) == pytest.approx(1 / 2)
    assert fair_share(Clos(1, 2, 2, 0, 3)) == pytest.approx(2 / 3)
    assert fair_share(Clos(1, 2, 2, 0, 3, links={"e0_1-a0_0": "absent"})) == pytest.approx(1 / 3)
    assert fair_share(Clos(1, 1, 1, 0, 8)) == 1
    whole, half = (sum(one.bytes or 0 for one in built("all-to-all+8", tree).transfers) for tree in (FatTree(4), OVERSUBSCRIBED))
    assert half == pytest.approx(whole / 2, rel=0.001)


@pytest.mark.parametrize("tree", [LEAVES, OVERSUBSCRIBED, Clos(2, 1, 2, 2, 2, links={"e0_0-a0_0": "absent"})], ids=repr)
@pytest.mark.parametrize("name", ["permutation", "permutation-transfers", "ftp", "production", "failure"])
def test_workloads_of_the_papers_run_on_any_fabric(name: str, tree: Clos) -> None:
    assert built(name, tree).transfers
