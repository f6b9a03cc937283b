"""Production: sizes as the paper has them, each host's flows one after the other, enough of them for the whole run."""

import random
from dataclasses import replace

import pytest

from experiments.workloads import WORKLOADS, Plan, Scale
from experiments.workloads.production import draw_size, kind_of, size_factor
from topologies import FatTree, Host

SCALE = Scale(4.0, 30.0)
DRAWS = 10_000


def built(k: int, seed: int, scale: Scale = SCALE) -> Plan:
    return WORKLOADS["production"].build(FatTree(k), seed, scale)


def by_host(plan: Plan) -> dict[Host, list[int]]:
    found: dict[Host, list[int]] = {}
    for number, transfer in enumerate(plan.transfers):
        found.setdefault(transfer.src, []).append(number)
    return found


def test_95_percent_are_below_1_mb_and_less_than_2_percent_above_10_mb() -> None:
    choose = random.Random(1)
    sizes = [draw_size(choose) for _ in range(DRAWS)]
    mice = [size for size in sizes if size < 1_000_000]
    assert len(mice) / DRAWS == pytest.approx(0.95, abs=0.009)  # four standard deviations
    assert 0.01 < sum(size > 10_000_000 for size in sizes) / DRAWS < 0.02
    assert min(sizes) >= 1_000
    assert max(sizes) <= 100_000_000
    for decade in (1_000, 10_000, 100_000):
        assert sum(decade <= size < 10 * decade for size in mice) / len(mice) == pytest.approx(1 / 3, abs=0.02)


def test_kinds_are_divided_where_the_paper_counts() -> None:
    sizes = (1_000, 999_999, 1_000_000, 10_000_000, 10_000_001)
    assert [kind_of(size) for size in sizes] == ["mouse", "mouse", "medium", "medium", "elephant"]


@pytest.mark.parametrize(("rate", "factor"), [(0.5, 0.1), (4.0, 0.1), (100.0, 0.1), (500.0, 0.5), (1000.0, 1.0), (10_000.0, 1.0)])
def test_sizes_are_scaled_with_the_rate_but_keep_a_tenth(rate: float, factor: float) -> None:
    assert size_factor(Scale(rate, 1.0)) == pytest.approx(factor)
    for transfer in built(4, 1, Scale(rate, 1.0)).transfers:
        assert transfer.bytes is not None
        unscaled = transfer.bytes / factor
        # Scaling rounds to a byte: at a boundary, either kind is right.
        assert transfer.kind in {kind_of(round(unscaled - 1 / factor)), kind_of(round(unscaled + 1 / factor))}


@pytest.mark.parametrize("k", [4, 6])
@pytest.mark.parametrize("scale", [SCALE, Scale(0.5, 10.0), Scale(1000.0, 0.5)])
def test_every_host_has_one_flow_after_the_other_for_the_whole_run_and_none_that_could_not_start(k: int, scale: Scale) -> None:
    tree, plan = FatTree(k), built(k, 1, scale)
    chains = by_host(plan)
    assert set(chains) == set(tree.hosts())
    firsts = [plan.transfers[numbers[0]].bytes for numbers in chains.values()]
    assert len(set(firsts)) > len(firsts) - 3, "hosts send the same"
    link = scale.rate_mbit * 1e6 / 8 * scale.seconds
    for numbers in chains.values():
        flows = [plan.transfers[number] for number in numbers]
        assert [one.after for one in flows] == [(), *((number,) for number in numbers[:-1])]
        assert {one.start for one in flows} == {0.0}
        sizes = [one.bytes or 0 for one in flows]
        assert sum(sizes) >= int(link)
        assert sum(sizes[:-1]) < link


@pytest.mark.parametrize("k", [4, 6])
def test_a_flow_goes_to_any_other_host_with_the_same_chance(k: int) -> None:
    tree = FatTree(k)
    plan = built(k, 1)
    counts = dict.fromkeys(tree.hosts(), 0)
    for transfer in plan.transfers:
        assert transfer.src != transfer.dst
        counts[transfer.dst] += 1
    mean = len(plan.transfers) / len(counts)
    assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())
    intra_rack = sum(tree.kind(one.src, one.dst) == "intra-rack" for one in plan.transfers) / len(plan.transfers)
    assert intra_rack == pytest.approx((tree.half - 1) / (tree.host_count - 1), rel=0.25)


@pytest.mark.parametrize("seed", range(2))
def test_a_longer_run_has_the_same_flows_first(seed: int) -> None:
    short, long = built(4, seed), built(4, seed, Scale(SCALE.rate_mbit, 2 * SCALE.seconds))
    longer = by_host(long)
    for host, numbers in by_host(short).items():
        pairs = zip(numbers, longer[host], strict=False)
        assert all(replace(long.transfers[b], after=short.transfers[a].after) == short.transfers[a] for a, b in pairs)
