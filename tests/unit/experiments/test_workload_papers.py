"""The workloads are those that the papers describe."""

import pytest

from experiments.workloads import WORKLOADS, Plan, Scale, WorkloadError, inter_pod_permutation
from topologies import FatTree

SCALE = Scale(4.0, 20.0)
LINK = 4e6 / 8 * 20
"""Bytes that a link carries in a run at that scale."""
SIZES = [4, 6]
SEEDS = range(2)


def built(name: str, k: int = 4, seed: int = 1, scale: Scale = SCALE) -> Plan:
    return WORKLOADS[name].build(FatTree(k), seed, scale)


def pairs(plan: Plan) -> list[str]:
    return [f"{FatTree.name(transfer.src)} {FatTree.name(transfer.dst)}" for transfer in plan.transfers]


# -- pairs ------------------------------------------------------------------------------------------------------------


def test_in_a_permutation_every_host_sends_always_to_another_pod() -> None:
    plan = built("permutation")
    assert [(one.src, one.dst) for one in plan.transfers] == inter_pod_permutation(FatTree(4), 1)
    assert {(one.bytes, one.start, one.after) for one in plan.transfers} == {(None, 0.0, ())}
    assert (plan.traced, plan.failed) == ((0,), ())


def test_no_host_has_two_ftps_and_each_has_one() -> None:
    tree, plan = FatTree(6), built("ftp", 6)
    assert len(plan.transfers) == tree.host_count // 2
    assert sorted(host for one in plan.transfers for host in (one.src, one.dst)) == sorted(tree.hosts())
    assert {(one.bytes, one.start, one.after) for one in plan.transfers} == {(None, 0.0, ())}
    # drawn from all hosts, so that some stay in their pod
    kinds = {FatTree.kind(one.src, one.dst) for seed in range(10) for one in built("ftp", 6, seed).transfers}
    assert kinds == {"intra-rack", "inter-rack", "inter-pod"}


# -- the SOPA paper's small examples ----------------------------------------------------------------------------------


def test_servers_have_the_numbers_of_figure_1() -> None:
    hosts = list(FatTree(4).hosts())  # in the order of their addresses, which is the figure's from left to right
    expected = [(hosts[src], hosts[dst]) for src, dst in [(0, 4), (0, 5), (1, 4), (1, 5)]]
    assert [(one.src, one.dst) for one in built("four-flows").transfers] == expected
    assert [(one.src, one.dst) for one in built("single-flow").transfers] == [(hosts[0], hosts[5])]
    asymmetric = [(one.src, one.dst) for one in built("asymmetric").transfers]
    assert asymmetric == [(hosts[0], hosts[4]), (hosts[8], hosts[5])]


@pytest.mark.parametrize("k", SIZES)
def test_four_flows_join_two_hosts_of_one_rack_with_two_of_another_pods(k: int) -> None:
    plan = built("four-flows", k)
    assert pairs(plan) == ["h0_0_2 h1_0_2", "h0_0_2 h1_0_3", "h0_0_3 h1_0_2", "h0_0_3 h1_0_3"]
    assert plan.traced == (0, 1, 2, 3)
    (size,) = {one.bytes for one in plan.transfers}
    assert size is not None
    # Two share a sender's link, which has time for both, and not for much more.
    assert 0.7 * LINK < 2 * size < 0.9 * LINK


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize(
    ("name", "core_rate"),
    [("single-flow", 1.0), ("single-flow-4:3", 0.75), ("single-flow-2:1", 0.5), ("single-flow-4:1", 0.25)],
)
def test_a_single_flow_has_the_same_size_at_every_oversubscription(name: str, core_rate: float, k: int) -> None:
    plan = built(name, k)
    assert plan.core_rate == core_rate
    assert pairs(plan) == ["h0_0_2 h1_0_3"]
    assert plan.traced == (0,)
    assert plan.transfers == built("single-flow", k).transfers
    # The paper's slowest got 0.296 of a link: it ends in the run's time and as much again.
    assert plan.transfers[0].bytes is not None
    assert plan.transfers[0].bytes / 0.296 < 2 * LINK


@pytest.mark.parametrize("k", SIZES)
def test_a_failed_link_leaves_one_of_two_flows_fewer_paths(k: int) -> None:
    tree, plan = FatTree(k), built("asymmetric", k)
    assert pairs(plan) == ["h0_0_2 h1_0_2", "h2_0_2 h1_0_3"]
    assert (plan.failed, plan.fail_after, plan.traced) == (("e0_0-a0_0",), None, (0, 1))
    assert plan.transfers[0].bytes == plan.transfers[1].bytes == LINK / 2
    lower, upper = plan.failed[0].split("-")
    over = [
        [{lower, upper} <= set(path.hops) for path in tree.candidate_paths(one.src, one.dst)] for one in plan.transfers
    ]
    assert any(over[0])
    assert not all(over[0])
    assert not any(over[1])


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_short_flow_starts_amid_three_long_ones_to_the_same_client(k: int, seed: int) -> None:
    scale = Scale(64.0 / k**2, 20.0)
    *long, short = built("short-flow-beside-incast", k, seed, scale).transfers
    assert [one.kind for one in (*long, short)] == ["long", "long", "long", "short"]
    (client,) = {one.dst for one in (*long, short)}
    assert len({one.src for one in (*long, short)} - {client}) == 4
    assert all(one.src.pod != client.pod for one in (*long, short))
    link = scale.rate_mbit * 1e6 / 8 * scale.seconds
    total = sum(one.bytes or 0 for one in long)
    assert 0.7 * link < total < 0.9 * link
    assert len({one.bytes for one in long}) == 1
    assert {one.start for one in long} == {0.0}
    assert {
        built("short-flow-beside-incast", k, seed, Scale(rate, 10.0)).transfers[-1].bytes for rate in (4, 1000)
    } == {64_000}
    # In the middle of what the long ones take at best.
    assert short.start == pytest.approx(total / link * scale.seconds / 2, rel=0.01)


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0])
def test_long_flows_that_are_not_longer_than_the_short_one_are_reported(rate: float) -> None:
    with pytest.raises(WorkloadError, match="give --seconds") as raised:
        built("short-flow-beside-incast", scale=Scale(rate, 1.0))
    seconds = float(str(raised.value).split("--seconds ")[1].split()[0])
    first, *_, short = built("short-flow-beside-incast", scale=Scale(rate, seconds)).transfers
    assert (first.bytes or 0) >= 2 * (short.bytes or 0)
    with pytest.raises(WorkloadError):
        built("short-flow-beside-incast", scale=Scale(rate, seconds - 1))


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize(("name", "without"), [("failure", "production"), ("failure-permutation", "permutation")])
def test_the_leftmost_aggregation_switch_fails_under_the_same_flows(name: str, without: str, k: int) -> None:
    plan, other = built(name, k), built(without, k)
    assert (plan.failed, other.failed) == (("a0_0",), ())
    assert plan.fail_after == pytest.approx(SCALE.seconds / 3)
    assert plan.transfers == other.transfers
    assert plan.traced == other.traced
