"""Bad links in the simulator, and hosts that probe: what is lost is what the draws say, and hosts leave what loses."""

from dataclasses import replace
from functools import partial
from itertools import takewhile

import pytest

from experiments.core.draws import DrawKind, hits, stream
from experiments.ns3 import SimulatorError
from experiments.workloads import BadLink, Plan, Scale
from experiments.workloads import named as workload_named
from tests.helpers.simulator import MEGABYTE, NEEDS_NS3, TREE, permutation, simulated, transfers

pytestmark = NEEDS_NS3

SLOW = Scale(8.0, 3.0)
LINK, TOWARDS = "a0_0-c0_1", "c0_1"
slowly = partial(simulated, scale=SLOW)


def one_flow(bad: BadLink, size: int | None = MEGABYTE) -> Plan:
    return transfers(size, "h0_0_2 h2_0_2", seconds=SLOW.seconds, bad=(bad,))


@pytest.mark.parametrize(
    ("bad", "kind", "harm"),
    [
        (BadLink(LINK, TOWARDS, 0.0, loss=0.1, transfers=(0,)), DrawKind.LOSS, "lost"),
        # what is corrupted crosses the fabric, and the receiver discards it
        (BadLink(LINK, TOWARDS, 0.0, corruption=0.1, transfers=(0,)), DrawKind.CORRUPTION, "corrupted"),
    ],
)
def test_a_grey_direction_harms_what_the_draws_say_and_tcp_delivers(bad: BadLink, kind: DrawKind, harm: str) -> None:
    run, [flow] = slowly(one_flow(bad))
    [its] = run.bad
    draws = hits(stream(1, LINK, TOWARDS, kind), 0.1)
    assert its[harm] == len(list(takewhile(lambda number: number < its["packets"], draws))) > 5
    assert its["lost"] + its["corrupted"] == its[harm] <= flow.retransmits
    assert flow.completed
    assert 150 < its["packets"] < 250  # a quarter of 685 segments, and retransmissions
    assert run.counters["dropped"] == 0
    other, _ = slowly(one_flow(bad), seed=2)
    assert other.bad[0][harm] != its[harm]


@pytest.mark.parametrize(
    "bad",
    [
        BadLink("a1_0-c0_1", "a1_0", 0.0, loss=1.0),
        BadLink("a1_0-c0_1", "c0_1", 0.0, loss=1.0),
        BadLink(LINK, TOWARDS, 9.0, loss=1.0),  # not yet
    ],
)
def test_the_other_direction_other_links_and_the_time_before_are_healthy(bad: BadLink) -> None:
    run, [flow] = slowly(one_flow(bad))
    assert (flow.retransmits, run.bad[0]["lost"], flow.completed) == (0, 0, True)


def test_a_slow_direction_limits_a_flow_to_its_slowest_path() -> None:
    healthy, [fast] = slowly(one_flow(BadLink(LINK, TOWARDS, 0.0, loss=0.0), None))
    run, [slow] = slowly(one_flow(BadLink(LINK, TOWARDS, 0.0, rate=0.1), None))
    assert healthy.bad[0]["packets"] is run.bad[0]["packets"] is None
    assert slow.mbit < 0.6 * fast.mbit  # four paths, of which one carries a tenth


@pytest.mark.parametrize(("bad", "ecn"), [({"rate": 0.1}, 20), ({"loss": 0.2}, 0)])
def test_skip_counters_take_turns_from_a_path_that_marks_or_loses(bad: dict[str, float], ecn: int) -> None:
    """A flow has four paths, of which one is bad: without marks only what TCP sends again says so."""
    plan = one_flow(BadLink(LINK, TOWARDS, 0.0, **bad), 4 * MEGABYTE)
    shares, times = [], []
    for scheme in ("sopa", "sopa-skip"):
        run, [flow] = simulated(replace(plan, traced=(0,)), scheme, ecn=ecn)
        rows = run.arrivals["0"]
        assert flow.completed
        shares.append(sum((row[2], row[3]) == (0, 1) for row in rows) / len(rows))
        times.append(flow.seconds)
    assert shares[1] < 0.75 * shares[0]
    assert times[1] < times[0]


def test_skip_counters_skip_nothing_in_a_healthy_permutation() -> None:
    (_, plain), (_, skipping) = (simulated(permutation(), scheme) for scheme in ("sopa", "sopa-skip"))
    assert [flow.mbit for flow in skipping] == [flow.mbit for flow in plain]


def test_throughput_over_time_shows_when_the_link_becomes_bad() -> None:
    run, _ = slowly(one_flow(BadLink(LINK, TOWARDS, 1.5, loss=0.5, transfers=(0,)), None))
    [series] = run.series.values()
    assert run.series_ms == 10.0
    before, after = series[50:150], series[200:300]
    assert sum(after) < 0.5 * sum(before)
    assert [1.5, f"{LINK} towards {TOWARDS} loses 50%"] in [list(event) for event in run.events]


def test_hosts_with_probes_leave_a_silent_direction_and_keep_their_rate() -> None:
    plan = workload_named("grey-link").build(TREE, 1, SLOW)
    [bad] = plan.bad
    dead = replace(plan, bad=(replace(bad, loss=1.0),))
    with_probes, _ = slowly(dead, "sopa+probes=on")
    without, _ = slowly(dead)
    left = [str(text) for _, text in with_probes.events if "leaves" in str(text)]
    pod = next(end for end in bad.link.split("-") if end != bad.towards)[1]
    # of those below the direction, who alone can leave it on the way out
    assert any(text.startswith(f"h{pod}_") for text in left), left
    late = slice(200, 300)
    rates = [sum(sum(its.series[str(n)][late]) for n in bad.transfers) for its in (with_probes, without)]
    assert rates[0] > 2 * rates[1]
    assert without.counters.get("probes") is None
    # 16 hosts, 50 a second by the list and 150 to busy racks, from a moment within 20 ms of the start on
    assert with_probes.counters["probes"] == pytest.approx(16 * 200 * SLOW.seconds, rel=0.03)


def test_in_a_healthy_fabric_no_probe_is_lost_and_no_path_is_left() -> None:
    plan = workload_named("grey-link+loss=0").build(TREE, 2, Scale(8.0, 1.0))
    run, _ = slowly(plan, "sopa+probes=on")
    assert run.counters["probes_lost"] == 0
    assert not [text for _, text in run.events if "leaves" in str(text)]


def test_a_link_of_a_host_is_not_bad() -> None:
    with pytest.raises(SimulatorError, match="no link between switches has the name h0_0_2-e0_0"):
        slowly(one_flow(BadLink("h0_0_2-e0_0", "e0_0", 0.0, loss=0.1)))
