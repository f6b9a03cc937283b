"""Baselines of the field in the simulator: each shows the shape that its own paper says of it."""

from collections import Counter
from itertools import groupby, pairwise
from statistics import mean, pstdev

import pytest

from experiments.core.records import FlowRecord, RunRecord
from experiments.workloads import BadLink, Plan, Transfer
from tests.helpers.simulator import MEGABYTE, NEEDS_NS3, permutation, simulated, taken, transfers
from topologies import Clos

pytestmark = NEEDS_NS3

SLOW = Clos(pods=1, edges=2, aggregations=2, cores=0, hosts=8, links={"e0_0-a0_1": 0.2})
"""Two leaves and two spines, to the second of which one leaf has a fifth of the rate: a sixth of what leaves it."""
SPINES = Clos(pods=1, edges=4, aggregations=8, cores=0, hosts=8)
GAP = 500_000
"""ns, of flowlets by default."""


def from_slow_leaf(scheme: str, **options: int) -> tuple[RunRecord, list[FlowRecord]]:
    hosts = list(SLOW.hosts())
    plan = Plan(tuple(Transfer(*pair, None) for pair in zip(hosts[:8], hosts[8:], strict=True)), 0.1, traced=tuple(range(8)))
    return simulated(plan, scheme, SLOW, **options)


def departures(run: RunRecord, flow: int) -> list[tuple[int, int]]:
    """Return when a flow's packets left their host, in ns, and by which uplink of the leaf."""
    return sorted((round(1e9 * at - 1e6 * delay), int(up1)) for at, _, up1, _, delay in run.arrivals[str(flow)])


def share_of_slow(run: RunRecord) -> float:
    ways = Counter(up1 for flow in range(8) for _, up1 in departures(run, flow))
    return ways[1] / ways.total()


def test_letflow_changes_paths_in_gaps_only_and_its_flowlets_are_shorter_where_it_is_slow() -> None:
    """Its paper's explanation: paths are drawn evenly, and what goes over them follows from the lengths of flowlets."""
    run, _ = from_slow_leaf("letflow")
    flowlets: tuple[list[int], list[int]] = ([], [])
    for flow in range(8):
        sent = departures(run, flow)
        starts = [0, *(place for place, (one, other) in enumerate(pairwise(sent), 1) if other[0] - one[0] > GAP), len(sent)]
        for first, last in pairwise(starts):
            [way] = {up1 for _, up1 in sent[first:last]}
            flowlets[way].append(last - first)
    fast, slow = flowlets
    assert min(len(fast), len(slow)) > 20
    assert 0.7 < len(fast) / len(slow) < 1.4
    assert mean(fast) > 2.5 * mean(slow)
    assert share_of_slow(run) == pytest.approx(1 / 6, abs=0.03)
    every_packet, _ = from_slow_leaf("letflow", flowlet_gap=0)
    assert share_of_slow(every_packet) == pytest.approx(1 / 2, abs=0.03)
    never, _ = from_slow_leaf("letflow", flowlet_gap=100_000_000)
    assert all(len({up1 for _, up1 in departures(never, flow)}) == 1 for flow in range(8))


def spread_of_uplinks(scheme: str, **options: int) -> float:
    """Return the standard deviation of the queues of a leaf's uplinks, the mean over leaves and time, at 80% load."""
    hosts = list(SPINES.hosts())
    plan = Plan(tuple(Transfer(*pair, None) for pair in zip(hosts, hosts[8:] + hosts[:8], strict=True)), 0.01)
    run, flows = simulated(plan, scheme, SPINES, pacing=800, spread=100_000, resequencing=2_000_000, **options)
    assert min(flow.mbit for flow in flows) > 750
    spreads = []
    for leaf in (one for one in SPINES.switches() if SPINES.name(one).startswith("e")):
        ports = [f"{SPINES.name(leaf)}-eth{port}" for port, peer in SPINES.ports(leaf).items() if SPINES.name(peer)[0] == "a"]
        lengths = [run.queues[port] for port in ports]
        assert len(lengths) == 8
        spreads += [pstdev(at) for at in zip(*lengths, strict=True)]
    return mean(spreads)


def test_drill_keeps_uplinks_even_with_few_choices_and_adaptive_routing_with_all() -> None:
    """The measure and the order of DRILL's paper; with one sample and no memory it is a spray at random."""
    random, one, drill, adaptive = (
        spread_of_uplinks("drill", drill_samples=1, drill_memory=0),
        spread_of_uplinks("drill", drill_samples=1),
        spread_of_uplinks("drill"),
        spread_of_uplinks("adaptive"),
    )
    assert drill < 0.4 * random
    assert drill < one < random
    assert adaptive < drill
    assert spread_of_uplinks("drill", drill_samples=8, drill_memory=0) == adaptive


@pytest.mark.parametrize("scheme", ["drill", "adaptive"])
def test_what_looks_at_queues_sends_a_slow_uplink_its_share(scheme: str) -> None:
    run, flows = from_slow_leaf(scheme)
    assert share_of_slow(run) == pytest.approx(1 / 6, abs=0.03)
    assert sum(flow.mbit for flow in flows) > 2.5 * sum(flow.mbit for flow in from_slow_leaf("rps")[1])


def test_presto_gives_flowcells_in_order_to_tcp() -> None:
    run, flows = simulated(permutation(traced=(0,)), "presto", queue=1000, resequencing=5_000_000)
    _, raw = simulated(permutation(), "presto", queue=1000, resequencing=0)
    assert run.counters["dropped"] == 0
    assert sum(flow.reordered for flow in flows) > 1000
    assert sum(flow.fast_retransmits for flow in flows) == 0
    assert sum(flow.fast_retransmits for flow in raw) > 50
    assert sum(flow.mbit for flow in flows) > 1.4 * sum(flow.mbit for flow in raw)
    ways = [(up1, up2) for _, _, up1, up2, _ in sorted(run.arrivals["0"], key=lambda row: row[1])]
    cells = [(way, len(list(packets))) for way, packets in groupby(ways)]
    assert [way for way, _ in cells[4:]] == [way for way, _ in cells[:-4]]  # in turn
    assert {count for _, count in cells[:-1]} <= {43, 44, 45}  # of 1,480 bytes in 64 KB


def test_presto_waits_for_nothing_within_a_flowcell() -> None:
    bad = BadLink("a0_0-c0_1", "c0_1", 0.0, loss=0.01)
    run, [flow] = simulated(transfers(4 * MEGABYTE, "h0_0_2 h2_0_2", bad=(bad,)), "presto", resequencing=100_000_000)
    assert run.bad[0]["lost"] > 5
    assert flow.completed
    assert flow.seconds < 0.05  # of 34 ms without a loss: no loss has waited for 100 ms


def with_dctcp(scheme: str, seed: int, **options: int) -> tuple[RunRecord, list[FlowRecord]]:
    return simulated(
        permutation(size=4 * MEGABYTE, seed=seed, traced=(0,)), scheme, seed=seed, congestion="Dctcp", ecn=20, **options
    )


@pytest.mark.parametrize("seed", range(1, 4))
def test_conweave_moves_flows_off_congested_paths_and_keeps_their_order(seed: int) -> None:
    """The aim of its paper: no flow is left behind others on a path, and hosts see nothing of the moves."""
    run, flows = with_dctcp("conweave", seed)
    assert len(taken(run)) == 4
    assert run.counters["dropped"] == 0
    assert sum(flow.reordered for flow in flows) == 0
    slowest = min(flow.mbit for flow in flows)
    assert all(slowest > 1.1 * min(flow.mbit for flow in with_dctcp(scheme, seed)[1]) for scheme in ("ecmp", "letflow"))


def test_conweave_gives_up_the_last_packet_on_the_former_path_in_time() -> None:
    bad = tuple(BadLink(f"e0_0-a0_{index}", f"a0_{index}", 0.0, loss=0.02) for index in range(2))
    run, flows = simulated(
        transfers(4 * MEGABYTE, "h0_0_2 h2_0_2", "h0_0_3 h2_0_3", bad=bad),
        "conweave",
        congestion="Dctcp",
        ecn=20,
        least_timeout=5_000_000,
    )
    assert sum(link["lost"] for link in run.bad) > 50
    assert all(flow.completed for flow in flows)


def test_conweave_leaves_a_failed_path_at_once() -> None:
    run, flows = simulated(
        transfers(4 * MEGABYTE, "h0_0_2 h2_0_2", failed=("a0_0",), fail_after=0.01, traced=(0,)),
        "conweave",
        congestion="Dctcp",
        ecn=20,
    )
    assert {way[0] for way in taken(run, after=0.02)} == {1}
    assert flows[0].completed
