"""Workloads are found by name, repeat, and refuse what a fabric or a scale cannot do."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest

from experiments.cli.experiment import MAX_LAB_TRANSFERS
from experiments.emulation.traffic.transfers import CLIENT_PORTS
from experiments.workloads import (
    WORKLOADS,
    Plan,
    Scale,
    Transfer,
    WorkloadError,
    bad_links,
    checks,
    collectives,
    inter_pod_permutation,
    named,
)
from experiments.workloads.loads import DATA_MINING, WEB_SEARCH, Points
from topologies import Clos, FatTree

SCALE = Scale(4.0, 20.0)
INCASTS = ("incast", "incast-transfers", "incast-beside")
LOADS = ("uniform-load", "web-search", "data-mining")
SEEDED = [
    *("permutation", "permutation-transfers", "permutation-anywhere", "ftp", "ftp-transfers", "production"),
    *("failure", "failure-permutation", "short-flow-beside-incast", "half-load", *INCASTS, *LOADS),
    *("grey-link", "slow-link", "corrupting-link"),
]
COLLECTIVE = {workload.name for workload in collectives.WORKLOADS}
BAD = {workload.name for workload in bad_links.WORKLOADS}
ANYWHERE = {*("permutation-anywhere", "ftp", "ftp-transfers", "production", "failure", "half-load", *INCASTS, *LOADS), *COLLECTIVE}
BETWEEN_PODS = sorted(set(WORKLOADS) - ANYWHERE)


def built(name: str, k: int = 4, seed: int = 1, scale: Scale = SCALE) -> Plan:
    return WORKLOADS[name].build(FatTree(k), seed, scale)


@pytest.mark.parametrize("tree", [FatTree(2), FatTree(4), FatTree(6), Clos(1, 5, 2, 0, 3)], ids=repr)
def test_everyone_sends_to_another_pod_or_rack_and_receives_once(tree: Clos) -> None:
    for seed in range(3):
        pairs = inter_pod_permutation(tree, seed)
        assert [src for src, _ in pairs] == list(tree.hosts())
        assert sorted(dst for _, dst in pairs) == list(tree.hosts())
        assert all((src.pod, src.edge) != (dst.pod, dst.edge) for src, dst in pairs)
        assert tree.pods == 1 or all(src.pod != dst.pod for src, dst in pairs)
    with pytest.raises(WorkloadError, match="two racks or pods"):
        inter_pod_permutation(Clos(pods=1, edges=1, aggregations=2, cores=0, hosts=3), 1)


@pytest.mark.parametrize("tree", [FatTree(2), FatTree(6), Clos(1, 1, 2, 0, 3)], ids=repr)
def test_everyone_sends_to_another_host_anywhere_and_receives_once(tree: Clos) -> None:
    for seed in range(20):
        transfers = named("permutation-anywhere").build(tree, seed, SCALE).transfers
        assert [one.src for one in transfers] == list(tree.hosts()) == sorted(one.dst for one in transfers)
        assert all(one.src != one.dst and one.bytes == SCALE.bytes_of(0.8) for one in transfers)
    assert tree.pods <= 2 or any(one.src.pod == one.dst.pod for one in transfers)


@pytest.mark.parametrize("tree", [FatTree(4), FatTree(6), Clos(1, 4, 2, 0, 3)], ids=repr)
def test_a_tornado_is_one_half_of_all_hosts_further_so_racks_send_to_racks(tree: Clos) -> None:
    transfers = named("tornado-transfers").build(tree, 1, SCALE).transfers
    hosts = list(tree.hosts())
    assert [one.src for one in transfers] == hosts == sorted(one.dst for one in transfers)
    assert {(hosts.index(one.dst) - hosts.index(one.src)) % len(hosts) for one in transfers} == {len(hosts) // 2}
    for edge in {tree.edge_of(host) for host in hosts}:
        assert len({tree.edge_of(one.dst) for one in transfers if tree.edge_of(one.src) == edge}) == 1


def test_every_workload_says_what_it_is_and_where_the_papers_have_it() -> None:
    for name, workload in WORKLOADS.items():
        assert named(name) is workload
        assert workload.name == name
        assert "section" in workload.summary or name in {"permutation-anywhere", "tornado-transfers", *INCASTS, *COLLECTIVE, *BAD}
        assert "\n" not in workload.summary
        assert workload.parameters


@pytest.mark.parametrize("k", [4, 6])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_is_one_that_the_fabric_can_carry_out_and_the_seeds(name: str, k: int) -> None:
    tree, plan = FatTree(k), built(name, k)
    assert plan.transfers
    assert plan.seconds == SCALE.seconds
    assert 0 < plan.core_rate <= 1
    assert set(plan.traced) <= set(range(len(plan.transfers)))
    assert plan.fail_after is None or 0 < plan.fail_after < plan.seconds
    for failed in plan.failed:
        tree.element(failed)
    for number, transfer in enumerate(plan.transfers):
        assert tree.has(transfer.src)
        assert tree.has(transfer.dst)
        assert transfer.src != transfer.dst
        assert transfer.bytes is None or transfer.bytes > 0
        assert 0 <= transfer.start < plan.seconds
        # Backends start at the front: what a transfer waits for has to come before it.
        assert all(0 <= before < number for before in transfer.after)
        assert name not in BETWEEN_PODS or transfer.src.pod != transfer.dst.pod
    # What is recorded packet by packet has paths to choose from.
    assert all(plan.transfers[number].src.pod != plan.transfers[number].dst.pod for number in plan.traced)
    assert built(name, k) == plan
    assert (built(name, k, 2) != plan) == (name in {*SEEDED, *COLLECTIVE})


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_run_without_time_and_links_without_a_rate_are_refused(name: str) -> None:
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(WorkloadError, match="give --seconds above 0"):
            built(name, scale=replace(SCALE, seconds=wrong))
        with pytest.raises(WorkloadError, match="give --rate above 0"):
            built(name, scale=replace(SCALE, rate_mbit=wrong))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("permutation", "smaller --k"),
        ("failure-permutation", "smaller --k"),
        ("production", "fewer --seconds"),
        ("all-to-all", r"all-to-all\+64"),
    ],
)
def test_more_transfers_than_can_be_kept_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.setattr(checks, "MAX_TRANSFERS", 15)
    with pytest.raises(WorkloadError, match=f"more than 15 transfers.*{said}"):
        built(name)


def test_every_transfer_of_the_largest_plan_has_a_port() -> None:
    assert len(CLIENT_PORTS) >= MAX_LAB_TRANSFERS


@pytest.mark.parametrize("percent", [10, 60, 100])
def test_flows_of_a_uniform_load_have_the_papers_sizes_and_load_the_links_as_asked(percent: int) -> None:
    tree, scale = FatTree(6), Scale(1000.0, 0.5)
    plan = named(f"uniform-load+{percent}").build(tree, 1, scale)
    assert named(f"uniform-load+{percent}").parameters["load_percent"] == percent
    sizes = [one.bytes or 0 for one in plan.transfers]
    assert 2_000 <= min(sizes) < 5_000
    assert 195_000 < max(sizes) <= 198_000
    assert sum(sizes) == pytest.approx(percent / 100 * 54 * scale.bytes_of(), rel=0.12)
    starts = [one.start for one in plan.transfers]
    assert starts == sorted(starts)
    assert all(one.src != one.dst for one in plan.transfers)


@pytest.mark.parametrize(("name", "points"), [("web-search", WEB_SEARCH), ("data-mining", DATA_MINING)])
def test_flows_have_the_published_sizes_and_load_the_links_as_asked(name: str, points: Points) -> None:
    """Of some 20,000 flows the share up to each point is the published one, also where links carry less than the largest flow."""
    tree = FatTree(6)
    for scale, percent in ((Scale(100_000.0, 0.1), 50), (Scale(1000.0, 1.0), 80)):
        scale = replace(scale, seconds=20_000 * scale.seconds / len(named(f"{name}+{percent}").build(tree, 1, scale).transfers))
        sizes = [one.bytes or 0 for one in named(f"{name}+{percent}").build(tree, 1, scale).transfers]
        assert max(sizes) <= min(points[-1][0], scale.bytes_of())
        for size, share in points:
            if size < scale.bytes_of():
                assert sum(one <= size for one in sizes) / len(sizes) == pytest.approx(share, abs=0.015)
        # the tail decides the load: some 3 of 10,000 flows of data mining are half of its bytes
        assert sum(sizes) == pytest.approx(percent / 100 * 54 * scale.bytes_of(), rel=0.15)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("tree", [FatTree(4), FatTree(6), Clos(1, 3, 2, 0, 4)], ids=repr)
def test_a_flow_beside_an_incast_shares_the_rack_of_its_receiver_and_no_host(tree: Clos, seed: int) -> None:
    beside, *incast = named("incast-beside").build(tree, seed, SCALE).transfers
    [receiver] = {one.dst for one in incast}
    assert [one.kind for one in (beside, *incast)] == ["beside"] + 7 * ["incast"]
    assert receiver != beside.dst
    assert receiver[:2] == beside.dst[:2]
    senders = {beside.src, *(one.src for one in incast)}
    assert len(senders) == 8
    assert all(sender[:2] != receiver[:2] for sender in senders)


def test_incasts_come_on_top_of_the_same_flows() -> None:
    tree, scale = FatTree(4), Scale(1000.0, 10.0)
    alone, mixed = (named(name).build(tree, 1, scale).transfers for name in ("web-search+30", "web-search+30+incast=8"))
    bursts = [one for one in mixed if one.kind == "incast"]
    assert [one for one in mixed if one.kind != "incast"] == list(alone)
    assert {one.kind for one in alone} == {"small", "medium", "large"}
    assert [one.start for one in mixed] == sorted(one.start for one in mixed)
    groups: defaultdict[float, list[Transfer]] = defaultdict(list)
    for one in bursts:
        groups[one.start].append(one)
    for burst in groups.values():
        [receiver] = {one.dst for one in burst}
        assert len({one.src for one in burst} - {receiver}) == 8
    assert sum(one.bytes or 0 for one in bursts) == pytest.approx(0.02 * 16 * scale.bytes_of(), rel=0.3)
