"""Every figure for which there is data is drawn, in both forms, the same each time."""

import random
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.core.records import Results
from experiments.report import plots, report, timelines, traces
from experiments.report.collect import collect
from experiments.report.plots import DRAWN
from experiments.report.style import COLOURS, line_style
from experiments.report.summary import summarize
from experiments.workloads import BadLink
from tests.helpers.records import THESE, a_flow, a_run, results_in

ALWAYS = {"throughput-cdf", "candlesticks", "flows"}
OF_SIMULATOR = {"flow-series", "round-trips"}
OF_LAB = set(DRAWN) - OF_SIMULATOR
A_GREY_LINK = BadLink("a0_0-c0_0", "c0_0", 3.0, 0.01, transfers=(0, 2)).record() | {
    "packets": 900, "lost": 9, "corrupted": 0,
}  # fmt: skip


def add_full_run(results: Results, scheme: str) -> None:
    """Add a run with everything that can be drawn, of four candidate paths each way at two levels."""
    dice = random.Random(scheme)
    arrivals = []
    for packet in range(1100):
        path = (packet % 4, packet // 4 % 4) if scheme == "sopa" else (dice.randrange(4),) * 2
        delay = 2 + dice.random()
        carried = traces.NO_PATH if scheme == "ecmp" else path
        arrivals.append((packet * 0.6e-3 + delay / 1000, packet, *carried, delay * (30 if scheme == "ecmp" else 1)))
    run = a_run(
        scheme,
        queue_ms=20.0,
        queues={f"e0_{port}-eth3": [dice.randrange(20 * port * len(scheme) + 1) for _ in range(500)] for port in range(6)},
        cwnd={str(flow): [[0.1 * step, 10.0 + step * len(scheme) ** 2] for step in range(50)] for flow in range(12)},
        arrivals={"0": sorted(arrivals)},
        series={str(flow): [9.0 + dice.random() for _ in range(10)] for flow in range(12)},
        bad=[A_GREY_LINK],
        events=[[4.0 + 0.1 * dice.random(), "link cut"], [4.2, "agents told"], [6.0, "link restored"]],
    )
    kinds = [("short", 1000) if flow % 2 else ("long", None) for flow in range(12)]
    flows = [
        a_flow(scheme, 1, flow, 9.0 + flow / 10, kind=kind, size=size, seconds=0.01 * 1.7**flow)
        for flow, (kind, size) in enumerate(kinds)
    ]
    results.add(run, flows)


def files(folder: Path, suffix: str) -> set[str]:
    return {file.stem for file in folder.glob(f"*.{suffix}")}


def check(folder: Path) -> None:
    """Each figure has a size that fits a page."""
    for file in folder.glob("*.png"):
        content = file.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert width == 1050
        assert 300 <= height <= 6000
        assert len(content) > 5000, "there is nothing on it"


def test_every_figure_is_drawn_and_is_on_the_page(tmp_path: Path) -> None:
    few = a_run(
        queue_ms=1.0,
        queues={"a": [3], "b": []},
        cwnd={"0": [[0.0, 10.0]], "1": []},
        arrivals={"0": [[0.1, 7, 0, 1, 2.0]]},
        series={"0": [1.0], "1": []},
        bad=[A_GREY_LINK],
        events=[[0.5, f"event {number}"] for number in range(20)],
    )
    results_in(tmp_path).add(few, [a_flow(size=1000)])
    folder = report(tmp_path, say=lambda _: None)
    drawn = OF_LAB - {"path-windows"}  # one packet is no window of 500
    assert files(folder, "png") == files(folder, "svg") == drawn
    check(folder)
    page = (folder / "README.md").read_text()
    assert set(re.findall(r"\]\(([a-z-]+)\.png\)", page)) == drawn
    assert all((folder / name).exists() for name in re.findall(r"\]\(([^)]+\.(?:png|svg|csv|json))\)", page))
    # a figure that has no data any more goes
    for file in (*tmp_path.glob("*.jsonl"), *tmp_path.glob("*.run.json")):
        file.unlink()
    results_in(tmp_path).add(a_run(series={"0": []}, queues={"a": []}, queue_ms=1.0, cwnd={"0": []}), [a_flow()])
    report(tmp_path, say=lambda _: None)
    assert files(folder, "png") == files(folder, "svg") == ALWAYS
    check(folder)


def test_series_of_the_simulator_are_drawn_by_flow_the_same_each_time(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.open(replace(THESE, backend="ns3"))
    series = {"0": [100.0, 50.0, 70.0], "1": [], "2": [1.0]}
    results.add(a_run(series=series, series_ms=1.0, round_trips=[0.05, 0.061, 0.4]), [a_flow()])
    folder = report(tmp_path, say=lambda _: None)
    assert files(folder, "png") == {*ALWAYS, "flow-series", "throughput-series", "round-trips"}
    check(folder)
    page = (folder / "README.md").read_text()
    assert "in steps of 1 ms" in page
    assert "in each 1 ms" in page
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    for name, content in first.items():
        assert b"matplotlib.org" not in content, name
        assert b"<dc:date>" not in content, name
    report(tmp_path, say=lambda _: None)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first


def test_with_sixteen_paths_and_five_schemes_nothing_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Figure] = {}

    def keep(drawn: Figure, name: str, *_: object) -> None:
        made[name] = drawn
        # With the settings that it is saved with.
        drawn.canvas.draw()

    for module in (plots, timelines, traces):
        monkeypatch.setattr(module, "finish", keep)
    results = results_in(tmp_path)
    for scheme in ("sopa", "rps", "ecmp", "flowlet", "sopa+fr=6+rack=off"):
        add_full_run(results, scheme)
    collected = collect(tmp_path)
    list(plots.plots(collected, summarize(collected)))
    assert set(made) == OF_LAB
    for name, drawn in made.items():
        legends = [*drawn.legends, *(axes.get_legend() for axes in drawn.axes)]
        boxes = [legend.get_window_extent() for legend in legends if legend]
        texts = [axes.xaxis.label.get_window_extent() for axes in drawn.axes if axes.get_xlabel()]
        texts += [text.get_window_extent() for text in drawn.texts]
        for axes in drawn.axes:
            data, view = axes.dataLim, axes.viewLim
            assert view.x0 <= data.x0 <= data.x1 <= view.x1, name
            assert view.y0 <= data.y0 <= data.y1 <= view.y1, name
            assert not any(box.overlaps(axes.get_window_extent()) for box in boxes), name
        assert not any(box.overlaps(text) for box in boxes for text in texts), name
        assert boxes, name


def test_the_run_that_is_shown_is_the_first_valid_one_and_28_lines_differ(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.add(a_run(seed=1, valid=False), [a_flow(seed=1)])
    for seed in (10, 2):
        results.add(a_run(seed=seed, series={"10": [1.0], "2": [2.0]}), [a_flow(seed=seed)])
    shown = collect(tmp_path).shown["sopa"]
    assert shown.seed == 2
    assert list(shown.series) == ["2", "10"]
    assert len({str(line_style(index)) for index in range(28)}) == 28
    assert len(set(COLOURS)) == len(COLOURS)


def test_the_flow_that_is_shown_is_one_that_all_schemes_have(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    packet = [[0.1, 0, 0, 0, 1.0]]
    results.add(a_run("rps"), [a_flow("rps", flow=5), a_flow("rps", flow=10)])
    results.add(a_run("sopa", arrivals={"5": packet, "10": packet}), [a_flow(flow=5), a_flow(flow=10)])
    results.add(a_run("ecmp", arrivals={"10": packet}), [a_flow("ecmp", flow=10)])
    titles = [trace.title for trace in traces.traces(collect(tmp_path), ["sopa", "rps", "ecmp"])]
    assert titles == ["sopa, seed 1, flow 10, h0_0_2 → h0_1_2", "ecmp, seed 1, flow 10, h0_0_2 → h0_1_2"]


def test_events_of_several_runs_are_one_mark_each() -> None:
    runs = [a_run("sopa", events=[[4.0, "cut"], [6.0, "restored"]]), a_run("rps", events=[[4.5, "cut"], [9.0, "restored"]])]
    assert timelines.merged_events(runs) == [(4.25, "cut"), (6.0, "restored"), (9.0, "restored")]


def test_the_busiest_ports_have_the_longest_queues_on_average() -> None:
    run = a_run(queues={"a": [9, 0, 0], "b": [4, 4, 4], "c": [0, 0], "d": [], "e": [5, 5]})
    assert timelines.busiest(run, 2) == ["b", "e"]


def test_many_events_at_once_are_one_mark_and_few_are_not() -> None:
    placed = [(1.0 + 0.001 * number, f"placed {number}") for number in range(12)]
    events = [(0.5, "begins"), *placed, (1.5, "fails"), (1.51, "told")]
    together = [(0.5, "begins"), (1.0, "placed 0, and 11 more"), (1.5, "fails"), (1.51, "told")]
    assert timelines.together(events) == together
    assert timelines.together([]) == []
