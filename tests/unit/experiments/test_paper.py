"""The papers' experiments: each row has runs that measure it, and tables and data say what was found."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments import workloads
from experiments.core.records import FlowRecord, ResultsError, RunRecord
from experiments.ns3 import SIMULATED, parse
from experiments.paper.bars import measure_bars
from experiments.paper.figure import Bars, Figure, Part, Row, RunData, TableCell, Variant
from experiments.paper.figure_runs import compact, markdown, read, scaled, table_cell
from experiments.paper.figures import FIGURES
from experiments.paper.measures import data, host_mbit, measure
from experiments.schemes import named
from experiments.workloads import WORKLOADS, Scale, WorkloadError
from topologies import FatTree, Level
from topologies.fabric_file import load

PAYLOAD = 1000 * 1460 / 1500


def flow(number: int = 0, mbit: float = 100.0, src: str = "h0_0_2", **changes: Any) -> FlowRecord:
    base = FlowRecord("w", "ns3", "sopa", 4, 1, 1000.0, number, "", src, "h1_0_2", 1_000_000, 0.08, mbit, 1_000_000, True, 0.0,
                      1000, 0, 0, 0, 0, 0, 0.0, True)  # fmt: skip
    return replace(base, **changes)


def run(**changes: Any) -> RunRecord:
    base = RunRecord("sopa", 1, True, 100.0, {"simulator": "abc"}, "sopa x", {}, {"dropped": 7, "hops": 99}, {})
    return replace(base, **changes)


# -- the registry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
def test_every_part_can_be_run_and_every_row_has_its_runs(figure: Figure) -> None:
    for part in figure.runs():
        assert part.seeds >= 1
        parse(part.options)
        for scheme in part.schemes:
            assert named(scheme).name.partition("+")[0] in SIMULATED
        tree = part.fabric or FatTree(min(part.k, 8))
        assert workloads.named(part.workload).build(tree, 1, Scale(part.rate_mbit, part.seconds)).transfers
    parts = {part.name: part for part in figure.parts}
    assert len(parts) == len(figure.parts)
    for row in figure.rows:
        assert {row.scheme, row.over or row.scheme} <= set(parts[row.part].schemes), row
    assert len({row.title for row in figure.rows}) == len(figure.rows)


def test_parts_of_the_same_name_are_the_same_runs() -> None:
    seen: dict[str, Part] = {}
    for part in (part for figure in FIGURES.values() for part in figure.runs()):
        before = seen.setdefault(part.name, part)
        assert replace(part, schemes=before.schemes, seeds=before.seeds) == before


def test_the_papers_flow_sizes() -> None:
    sizes = {"single-flow": 100_000_000, "four-flows": 10_000_000, "permutation": 10_000_000, "pairs": 10_000_000}
    for part in (part for figure in FIGURES.values() for part in figure.parts if part.name in sizes):
        plan = WORKLOADS[part.workload].build(FatTree(4), 1, Scale(1000.0, part.seconds))
        assert {one.bytes for one in plan.transfers} == {sizes[part.name]}
    [part] = FIGURES["short-flow"].parts
    plan = WORKLOADS[part.workload].build(FatTree(4), 1, Scale(1000.0, part.seconds))
    assert sum(one.bytes or 0 for one in plan.transfers) == pytest.approx(64_064_000, abs=2)


def test_the_fabric_of_the_cfr_paper() -> None:
    for name in ("cfr-throughput", "cfr-queues", "cfr-rtt"):
        for part in FIGURES[name].parts:
            tree = part.tree
            levels = [len(list(tree.switches(level))) for level in (Level.EDGE, Level.AGGREGATION, Level.CORE)]
            assert (levels, tree.host_count) == ([16, 8, 4], 64)
            links = ("h0_0_2-e0_0", "e0_0-a0_1", "a0_0-c0_1")
            assert [tree.capacity(tree.link_by_name(link)) for link in links] == [1_000, 2_000, 4_000]
    parts = FIGURES["cfr-throughput"].parts
    plans = [workloads.named(part.workload).build(part.tree, 1, Scale(part.rate_mbit, part.seconds)) for part in parts]
    assert [len(plan.transfers) for plan in plans] == [2, 3, 4, 5, 6, 7, 8] * 2
    assert [part.rate_mbit for part in parts] == [1_000] * 7 + [10_000] * 7


def test_a_figure_can_be_had_in_another_fabric_if_its_workloads_can() -> None:
    smaller = scaled(FIGURES["permutation"], 8, 2)
    assert [(part.k, part.seeds) for part in smaller.parts] == [(8, 2)]
    assert scaled(FIGURES["four-flows"], None, None) == FIGURES["four-flows"]
    with pytest.raises(WorkloadError, match="four-flows"):
        scaled(FIGURES["four-flows"], 2, None)
    with pytest.raises(ValueError, match="even"):
        scaled(FIGURES["permutation"], 5, None)


def test_the_fabric_and_the_sizes_of_the_mcs_paper() -> None:
    example = load(Path(__file__).parents[3] / "deploy/fabrics/two-racks.yaml")
    for name in ("mcs-channels", "mcs-schemes", "mcs-asymmetric", "mcs-gso", "mcs-fairness"):
        figure = FIGURES[name]
        for part in figure.parts:
            tree = part.tree
            assert (tree.edges, tree.aggregations) == (2, 4)
            assert (tree.capacity(tree.link_by_name("h0_0_2-e0_0")), part.rate_mbit) == (10_000, 10_000)
            assert tree.capacity(tree.link_by_name("e0_0-a0_0")) == (5_000 if name == "mcs-asymmetric" else 10_000)
            plan = WORKLOADS[part.workload].build(tree, 1, Scale(part.rate_mbit, part.seconds))
            assert {one.bytes for one in plan.transfers} == {50_000_000}
            assert len(plan.transfers) == tree.hosts_per_edge
        if figure.bars:
            assert set(figure.bars.groups.values()) == {part.name for part in figure.parts}
    assert FIGURES["mcs-channels"].parts[3].tree == example
    assert scaled(FIGURES["mcs-schemes"], 8, 1).parts[0].tree.hosts_per_edge == 1  # the fabric is that of the figure


# -- measures -------------------------------------------------------------------------------------------------------------


def test_measures_of_flows_in_all_by_kind_and_of_their_completion() -> None:
    flows = [flow(0, 100.0, fast_retransmits=3, reordered=100), flow(1, 300.0, timeouts=2, retransmits=5)]
    found = measure(run(), flows, PAYLOAD)
    assert (found["mean"], found["minimum"], found["maximum"]) == (200.0, 100.0, 300.0)
    assert found["link_percent"] == pytest.approx(100 * 200 / PAYLOAD)
    assert (found["fast_retransmits"], found["fast_retransmits_of_a_flow"]) == (3.0, 1.5)
    assert (found["timeouts"], found["retransmits"], found["dropped"]) == (2.0, 5.0, 7.0)
    assert found["reordered_percent"] == 5.0
    assert "delay_most" not in found
    assert "queue_most" not in found


def test_a_host_is_measured_over_all_its_flows_and_what_is_between_them() -> None:
    flows = [
        flow(0, src="h0_0_2", bytes=1_000_000, start=0.0, seconds=0.1),
        flow(1, src="h0_0_3", bytes=500_000, start=0.0, seconds=0.1),
        flow(2, src="h0_0_2", bytes=1_000_000, start=0.3, seconds=0.1),
    ]
    assert host_mbit(flows) == [pytest.approx(8 * 2 / 0.4), pytest.approx(8 * 0.5 / 0.1)]
    flows = [flow(0, 10.0, kind="short", timeouts=1), flow(1, 300.0, kind="long"), flow(2, 500.0, kind="long")]
    found = measure(run(), flows, PAYLOAD)
    assert (found["short_mean"], found["short_timeouts"], found["long_mean"]) == (10.0, 1.0, 400.0)
    flows = [flow(n, seconds=0.01 * (n + 1), kind="large") for n in range(3)]
    found = measure(run(), flows, PAYLOAD)
    times = [found[f"{prefix}completion_{what}"] for prefix in ("", "large_") for what in ("mean", "median", "most")]
    assert times == pytest.approx([20.0, 20.0, 30.0] * 2)
    assert "completion_mean" not in measure(run(), [flow(size=None)], PAYLOAD)


def test_measures_of_series() -> None:
    series = {"0": [1.0, *[100.0] * 9, 30.0], "1": [9.0, *[90.0] * 19]}
    found = measure(run(series=series, series_ms=1.0), [flow()], PAYLOAD)
    assert (found["steady_minimum"], found["steady_maximum"]) == (90.0, 100.0)
    assert found["steady_spread"] == pytest.approx(100 * 10 / 95)
    failed = run(
        series={"0": [50.0, *[90.0] * 10, *[0.0] * 9, *[40.0] * 5, *[80.0] * 40]}, series_ms=1.0, events=[[0.010, "l"]]
    )
    found = measure(failed, [flow()], PAYLOAD)
    assert (found["before"], found["after"], found["least"]) == (90.0, 80.0, 0.0)
    assert found["back_ms"] == 15.0  # what was on its way when the link failed still arrived


def test_measures_of_traced_packets() -> None:
    rows = [[0.001 * n, n, n % 2, 0, 0.1 + 0.001 * n] for n in range(1000)]
    found = measure(run(arrivals={"0": rows}, queues={"e0_0-eth3": [0, 5, 2]}), [flow()], PAYLOAD)
    assert (found["delay_least"], found["delay_most"]) == (pytest.approx(100), pytest.approx(1099))
    assert (found["path 0.0"], found["path 1.0"], found["deviation"]) == (50.0, 50.0, 0.0)
    assert found["queue_most"] == 5.0


def test_measures_of_the_queue_of_one_receiver() -> None:
    flows = [flow(0, 300.0, dst="h1_1_3", size=None), flow(1, 600.0, src="h0_0_3", dst="h1_1_3", size=None)]
    lengths = [0] * 10 + [1] * 60 + [2] * 25 + [9] * 5
    its = run(queues={"e1_1-eth2": lengths, "e0_0-eth3": [50] * 100}, counters={"longest_queue": 77})
    found = measure(its, flows, PAYLOAD)
    assert (found["receiver_mbit"], found["queue_longest"]) == (900.0, 77.0)
    assert found["receiver_percent"] == pytest.approx(100 * 900 / PAYLOAD)
    assert [found[f"receiver_queue_{name}"] for name in ("p50", "most", "short")] == [1.0, 9.0, 95.0]
    assert found["receiver_queue_p99"] == 9.0
    assert "receiver_mbit" not in measure(its, [flow(0), flow(1, dst="h1_1_4")], PAYLOAD)
    # a queue that was empty in all samples is not there
    assert measure(run(queues={"e0_0-eth3": [5]}), [flow()], PAYLOAD)["receiver_queue_most"] == 0.0


def test_measures_of_pings() -> None:
    its = run(round_trips=[0.01 * (n + 1) for n in range(1000)], counters={"pings": 1250})
    found = measure(its, [flow()], PAYLOAD)
    assert found["rtt_p50"] == pytest.approx(5005)
    assert found["rtt_p999"] == pytest.approx(9990, abs=1)
    assert found["pings_lost"] == pytest.approx(20)
    assert "rtt_p50" not in measure(run(), [flow()], PAYLOAD)


def test_delays_of_figure_7_are_told_apart_while_both_flows_send() -> None:
    first = [[0.0001 * n, n, 1, n % 2, 0.1] for n in range(100)]
    second = [[0.0001 * n, n, n // 2 % 2, n % 2, 0.5 if n // 2 % 2 else 0.2] for n in range(300)]
    late = [[0.5 + 0.0001 * n, 300 + n, 1, 0, 9.0] for n in range(100)]
    flows = [flow(0, seconds=0.05), flow(1, seconds=0.6, reordered=100)]
    found = measure(run(arrivals={"0": first, "1": second + late}), flows, PAYLOAD, failed=True)
    assert found["overlapping_delay"] == pytest.approx(500)
    assert found["other_delay"] == pytest.approx(200)
    assert (found["flow 0"], found["flow 1 reordered_percent"]) == (100.0, 10.0)


# -- tables and data ------------------------------------------------------------------------------------------------------

FIGURE = Figure(
    "one",
    "a paper, section 1",
    (Part("p", "permutation", 4, ("sopa", "rps"), 0.1, 2),),
    (
        Row("sopa", "p", "sopa", "mean", 200.0),
        Row("rps", "p", "rps", "mean"),
        Row("sopa, timeouts", "p", "sopa", "timeouts", 0.0),
        Row("sopa, delay", "p", "sopa", "delay_most", 5.0),
    ),
    (Variant("", "here"), Variant("slow", "slower", ("delay=1ms",))),
    ("a note",),
)
HERE, SLOWER = FIGURE.variants


def kept() -> dict[str, list[RunData]]:
    found: dict[str, list[RunData]] = {"p": [], "p-slow": []}
    for part, scheme, seed, mbit in (
        ("p", "sopa", 1, 100.0),
        ("p", "sopa", 2, 110.0),
        ("p", "sopa", 3, 900.0),
        ("p", "rps", 1, 50.0),
        ("p-slow", "sopa", 1, 40.0),
    ):
        found[part].append(data(run(scheme=scheme, seed=seed), [flow(0, mbit), flow(1, mbit)], PAYLOAD))
    return found


def found(number: int, variant: Variant = HERE) -> TableCell | None:
    return table_cell(FIGURE, FIGURE.rows[number], variant, kept())


def test_what_is_told_is_the_mean_over_the_parts_own_seeds() -> None:
    assert [(part.name, part.options) for part in FIGURE.runs()] == [("p", ()), ("p-slow", ("delay=1ms",))]
    first = found(0)
    assert first is not None  # the run with seed 3 is there for another figure
    assert (first.here, first.seeds) == (105.0, 2)
    assert first.spread == pytest.approx(12.706 * 5, rel=1e-3)  # Student's t for two values
    assert found(1) == TableCell(50.0, None, 1)
    assert found(0, SLOWER) == TableCell(40.0, None, 1)
    assert found(1, SLOWER) is None
    assert found(3) is None  # what no run has measured
    # a row over another scheme is divided seed by seed
    row = Row("rps over sopa", "p", "rps", "mean", None, "sopa")
    assert table_cell(FIGURE, row, HERE, kept()) == TableCell(0.5, None, 1)
    assert table_cell(FIGURE, replace(row, over="drb"), HERE, kept()) is None


def test_bars_of_completion_times() -> None:
    bars = Bars("m", {"1": "p", "2": "other"}, ("sopa", "rps"))
    plot = measure_bars(replace(FIGURE, bars=bars), kept())
    assert (plot.name, plot.title) == ("one", "a paper, section 1")
    assert plot.png[:4] == b"\x89PNG"


def test_the_table_of_a_figure() -> None:
    lines = markdown(FIGURE, kept()).splitlines()
    assert lines[0] == "## one"
    assert "|  | paper | here | ratio | slower | ratio |" in lines
    assert "| sopa | 200 | 105 ± 64 | 0.53 | 40 | 0.20 |" in lines
    assert "| rps |  | 50 |  |  |  |" in lines
    assert "| sopa, timeouts | 0 | 0 |  | 0 |  |" in lines  # a paper's 0 has no ratio
    assert not any(line.startswith("| sopa, delay") for line in lines)  # what no run has measured
    assert "- a note" in lines
    assert {line.count("|") for line in lines if line.startswith("|")} == {7}


def test_data_come_back_and_have_a_line_for_each_run() -> None:
    runs = kept()["p"]
    text = compact(runs)
    assert read(text) == runs
    assert len(text.splitlines()) == len(runs) + 2
    assert all(len(a) < 2000 for a, _ in pairwise(text.splitlines()))
    for damaged in ("", text[:-5], "{}", "[1]", json.dumps([{"scheme": "sopa"}])):
        with pytest.raises(ResultsError):
            read(damaged)
