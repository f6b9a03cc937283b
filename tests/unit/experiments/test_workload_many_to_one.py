"""The workloads of the CFR paper: many senders with one receiver, and Poisson flows."""

import pytest

from experiments.workloads import Plan, Scale, WorkloadError, named
from topologies import Clos, FatTree

SCALE = Scale(1000.0, 0.1)


def built(name: str, tree: Clos | None = None, seed: int = 1, scale: Scale = SCALE) -> Plan:
    return named(name).build(tree or FatTree(4), seed, scale)


@pytest.mark.parametrize(("name", "senders"), [("incast", 15), ("incast+1", 1), ("incast+8", 8)])
def test_in_an_incast_all_send_to_one_until_the_end(name: str, senders: int) -> None:
    plan = built(name)
    assert len({one.dst for one in plan.transfers}) == 1
    assert len({one.src for one in plan.transfers}) == len(plan.transfers) == senders
    assert {(one.bytes, one.start) for one in plan.transfers} == {(None, 0.0)}
    assert plan.seconds == SCALE.seconds
    assert len({built(name, seed=seed).transfers[0].dst for seed in range(8)}) > 1


@pytest.mark.parametrize("percent", [10, 60, 100])
def test_flows_have_the_papers_sizes_and_load_the_links_as_asked(percent: int) -> None:
    tree, scale = FatTree(6), Scale(1000.0, 0.5)
    plan = built(f"uniform-load+{percent}", tree, scale=scale)
    assert named(f"uniform-load+{percent}").parameters["load_percent"] == percent
    sizes = [one.bytes or 0 for one in plan.transfers]
    assert 2_000 <= min(sizes) < 5_000
    assert 195_000 < max(sizes) <= 198_000
    assert sum(sizes) == pytest.approx(percent / 100 * 54 * scale.bytes_of(), rel=0.12)
    starts = [one.start for one in plan.transfers]
    assert starts == sorted(starts)
    assert all(one.src != one.dst for one in plan.transfers)


def test_a_run_too_short_for_any_flow_is_refused() -> None:
    with pytest.raises(WorkloadError, match="give more --seconds"):
        built("uniform-load+1", scale=Scale(1.0, 0.01))
