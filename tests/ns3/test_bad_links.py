"""Bad links in the simulator, and hosts that probe: what is lost is what the draws say, and hosts leave what loses."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest

from experiments.core.draws import Kind, hits, stream
from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.ns3 import SimulatorError, check, simulate
from experiments.schemes import SchemeError, named
from experiments.workloads import BadLink, Plan, Scale, Transfer
from experiments.workloads import named as workload_named
from tests.helpers.simulator import MEGABYTE, MISSING
from topologies import FatTree

pytestmark = pytest.mark.skipif(MISSING, reason="ns-3 is missing: make install-ns3")

TREE, SLOW = FatTree(4), Scale(8.0, 3.0)
LINK, TOWARDS = "a0_0-c0_1", "c0_1"


def one_flow(bad: BadLink, size: int | None = MEGABYTE) -> Plan:
    return Plan((Transfer(TREE.host("h0_0_2"), TREE.host("h2_0_2"), size),), SLOW.seconds, bad=(bad,))


def simulated(plan: Plan, scheme: str = "sopa", seed: int = 1, **options: int) -> tuple[RunRecord, list[FlowRecord]]:
    return simulate(Run(TREE, plan, "test", named(scheme), seed, SLOW, options=options))


def test_a_grey_direction_loses_what_the_draws_say_and_tcp_delivers() -> None:
    run, [flow] = simulated(one_flow(BadLink(LINK, TOWARDS, 0.0, loss=0.1, transfers=(0,))))
    [bad] = run.bad
    draws = hits(stream(1, LINK, TOWARDS, Kind.LOSS), 0.1)
    assert bad["lost"] == len(list(takewhile(lambda number: number < bad["packets"], draws))) > 5
    assert (flow.completed, flow.retransmits >= bad["lost"]) == (True, True)
    assert 150 < bad["packets"] < 250  # a quarter of 685 segments, and retransmissions
    assert run.counters["dropped"] == 0
    other, _ = simulated(one_flow(BadLink(LINK, TOWARDS, 0.0, loss=0.1, transfers=(0,))), seed=2)
    assert other.bad[0]["lost"] != bad["lost"]


@pytest.mark.parametrize(
    "bad",
    [
        BadLink("a1_0-c0_1", "a1_0", 0.0, loss=1.0),
        BadLink("a1_0-c0_1", "c0_1", 0.0, loss=1.0),
        BadLink(LINK, TOWARDS, 9.0, loss=1.0),  # not yet
    ],
)
def test_the_other_direction_other_links_and_the_time_before_are_healthy(bad: BadLink) -> None:
    run, [flow] = simulated(one_flow(bad))
    assert (flow.retransmits, run.bad[0]["lost"], flow.completed) == (0, 0, True)


def test_what_is_corrupted_crosses_the_fabric_and_the_receiver_discards_it() -> None:
    run, [flow] = simulated(one_flow(BadLink(LINK, TOWARDS, 0.0, corruption=0.1, transfers=(0,))))
    [bad] = run.bad
    draws = hits(stream(1, LINK, TOWARDS, Kind.CORRUPTION), 0.1)
    assert bad["corrupted"] == len(list(takewhile(lambda number: number < bad["packets"], draws))) > 5
    assert (bad["lost"], flow.completed, flow.retransmits >= bad["corrupted"]) == (0, True, True)


def test_a_slow_direction_limits_a_flow_to_its_slowest_path() -> None:
    healthy, [fast] = simulated(one_flow(BadLink(LINK, TOWARDS, 0.0, loss=0.0), None))
    run, [slow] = simulated(one_flow(BadLink(LINK, TOWARDS, 0.0, rate=0.1), None))
    assert healthy.bad[0]["packets"] is run.bad[0]["packets"] is None
    assert slow.mbit < 0.6 * fast.mbit  # four paths, of which one carries a tenth


def test_throughput_over_time_shows_when_the_link_becomes_bad() -> None:
    run, _ = simulated(one_flow(BadLink(LINK, TOWARDS, 1.5, loss=0.5, transfers=(0,)), None))
    [series] = run.series.values()
    assert run.series_ms == 10.0
    before, after = series[50:150], series[200:300]
    assert sum(after) < 0.5 * sum(before)
    assert [1.5, f"{LINK} towards {TOWARDS} loses 50%"] in [list(event) for event in run.events]


# -- probes -----------------------------------------------------------------------------------------------------------


def test_hosts_with_probes_leave_a_silent_direction_and_keep_their_rate() -> None:
    plan = workload_named("grey-link").build(TREE, 1, SLOW)
    [bad] = plan.bad
    dead = replace(plan, bad=(replace(bad, loss=1.0),))
    with_probes, _ = simulated(dead, "sopa+probes=on")
    without, _ = simulated(dead)
    left = [str(text) for _, text in with_probes.events if "leaves" in str(text)]
    sender = next(end for end in bad.link.split("-") if end != bad.towards)
    pod = sender[1]
    # e0_0-a0_1: up 1; a0_1-c1_0: up 1,0; of those below the direction, who alone can leave it on the way out
    assert any(text.startswith(f"h{pod}_") for text in left), left
    late = slice(200, 300)
    rate = {
        name: sum(sum(run.series[str(number)][late]) for number in bad.transfers)
        for name, run in (("with", with_probes), ("without", without))
    }
    assert rate["with"] > 2 * rate["without"]
    assert without.counters.get("probes") is None
    # 16 hosts, 50 a second by the list and 150 to busy racks, from a moment within 20 ms of the start on
    assert with_probes.counters["probes"] == pytest.approx(16 * 200 * SLOW.seconds, rel=0.03)


def test_in_a_healthy_fabric_no_probe_is_lost_and_no_path_is_left() -> None:
    plan = workload_named("grey-link+loss=0").build(TREE, 2, SLOW)
    run, _ = simulated(plan, "sopa+probes=on")
    assert run.counters["probes_lost"] == 0
    assert not [text for _, text in run.events if "leaves" in str(text)]


def test_the_same_seed_gives_the_same_run_with_probes() -> None:
    plan = workload_named("grey-link+loss=10").build(TREE, 3, Scale(8.0, 1.0))
    first, second = (simulated(plan, "sopa+probes=on") for _ in range(2))
    assert (first[0].events, first[0].bad, first[0].series) == (second[0].events, second[0].bad, second[0].series)
    assert first[1] == second[1]


def test_what_is_not_simulated_is_refused() -> None:
    with pytest.raises(SchemeError, match="probe with sopa only"):
        check(named("flowcell+probes=on"))
    check(named("sopa+probes=on"))
    check(named("sopa+probes=off"))
    with pytest.raises(SimulatorError, match="no link between switches has the name h0_0_2-e0_0"):
        simulated(one_flow(BadLink("h0_0_2-e0_0", "e0_0", 0.0, loss=0.1)))
