"""The papers' experiments: each row has runs that measure it, tables and data say what was found, and those of record are whole."""

import json
import math
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import workloads
from experiments.cli.paper import record
from experiments.core.records import FlowRecord, ResultsError
from experiments.emulation.lab_schemes import check
from experiments.ns3 import SIMULATED, parse
from experiments.paper.figure_runs import campaigns, compact, markdown, measure_bars, read, scaled, tables
from experiments.paper.figures import FIGURES, Bars, Figure, FigurePart, FigureRow, RunData, Variant
from experiments.paper.measures import MAX_KEPT_FLOWS, data, host_mbit, kept_mbit, measure
from experiments.paper.record import RECORD, problems, take
from experiments.paper.record import load as load_record
from experiments.schemes import named
from experiments.workloads import Scale, WorkloadError
from flowrules.label import Carrier
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.records import a_flow, a_run
from topologies import FatTree
from topologies.fabric_file import load

PAYLOAD = 1000 * 1460 / 1500
ABSENT = math.nan


A_FLOW = {"rate_mbit": 1000.0, "dst": "h1_0_2", "bytes": 1_000_000, "size": 1_000_000, "seconds": 0.08, "mbit": 100.0}
run = partial(a_run, machine={"simulator": "abc"}, counters={"dropped": 7, "hops": 99})


def flow(number: int = 0, **changes: Any) -> FlowRecord:
    return a_flow(flow=number, **A_FLOW | changes)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
def test_every_part_can_be_run_and_every_row_has_its_runs(figure: Figure) -> None:
    for part in figure.runs():
        assert part.seeds >= 1
        assert part.name.startswith("lab-") == (part.backend == "lab")  # its data are in record/lab
        parse(part.options)
        for scheme in part.schemes:
            if part.backend == "lab":
                check(named(scheme), Carrier.MAC, part.queue_packets)
            else:
                assert named(scheme).name.partition("+")[0] in SIMULATED
        tree = part.fabric or FatTree(min(part.k, 8))
        assert workloads.named(part.workload).build(tree, 1, Scale(part.rate_mbit, part.seconds)).transfers
    parts = {part.name: part for part in figure.parts}
    assert len(parts) == len(figure.parts)
    for row in figure.rows:
        assert {row.scheme, row.over or row.scheme} <= set(parts[row.part].schemes), row
    assert len({row.title for row in figure.rows}) == len(figure.rows)
    assert figure.bars is None or set(figure.bars.groups.values()) == set(parts)


def test_parts_of_the_same_name_are_the_same_runs() -> None:
    seen: dict[str, FigurePart] = {}
    for part in (part for figure in FIGURES.values() for part in figure.runs()):
        before = seen.setdefault(part.name, part)
        assert replace(part, schemes=before.schemes, seeds=before.seeds) == before


def test_figures_of_the_lab_are_run_there_and_mixed_ones_in_both(tmp_path: Path) -> None:
    figures = [FIGURES["lab-simulated"], FIGURES["lab-permutation"]]
    [simulated] = campaigns(figures, tmp_path)
    [in_lab] = campaigns(figures, tmp_path, "lab")
    assert (simulated.results.settings().backend, in_lab.results.settings().backend) == ("ns3", "lab")
    assert len(in_lab.schemes) == 18  # of both figures, once
    assert in_lab.results.settings().parameters["carrier"] == "mac"


def test_a_figure_can_be_had_in_another_fabric_if_its_workloads_can() -> None:
    smaller = scaled(FIGURES["permutation"], 8, 2)
    assert [(part.k, part.seeds) for part in smaller.parts] == [(8, 2)]
    assert scaled(FIGURES["four-flows"], None, None) == FIGURES["four-flows"]
    with pytest.raises(WorkloadError, match="four-flows"):
        scaled(FIGURES["four-flows"], 2, None)
    with pytest.raises(ValueError, match="even"):
        scaled(FIGURES["permutation"], 5, None)
    example = load(Path(__file__).parents[3] / "deploy/fabrics/two-racks.yaml")
    assert FIGURES["mcs-channels"].parts[3].tree == example
    assert scaled(FIGURES["mcs-schemes"], 8, 1).parts[0].tree.hosts_per_edge == 1  # the fabric is that of the figure


LATE = [[0.5 + 0.0001 * n, 300 + n, 1, 0, 9.0] for n in range(100)]
LONG = {
    "lengths": {"e1_1-eth2": [0] * 10 + [1] * 60 + [2] * 25 + [9] * 5, "e0_0-eth3": [50] * 100},
    "failing": {"0": [50.0, *[90.0] * 10, *[0.0] * 9, *[40.0] * 5, *[80.0] * 40]},
    "by_turns": {"0": [[0.001 * n, n, n % 2, 0, 0.1 + 0.001 * n] for n in range(1000)]},
    "overlapping": {
        "0": [[0.0001 * n, n, 1, n % 2, 0.1] for n in range(100)],
        "1": [[0.0001 * n, n, n // 2 % 2, n % 2, 0.5 if n // 2 % 2 else 0.2] for n in range(300)] + LATE,
    },
    "round_trips": [0.01 * (n + 1) for n in range(1000)],
}


def measured(step: Step) -> str:
    """Measure a run of these ``flows``, which has other fields; those that are `LONG` by their names. Say those that are asked."""
    its = {name: LONG[text] if text in LONG else json.loads(text) for name, text in step.options.items()}
    flows = [flow(number, **changes) for number, changes in enumerate(its.pop("flows", [{}]))]
    found = measure(run(**its), flows, PAYLOAD, failed=step.command == "failed")
    return "\n".join(f"{name} {found.get(name, ABSENT):.6g}" for name in step.words)


@each_script(__file__, "measures")
def test_measures(script: Script) -> None:
    script.play(measured)


def test_a_host_is_measured_over_all_its_flows_and_what_is_between_them() -> None:
    made = [("h0_0_2", 1_000_000, 0.0), ("h0_0_3", 500_000, 0.0), ("h0_0_2", 1_000_000, 0.3)]
    flows = [flow(n, src=src, bytes=size, start=start, seconds=0.1) for n, (src, size, start) in enumerate(made)]
    assert host_mbit(flows) == [pytest.approx(8 * 2 / 0.4), pytest.approx(8 * 0.5 / 0.1)]


FIGURE = Figure(
    "one",
    "a paper, section 1",
    (FigurePart("p", "permutation", 4, ("sopa", "rps"), 0.1, 2),),
    (
        FigureRow("sopa", "p", "sopa", "mean", 200.0),
        FigureRow("rps", "p", "rps", "mean"),
        FigureRow("rps over sopa", "p", "rps", "mean", None, "sopa"),
        FigureRow("drb over sopa", "p", "drb", "mean", None, "sopa"),
        FigureRow("sopa, timeouts", "p", "sopa", "timeouts", 0.0),
        FigureRow("sopa, delay", "p", "sopa", "delay_most", 5.0),
    ),
    (Variant("", "here"), Variant("slow", "slower", ("delay=1ms",))),
    ("a note",),
)


def kept() -> dict[str, list[RunData]]:
    found: dict[str, list[RunData]] = {"p": [], "p-slow": []}
    for part, scheme, seed, mbit in (
        ("p", "sopa", 1, 100.0),
        ("p", "sopa", 2, 110.0),
        ("p", "sopa", 3, 900.0),  # this run is there for another figure
        ("p", "rps", 1, 50.0),
        ("p-slow", "sopa", 1, 40.0),
    ):
        found[part].append(data(run(scheme=scheme, seed=seed), [flow(0, mbit=mbit), flow(1, mbit=mbit)], PAYLOAD))
    return found


def test_bars_of_completion_times() -> None:
    bars = Bars("m", {"1": "p", "2": "other"}, ("sopa", "rps"))
    plot = measure_bars(replace(FIGURE, bars=bars), kept())
    assert (plot.name, plot.title) == ("one", "a paper, section 1")
    assert plot.png[:4] == b"\x89PNG"


def test_the_table_of_a_figure_has_means_over_the_parts_own_seeds() -> None:
    assert [(part.name, part.options) for part in FIGURE.runs()] == [("p", ()), ("p-slow", ("delay=1ms",))]
    lines = markdown(FIGURE, kept()).splitlines()
    assert lines[0] == "## one"
    assert "|  | paper | here | ratio | slower | ratio |" in lines
    assert "| sopa | 200 | 105 ± 64 | 0.53 | 40 | 0.20 |" in lines  # Student's t for two values
    assert "| rps |  | 50 |  |  |  |" in lines
    assert "| rps over sopa |  | 0.5 |  |  |  |" in lines  # divided seed by seed
    assert "| sopa, timeouts | 0 | 0 |  | 0 |  |" in lines  # a paper's 0 has no ratio
    assert not any(line.startswith(("| sopa, delay", "| drb")) for line in lines)  # what no run has measured
    without = markdown(FIGURE, {"p": kept()["p"]}).splitlines()
    assert "|  | paper | here | ratio |" in without
    assert "- a note" in lines
    assert {line.count("|") for line in lines if line.startswith("|")} == {7}


def test_a_table_with_columns_has_a_line_for_each_scheme_with_a_run() -> None:
    rows = [
        FigureRow(f"{scheme}, {name}", "p", scheme, name) for scheme in ("sopa", "rps", "drb") for name in ("mean", "delay_most")
    ]
    figure = replace(FIGURE, rows=tuple(rows), columns=("mean", "delay, us"), variants=FIGURE.variants[:1])
    lines = markdown(figure, kept()).splitlines()
    assert [line for line in lines if line.startswith("|")] == [
        "| scheme | mean | delay, us |",
        "|---|---:|---:|",
        "| sopa | 105 ± 64 |  |",
        "| rps | 50 |  |",
    ]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=80))
def test_of_many_flows_the_data_have_percentiles(flows: list[float]) -> None:
    kept = kept_mbit(flows)
    if len(flows) <= MAX_KEPT_FLOWS:
        assert kept == tuple(flows)
    else:
        assert kept == tuple(np.percentile(flows, range(0, 101, 5), method="lower"))


VALUES = st.sampled_from((None, "a", "b", 0, 0.0))
RECORDS = st.fixed_dictionaries({"a": VALUES, "b": VALUES}, optional={"c": st.fixed_dictionaries({"d": VALUES})})


@given(st.lists(RECORDS, min_size=1))
def test_data_come_back_whatever_the_run_before_has(records: list[dict[str, object]]) -> None:
    runs = [RunData("sopa", seed, {"mean": 1.0}, (), record) for seed, record in enumerate(records)]
    for once in (False, True):
        back = read(compact(runs, once))
        assert [json.dumps(asdict(run)) for run in back] == [json.dumps(asdict(run)) for run in runs]


def test_data_have_a_line_for_each_run_and_the_record_says_names_once() -> None:
    runs = kept()["p"]
    text = compact(runs)
    assert read(text) == runs
    assert [run["measures"] for run in json.loads(text)] == [run.measures for run in runs]
    assert len(text.splitlines()) == len(runs) + 2
    assert compact(runs[:1] * 9, once=True).count("link_percent") == 1
    for damaged in ("", text[:-5], "{}", "[1]", "[\n1\n]", json.dumps([{"scheme": "sopa"}])):
        with pytest.raises(ResultsError):
            read(damaged)


MAX_BYTES = 12_000_000


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A record with the runs of one part."""
    directory = tmp_path / "record"
    (directory / "data").mkdir(parents=True)
    shutil.copy(RECORD / "data/incast-queue.json", directory / "data")
    (directory / "tables.md").write_text(tables(FIGURES.values(), load_record(directory)))
    return directory


def test_the_record_is_small_and_whole() -> None:
    result = CliRunner().invoke(record, ["--check"])
    assert (result.exit_code, result.output.splitlines()[-1].endswith(": whole")) == (0, True), result.output
    assert sum(file.stat().st_size for file in RECORD.rglob("*") if file.is_file()) < MAX_BYTES


@given(st.data())
@settings(max_examples=25)
def test_a_changed_byte_is_named_by_its_file_and_run(data: st.DataObject) -> None:
    lines = (RECORD / "data/four-flows.json").read_text().splitlines()
    number = data.draw(st.integers(1, len(lines) - 2))
    at = data.draw(st.integers(0, len(lines[number]) - 2))
    other = data.draw(st.sampled_from("0a,} ").filter(lambda byte: byte != lines[number][at]))
    lines[number] = lines[number][:at] + other + lines[number][at + 1 :]
    with pytest.raises(ResultsError, match=f"line {number + 1}"):
        read("\n".join(lines))


def test_a_record_that_lacks_a_run_or_has_one_twice_or_another_table(small: Path) -> None:
    file = small / "data/incast-queue.json"
    runs = read(file.read_text())
    file.write_text(compact([*runs[1:], runs[1]]))
    said = list(problems(load_record(small), small))
    first, again = (f"{run.scheme} with seed {run.seed}" for run in runs[:2])
    assert any(again in line and "is there twice" in line for line in said), said
    assert any(line.startswith("cfr-queues: 1 of ") and f"{runs[0].scheme}, seed {runs[0].seed}" in line for line in said), first
    assert any("tables.md is not what the data say" in line for line in said)
    with pytest.raises(ResultsError, match="has no data of runs"):
        take(small / "data", small)


def test_runs_are_taken_once(small: Path, tmp_path: Path) -> None:
    file = small / "data/incast-queue.json"
    missing, runs = list(problems(load_record(small), small)), read(file.read_text())
    file.write_text(compact(runs[2:]))
    (tmp_path / "new/data").mkdir(parents=True)
    (tmp_path / "new/data/incast-queue.json").write_text(compact(runs[:4]))
    results = tmp_path / "RESULTS.md"
    results.write_text("Before\n\n<!-- table of cfr-queues -->\n| old |\n| 1 |\n\nafter\n")
    assert any("RESULTS.md is not what the data say" in line for line in problems(load_record(small), small))
    assert take(tmp_path / "new", small) == 2
    table = [line for line in markdown(FIGURES["cfr-queues"], load_record(small)).splitlines() if line.startswith("|")]
    assert results.read_text().splitlines() == ["Before", "", "<!-- table of cfr-queues -->", *table, "", "after"]
    assert list(problems(load_record(small), small)) == missing
