"""MCS and what its paper compares it with, in the simulator: channels, marks, windows, failures, subflows, bursts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.ns3 import build, check, simulate
from experiments.paper.series_measures import of_series
from experiments.schemes import SchemeError, named
from experiments.workloads import Plan, Scale, Transfer
from experiments.workloads import named as workload_named
from tests.helpers.simulator import MEGABYTE, MISSING, permutation, said
from topologies import Clos, FatTree, Host

pytestmark = pytest.mark.skipif(MISSING, reason="ns-3 is missing: make install-ns3")
FAST = Scale(10_000.0, 0.01)
OPTIONS = {"delay": 10_000, "send-buffer": MEGABYTE, "receive-buffer": MEGABYTE, "least-timeout": 10_000_000}


def two_racks(hosts: int, **links: float) -> Clos:
    named_links = {name.replace("__", "-"): mbit for name, mbit in links.items()}
    return Clos(1, 2, 4, 0, hosts, mbit={"host": 10_000, "edge": 10_000}, links=named_links)


def simulated(
    tree: Clos, scheme: str, plan: Plan | None = None, seed: int = 1, scale: Scale = FAST, **options: int | str
) -> tuple[RunRecord, list[FlowRecord]]:
    wanted = plan or workload_named("rack-pairs").build(tree, seed, scale)
    wanted = replace(wanted, traced=tuple(range(len(wanted.transfers))))
    given = OPTIONS | {name.replace("_", "-"): value for name, value in options.items()}
    return simulate(Run(tree, wanted, "test", named(scheme), seed, scale, 250, given))


def taken(run: RunRecord, flow: int = 0, after: float = 0.0) -> Counter[float]:
    """Count the packets of a flow in a leaf-spine fabric by spine."""
    return Counter(row[2] for row in run.arrivals[str(flow)] if row[0] >= after)


# -- channels -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "paths"), [("mcs+channels=2", 2), ("mcs", 4), ("mcs+channels=16", 4), ("per-packet", 4)]
)
def test_channels_are_spread_evenly_over_candidate_paths(scheme: str, paths: int) -> None:
    run, [flow] = simulated(two_racks(1), scheme)
    counts = taken(run)
    assert flow.completed
    assert len(counts) == paths
    assert max(counts.values()) < 1.1 * min(counts.values())


def test_channels_by_ports_are_spread_by_the_switches_hash() -> None:
    numbers = {
        channels: [
            len(taken(simulated(two_racks(1), f"mcs-ports+channels={channels}", seed=seed)[0])) for seed in range(1, 5)
        ]
        for channels in (2, 8)
    }
    assert set(numbers[2]) == {1, 2}  # of four: two ports may have one path
    assert sum(numbers[8]) > 3 * 4
    assert len(taken(simulated(two_racks(1), "ecmp-vcc")[0])) == 1


@pytest.mark.parametrize(
    ("scheme", "payload"),
    [("ecmp-vcc", 1448), ("mcs-ports", 1448), ("mcs", 1444), ("mcs-ports+channels=16", 1444), ("mptcp", 1460)],
)
def test_the_option_takes_its_bytes_of_every_packet(scheme: str, payload: int) -> None:
    plan = Plan((Transfer(Host(0, 0, 2), Host(0, 1, 2), 40 * payload),), 1.0)
    run, [flow] = simulated(two_racks(1), scheme, plan)
    assert (flow.completed, flow.packets) == (True, 40)
    least = min(row[4] for row in run.arrivals["0"])
    assert least == pytest.approx(
        (4 * 1200 + 4 * OPTIONS["delay"]) / 1e6, rel=1e-6
    )  # four links of packets of 1500 bytes


@pytest.mark.parametrize("scheme", ["mcs", "mcs-ports"])
def test_what_overtakes_is_no_loss_for_tcp(scheme: str) -> None:
    run, flows = simulated(two_racks(4), scheme)
    assert all(flow.completed for flow in flows)
    assert run.counters["dropped"] == 0
    assert sum(flow.reordered for flow in flows) > 20
    assert [(flow.fast_retransmits, flow.retransmits) for flow in flows] == [(0, 0)] * 4


def test_with_weights_alone_windows_and_acknowledgements_are_left() -> None:
    """Marks do not hold senders back, so a queue gets longer, and TCP sees what overtakes."""
    tree = FatTree(4)
    plan = Plan(tuple(Transfer(Host(pod, 0, 2), Host(0, 0, 2), 2 * MEGABYTE) for pod in (1, 2, 3)), 1.0)
    scale, longest = Scale(1000.0, 1.0), {}
    for name in ("mcs+channels=16", "sopa-feedback"):
        run, flows = simulate(Run(tree, plan, "test", named(name), 1, scale, 250, {}))
        assert all(flow.completed for flow in flows)
        longest[name] = run.counters["longest_queue"]
    assert longest["sopa-feedback"] > 2 * longest["mcs+channels=16"]
    _, spread = simulated(two_racks(4, e0_0__a0_0=5_000), "sopa-feedback")
    assert all(flow.completed for flow in spread)
    assert sum(flow.retransmits for flow in spread) > 0  # with mcs there is none


def test_a_loss_is_found_without_waiting_for_the_timer() -> None:
    """What three senders begin with is more than a queue holds; then gaps in channels let duplicate acknowledgements pass."""
    tree = FatTree(4)
    senders = ["h1_0_2", "h2_0_2", "h3_0_2"]
    plan = Plan(tuple(Transfer(tree.host(name), tree.host("h0_0_2"), 4 * MEGABYTE) for name in senders), 1.0)
    run, flows = simulate(Run(tree, plan, "test", named("mcs-ports"), 1, Scale(1000.0, 1.0), 30, {"ecn": 0}))
    assert all(flow.completed for flow in flows)
    assert run.counters["dropped"] > 0
    assert sum(flow.fast_retransmits for flow in flows) > 0
    assert sum(flow.fast_retransmits for flow in flows) > sum(flow.timeouts for flow in flows)


def test_bursts_share_a_channel() -> None:
    runs = {}
    for scheme in ("mcs", "mcs+segments=16"):
        run, [flow] = simulated(two_racks(1), scheme, burst_wait=20_000)
        assert flow.completed
        packets = sorted(run.arrivals["0"], key=lambda row: row[1])
        runs[scheme] = [len(list(group)) for _, group in groupby(packets, key=lambda row: row[2])]
    assert sorted(runs["mcs"])[len(runs["mcs"]) // 2] == 2  # eight channels on four paths
    assert sorted(runs["mcs+segments=16"])[len(runs["mcs+segments=16"]) // 2] >= 8


# -- marks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ecmp-vcc", "mcs-ports", "per-packet", "mptcp"])
def test_marks_keep_queues_short(scheme: str) -> None:
    """Two flows to one host, on its switch: with marks its queue stays far from full, without it fills."""
    tree = two_racks(2)
    plan = Plan(tuple(Transfer(Host(0, 0, number), Host(0, 1, 2), 10 * MEGABYTE) for number in (2, 3)), 0.05)
    run, flows = simulated(tree, scheme, plan)
    assert all(flow.completed for flow in flows)
    lengths = sorted(length for length in run.queues["e0_1-eth1"] if length)
    assert lengths[len(lengths) // 2] < 130
    full, _ = simulated(tree, scheme, plan, ecn=0)
    assert max(full.queues["e0_1-eth1"]) > 240


def test_marked_channels_are_chosen_less() -> None:
    """Four hosts want 40 Gbit/s of 35: by even shares the slow spine would have a quarter of the packets."""
    tree = two_racks(4, e0_0__a0_0=5_000)
    run, _ = simulated(tree, "mcs+weights=off", scale=Scale(10_000.0, 0.015))
    slow, whole = 0, 0
    for flow in range(4):
        counts = taken(run, flow, after=0.005)
        slow += counts[0]
        whole += counts.total()
    assert slow / whole < 0.21
    even, _ = simulated(tree, "per-packet", scale=Scale(10_000.0, 0.015))
    assert taken(even)[0] / taken(even).total() == pytest.approx(0.25, abs=0.01)


def test_losses_under_a_limited_window_do_not_crash_ns3() -> None:
    """TcpTxBuffer::NextSeg gives an empty segment where the receiver's window is what is sent, and not all of it is in flight."""
    scale = Scale(10_000.0, 0.005)
    tree = FatTree(4)
    plan = workload_named("half-load").build(tree, 1, scale)
    options = {**OPTIONS, "delay": 2_000, "send-buffer": 262_144, "receive-buffer": 262_144, "ecn": 12, "patience": 10}
    run, flows = simulate(Run(tree, plan, "test", named("mcs-ports"), 1, scale, 20, options))
    assert run.counters["dropped"] > 0
    assert sum(flow.completed for flow in flows) > 0.95 * len(flows)


# -- failures -------------------------------------------------------------------------------------------------------------


def test_dead_channels_are_left_without_notice() -> None:
    scale = Scale(10_000.0, 0.1)
    tree = two_racks(1)
    plan = workload_named("rack-pair-failure").build(tree, 1, scale)
    run, [flow] = simulated(tree, "mcs", plan, scale=scale, failure_notice=0, series=1_000_000)
    found = of_series(run)
    assert found["least"] < 0.1 * found["before"]
    assert found["after"] > 0.9 * found["before"]
    assert 9 <= found["back_ms"] <= 60
    assert flow.timeouts >= 1
    assert 0 in taken(run)
    assert not taken(run, after=0.02)[0]  # nothing arrives by the failed link
    told, [flow] = simulated(tree, "mcs", plan, scale=scale, series=1_000_000)
    assert sum(told.series["0"]) > sum(run.series["0"])


# -- other schemes --------------------------------------------------------------------------------------------------------


def test_subflows_have_paths_of_their_own_and_share_the_data() -> None:
    run, flows = simulated(two_racks(4), "mptcp")
    assert all(flow.completed and flow.bytes == flow.size for flow in flows)
    assert all(len(taken(run, flow)) > 1 for flow in range(4))
    assert sum(flow.packets for flow in flows) >= sum(flow.bytes for flow in flows) / 1460
    _, ecmp = simulated(two_racks(4), "ecmp")
    assert max(flow.seconds for flow in flows) < max(flow.seconds for flow in ecmp)


def test_the_reorder_buffer_hides_what_is_late() -> None:
    tree = two_racks(4, e0_0__a0_0=5_000)
    _, flows = simulated(tree, "per-packet", resequencing=2_000_000)
    assert all(flow.completed for flow in flows)
    assert sum(flow.reordered for flow in flows) > 0
    assert sum(flow.fast_retransmits for flow in flows) == 0


@pytest.mark.parametrize("scheme", ["mcs-ports", "mptcp", "ecmp"])
def test_a_series_has_every_packet(scheme: str) -> None:
    run, flows = simulated(two_racks(2), scheme, series=1_000_000)
    assert run.series_ms == 1.0
    for flow in flows:
        values = run.series[str(flow.flow)]
        payload = 10_000 * 1460 / 1500
        assert max(values) <= 1.01 * payload
        arrived = sum(values) * 1e6 / 8 / 1000
        assert flow.bytes - 100 <= arrived <= flow.bytes + 100 + 1460 * flow.retransmits


# -- bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("scheme mcs\n", "channels must be from 1 to 16 with MCS"),
        ("scheme mcs-ports\nchannels 17\n", "channels must be from 1 to 16"),
        ("scheme ecmp\nchannels 8\n", "0 with other schemes, not 8"),
        ("scheme mcs\nchannels 8\nsack 0\n", "channels require sack"),
        ("scheme mptcp\nsubflows 0\n", "subflows must be from 1 to 64"),
        ("scheme mptcp\nsubflows 8\nloss-recovery ns-3.20\n", "subflows have no loss-recovery"),
        ("scheme rps\nsegments 4\n", "1 with other schemes than sopa, mcs and mcs-ports"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(text: str, problem: str) -> None:
    done = said(Path(build()), text)
    assert done.returncode == 2
    assert problem in done.stderr


@pytest.mark.parametrize("scheme", ["mcs+sack=off", "ecmp-vcc+segments=4", "mcs+fr=3+rack=off"])
def test_settings_that_they_have_not(scheme: str) -> None:
    with pytest.raises(SchemeError):
        check(named(scheme))


def test_a_permutation_of_a_fat_tree_is_scattered_over_pods() -> None:
    tree = FatTree(4)
    plan = replace(permutation(traced=tuple(range(16))), seconds=1.0)
    for scheme in ("mcs", "mcs-ports", "mptcp"):
        run, flows = simulate(Run(tree, plan, "test", named(scheme), 1, Scale(1000.0, 1.0)))
        assert all(flow.completed for flow in flows)
        paths = {(row[2], row[3]) for row in run.arrivals["0"]}
        assert len(paths) > 1
