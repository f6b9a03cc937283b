"""MCS and what its paper compares it with, in the simulator: channels, marks, windows, failures, subflows, bursts."""

from collections import Counter
from dataclasses import replace
from itertools import groupby
from statistics import median_low

import pytest

from experiments.core.records import FlowRecord, RunRecord
from experiments.paper.measures import of_series
from experiments.workloads import Plan, Scale, Transfer
from experiments.workloads import named as workload_named
from tests.helpers.simulator import MEGABYTE, NEEDS_NS3, simulated, taken, transfers
from topologies import Clos, Host

pytestmark = NEEDS_NS3
FAST = Scale(10_000.0, 0.01)
BUFFER = {"send_buffer": MEGABYTE, "receive_buffer": MEGABYTE}
OPTIONS: dict[str, int | str] = {"delay": 10_000, "least_timeout": 10_000_000, **BUFFER}


def two_racks(hosts: int, **links: float) -> Clos:
    named_links = {name.replace("__", "-"): mbit for name, mbit in links.items()}
    return Clos(1, 2, 4, 0, hosts, mbit={"host": 10_000, "edge": 10_000}, links=named_links)


def scattered(
    tree: Clos, scheme: str, plan: Plan | None = None, seed: int = 1, scale: Scale = FAST, **options: int | str
) -> tuple[RunRecord, list[FlowRecord]]:
    wanted = plan or workload_named("rack-pairs").build(tree, seed, scale)
    wanted = replace(wanted, traced=tuple(range(len(wanted.transfers))))
    return simulated(wanted, scheme, tree, seed=seed, scale=scale, queue=250, **(OPTIONS | options))


@pytest.mark.parametrize(("scheme", "paths"), [("mcs+channels=2", 2), ("mcs", 4), ("mcs+channels=16", 4), ("per-packet", 4)])
def test_channels_are_spread_evenly_over_candidate_paths(scheme: str, paths: int) -> None:
    run, [flow] = scattered(two_racks(1), scheme)
    counts = taken(run)
    assert flow.completed
    assert len(counts) == paths
    assert max(counts.values()) < 1.1 * min(counts.values())


def test_channels_by_ports_are_spread_by_the_switches_hash() -> None:
    def paths(scheme: str) -> list[int]:
        return [len(taken(scattered(two_racks(1), scheme, seed=seed)[0])) for seed in range(1, 5)]

    assert set(paths("mcs-ports+channels=2")) == {1, 2}  # of four: two ports may have one path
    assert sum(paths("mcs-ports+channels=8")) > 3 * 4
    assert set(paths("ecmp-vcc")) == {1}


@pytest.mark.parametrize(
    ("scheme", "payload"),
    [("ecmp-vcc", 1448), ("mcs-ports", 1448), ("mcs", 1444), ("mcs-ports+channels=16", 1444), ("mptcp", 1460)],
)
def test_the_option_takes_its_bytes_of_every_packet(scheme: str, payload: int) -> None:
    plan = Plan((Transfer(Host(0, 0, 2), Host(0, 1, 2), 40 * payload),), 1.0)
    run, [flow] = scattered(two_racks(1), scheme, plan)
    assert (flow.completed, flow.packets) == (True, 40)
    least = min(row[4] for row in run.arrivals["0"])
    assert least == pytest.approx(4 * (1200 + 10_000) / 1e6, rel=1e-6)  # four links of packets of 1500 bytes


@pytest.mark.parametrize("scheme", ["mcs", "mcs-ports"])
def test_what_overtakes_is_no_loss_for_tcp(scheme: str) -> None:
    run, flows = scattered(two_racks(4), scheme)
    assert all(flow.completed for flow in flows)
    assert run.counters["dropped"] == 0
    assert sum(flow.reordered for flow in flows) > 20
    assert [(flow.fast_retransmits, flow.retransmits) for flow in flows] == [(0, 0)] * 4


def test_with_weights_alone_windows_and_acknowledgements_are_left() -> None:
    """Marks do not hold senders back, so a queue gets longer, and TCP sees what overtakes."""
    plan = transfers(2 * MEGABYTE, *(f"h{pod}_0_2 h0_0_2" for pod in (1, 2, 3)))
    (marked, flows), (unmarked, others) = (simulated(plan, name, queue=250) for name in ("mcs+channels=16", "sopa-feedback"))
    assert all(flow.completed for flow in (*flows, *others))
    assert unmarked.counters["longest_queue"] > 2 * marked.counters["longest_queue"]
    _, spread = scattered(two_racks(4, e0_0__a0_0=5_000), "sopa-feedback")
    assert all(flow.completed for flow in spread)
    assert sum(flow.retransmits for flow in spread) > 0  # with mcs there is none


def test_a_loss_is_found_without_waiting_for_the_timer() -> None:
    """What three senders begin with is more than a queue holds; then gaps in channels let duplicate acknowledgements pass."""
    plan = transfers(4 * MEGABYTE, *(f"h{pod}_0_2 h0_0_2" for pod in (1, 2, 3)))
    run, flows = simulated(plan, "mcs-ports", queue=30, ecn=0)
    assert all(flow.completed for flow in flows)
    assert run.counters["dropped"] > 0
    assert sum(flow.fast_retransmits for flow in flows) > sum(flow.timeouts for flow in flows)


def test_bursts_share_a_channel() -> None:
    medians = {}
    for scheme in ("mcs", "mcs+segments=16"):
        run, [flow] = scattered(two_racks(1), scheme, burst_wait=20_000)
        assert flow.completed
        packets = sorted(run.arrivals["0"], key=lambda row: row[1])
        medians[scheme] = median_low(len(list(group)) for _, group in groupby(packets, key=lambda row: row[2]))
    assert medians["mcs"] == 2  # eight channels on four paths
    assert medians["mcs+segments=16"] >= 8


@pytest.mark.parametrize("scheme", ["ecmp-vcc", "mcs-ports", "per-packet", "mptcp"])
def test_marks_keep_queues_short(scheme: str) -> None:
    """Two flows to one host, on its switch: with marks its queue stays far from full, without it fills."""
    tree = two_racks(2)
    plan = Plan(tuple(Transfer(Host(0, 0, number), Host(0, 1, 2), 10 * MEGABYTE) for number in (2, 3)), 0.05)
    run, flows = scattered(tree, scheme, plan)
    assert all(flow.completed for flow in flows)
    assert median_low(length for length in run.queues["e0_1-eth1"] if length) < 130
    full, _ = scattered(tree, scheme, plan, ecn=0)
    assert max(full.queues["e0_1-eth1"]) > 240


def test_marked_channels_are_chosen_less() -> None:
    """Four hosts want 40 Gbit/s of 35: by even shares the slow spine would have a quarter of the packets."""
    tree = two_racks(4, e0_0__a0_0=5_000)
    run, _ = scattered(tree, "mcs+weights=off", scale=Scale(10_000.0, 0.015))
    counts = sum((taken(run, flow, after=0.005) for flow in range(4)), Counter[tuple[float, ...]]())
    assert counts[0,] / counts.total() < 0.21
    even, _ = scattered(tree, "per-packet", scale=Scale(10_000.0, 0.015))
    assert taken(even)[0,] / taken(even).total() == pytest.approx(0.25, abs=0.01)


def test_losses_under_a_limited_window_do_not_crash_ns3() -> None:
    """TcpTxBuffer::NextSeg gives an empty segment where the receiver's window is what is sent, and not all of it is in flight."""
    options = OPTIONS | {"delay": 2_000, "send_buffer": 262_144, "receive_buffer": 262_144, "ecn": 12, "patience": 10}
    run, flows = simulated("half-load", "mcs-ports", scale=Scale(10_000.0, 0.005), queue=20, **options)
    assert run.counters["dropped"] > 0
    assert sum(flow.completed for flow in flows) > 0.95 * len(flows)


def test_dead_channels_are_left_without_notice() -> None:
    scale = Scale(10_000.0, 0.1)
    tree = two_racks(1)
    plan = workload_named("rack-pair-failure").build(tree, 1, scale)
    run, [flow] = scattered(tree, "mcs", plan, scale=scale, failure_notice=0, series=1_000_000)
    found = of_series(run)
    assert found["least"] < 0.1 * found["before"]
    assert found["after"] > 0.9 * found["before"]
    assert 9 <= found["back_ms"] <= 60
    assert flow.timeouts >= 1
    assert (0,) in taken(run)
    assert not taken(run, after=0.02)[0,]  # nothing arrives by the failed link
    told, [flow] = scattered(tree, "mcs", plan, scale=scale, series=1_000_000)
    assert sum(told.series["0"]) > sum(run.series["0"])


def test_subflows_have_paths_of_their_own_and_share_the_data() -> None:
    run, flows = scattered(two_racks(4), "mptcp")
    assert all(flow.completed and flow.bytes == flow.size for flow in flows)
    assert all(len(taken(run, flow)) > 1 for flow in range(4))
    assert sum(flow.packets for flow in flows) >= sum(flow.bytes for flow in flows) / 1460
    _, ecmp = scattered(two_racks(4), "ecmp")
    assert max(flow.seconds for flow in flows) < max(flow.seconds for flow in ecmp)


@pytest.mark.parametrize("scheme", ["mcs-ports", "mptcp", "ecmp"])
def test_a_series_has_every_packet(scheme: str) -> None:
    run, flows = scattered(two_racks(2), scheme, series=1_000_000)
    assert run.series_ms == 1.0
    for flow in flows:
        values = run.series[str(flow.flow)]
        payload = 10_000 * 1460 / 1500
        assert max(values) <= 1.01 * payload
        arrived = sum(values) * 1e6 / 8 / 1000
        assert flow.bytes - 100 <= arrived <= flow.bytes + 100 + 1460 * flow.retransmits
