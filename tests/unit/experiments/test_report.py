"""A report says what the results say, names what it leaves out, and what to do where there is nothing to say."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.core.records import Results, ResultsError
from experiments.report import plots, report
from tests.helpers.records import THESE, a_flow, a_run, files_up_to, results_in
from topologies import Clos


def summary(directory: Path, base: str = "sopa") -> tuple[dict[str, Any], list[str]]:
    """The report's figures and what was said."""
    said: list[str] = []
    folder = report(directory, base, said.append)
    assert folder == directory / "report"
    return json.loads((folder / "summary.json").read_text()), said


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second each, and are those of test_report_plots.py."""
    monkeypatch.setattr(plots, "plots", lambda *_: iter(()))


def two_schemes(directory: Path) -> None:
    """Two seeds of two schemes; one run is not valid."""
    results = results_in(directory)
    for scheme, seed, rates in (("sopa", 1, (8.0, 10.0)), ("sopa", 2, (9.0, 9.0)), ("rps", 1, (2.0, 7.0))):
        results.add(a_run(scheme, seed), [a_flow(scheme, seed, flow, rate) for flow, rate in enumerate(rates)])
    busy = a_run("rps", 2, valid=False, cpu_idle_percent=1.0)
    results.add(busy, [a_flow("rps", 2, flow, 1000.0, valid=False) for flow in range(2)])


def test_figures_are_over_all_valid_flows_and_runs(tmp_path: Path) -> None:
    two_schemes(tmp_path)
    found, _ = summary(tmp_path)
    sopa, rps = found["schemes"]
    assert (sopa["scheme"], sopa["seeds"], sopa["mbit"]["count"], sopa["mbit"]["mean"]) == ("sopa", [1, 2], 4, 9.0)
    assert sopa["interval"] == {"low": 9.0, "high": 9.0}
    assert sopa["fairness"] == pytest.approx((324 / 328 + 1) / 2)
    assert (rps["scheme"], rps["seeds"], rps["mbit"]["mean"], rps["mbit"]["maximum"]) == ("rps", [1], 4.5, 7.0)
    assert rps["interval"] is None
    assert rps["ratio"] == {"value": 0.5, "interval": None, "seeds": 1}


def test_an_invalid_run_is_named_everywhere_and_in_no_figure(tmp_path: Path) -> None:
    two_schemes(tmp_path)
    found, said = summary(tmp_path)
    assert [(one["scheme"], one["seed"]) for one in found["excluded"]] == [("rps", 2)]
    assert found["schemes"][1]["invalid_share"] == 0.5
    named = "excluded: rps with seed 2: the processors were busy (1% idle)"
    assert any(named in text for text in said)
    assert named in (tmp_path / "report/README.md").read_text()
    with (tmp_path / "report/excluded.csv").open(newline="") as file:
        assert [(row["scheme"], row["seed"]) for row in csv.DictReader(file)] == [("rps", "2")]
    assert "1000" not in "".join(said)
    assert {one["collective"] for one in found["schemes"]} == {None}
    assert not any("collective" in text for text in said)


def test_a_run_is_invalid_if_it_or_one_of_its_flows_is(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.add(a_run(seed=1), [a_flow(seed=1)])
    results.add(a_run(seed=2, valid=False), [a_flow(seed=2), a_flow(seed=2, flow=1)])
    results.add(a_run(seed=3), [a_flow(seed=3), a_flow(seed=3, flow=1, valid=False)])
    found, _ = summary(tmp_path)
    assert found["schemes"][0]["seeds"] == [1]


def test_csv_has_every_digit(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.add(a_run(), [a_flow(mbit=1 / 3, size=100, kind="short"), a_flow(flow=1, mbit=2 / 3, kind="long")])
    folder = report(tmp_path, say=lambda _: None)
    with (folder / "schemes.csv").open(newline="") as file:
        (scheme,) = csv.DictReader(file)
    assert (scheme["scheme"], float(scheme["mbit_mean"]), scheme["mean_low"]) == ("sopa", 0.5, "")
    with (folder / "kinds.csv").open(newline="") as file:
        long, short = csv.DictReader(file)
    assert (long["kind"], float(long["mbit_mean"]), long["completion_s_mean"]) == ("long", 2 / 3, "")
    assert (short["kind"], float(short["mbit_mean"]), short["completion_s_mean"]) == ("short", 1 / 3, "10.0")


def test_tables_are_said_and_are_on_the_page(tmp_path: Path) -> None:
    two_schemes(tmp_path)
    _, said = summary(tmp_path)
    page = (tmp_path / "report/README.md").read_text()
    for title in ("Mean throughput of flows", "Distribution of the throughput", "Retransmissions by TCP"):
        assert any(text.startswith(title) for text in said)
        assert f"**{title}" in page
    assert "| rps | 1 | 50% | 4.50 | - | 0.500 | - | 0.7642 |" in page
    assert not any("Completion" in text for text in said), "no transfer has a size"


def test_transfers_that_did_not_end_are_told(tmp_path: Path) -> None:
    flows = [a_flow(flow=number, size=100, seconds=1.0, completed=number > 0) for number in range(3)]
    results_in(tmp_path).add(a_run(), flows)
    found, said = summary(tmp_path)
    times = {"count": 3, "completed": 2, "mean": 1.0, "median": 1.0, "p99": None}
    assert found["schemes"][0]["completion"] == {"": times}
    assert any("1 transfers did not end in time" in text for text in said)
    assert any("not in time" in text for text in said)


def test_one_flow_of_one_seed_is_enough_and_it_may_be_nothing(tmp_path: Path) -> None:
    results_in(tmp_path / "one").add(a_run(), [a_flow(mbit=7.0)])
    found, said = summary(tmp_path / "one")
    (sopa,) = found["schemes"]
    assert (sopa["mbit"]["mean"], sopa["mbit"]["deviation"], sopa["interval"]) == (7.0, None, None)
    assert sopa["ratio"] == {"value": 1.0, "interval": None, "seeds": 1}
    assert not any("excluded:" in text for text in said)
    results = results_in(tmp_path / "nothing")
    for scheme in ("sopa", "rps"):
        results.add(a_run(scheme), [a_flow(scheme, flow=flow, mbit=0.0, packets=0) for flow in range(2)])
    found, _ = summary(tmp_path / "nothing")
    assert [(one["mbit"]["mean"], one["ratio"], one["fairness"]) for one in found["schemes"]] == [(0.0, None, None)] * 2


def test_an_absent_base_is_replaced_by_the_best_and_the_report_says_so(tmp_path: Path) -> None:
    two_schemes(tmp_path)
    found, said = summary(tmp_path, "sopp")
    assert found["base"] == "sopa"
    assert any("no valid run of sopp: compared with sopa, which has the best mean" in text for text in said)
    found, _ = summary(tmp_path, "rps")
    assert [one["scheme"] for one in found["schemes"]] == ["rps", "sopa"]
    assert found["schemes"][1]["ratio"]["value"] == 2.0


def test_a_directory_without_valid_results_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="contains no results"):
        report(tmp_path)
    results = results_in(tmp_path)
    with pytest.raises(ResultsError, match="no complete run yet: run the experiment first"):
        report(tmp_path)
    results.add(a_run(valid=False, cpu_idle_percent=2.0), [a_flow(valid=False)])
    with pytest.raises(ResultsError, match=r"no valid run .*sopa with seed 1.* at a lower rate"):
        report(tmp_path)
    assert not (tmp_path / "report").exists()
    results.add(a_run("plts-rr", 3), [])
    results.add(a_run(seed=2), [a_flow(seed=2)])
    found, _ = summary(tmp_path)
    assert {"scheme": "plts-rr", "seed": 3, "why": "it has no flows"} in found["excluded"]


@pytest.mark.parametrize(
    "damage", [b"{", b"\xff\xfe", b'{"mbit": 1}', b"same NaN", b"same -1.0", b'same "many"'], ids=repr
)
def test_damage_is_told_with_the_file(tmp_path: Path, damage: bytes) -> None:
    results_in(tmp_path).add(a_run(), [a_flow(mbit=123.5)])
    file = tmp_path / "sopa-1.jsonl"
    kind, _, value = damage.partition(b" ")
    file.write_bytes(file.read_bytes().replace(b"123.5", value) if kind == b"same" else damage)
    with pytest.raises(
        ResultsError, match=r"(?s)sopa-1\.jsonl.*(damaged|cannot be read).*delete (it|the file) and run again"
    ):
        report(tmp_path)


def test_a_full_disk_is_told_and_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    two_schemes(tmp_path)
    with files_up_to(1000), pytest.raises(ResultsError, match="the report cannot be written"):
        report(tmp_path, say=lambda _: None)
    assert not list((tmp_path / "report").glob(".*"))


def test_a_report_does_not_disturb_results_nor_what_others_put_there(tmp_path: Path) -> None:
    two_schemes(tmp_path)
    folder = report(tmp_path, say=lambda _: None)
    (folder / "notes.txt").write_text("mine")
    results_in(tmp_path).add(a_run("ecmp"), [a_flow("ecmp")])
    found, _ = summary(tmp_path)
    assert "ecmp" in {one["scheme"] for one in found["schemes"]}
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_collective_operation_has_its_completion_time(tmp_path: Path) -> None:
    fabric = Clos(1, 2, 2, 0, 2, links={"e0_0-a0_1": 0.5})
    results = Results(tmp_path)
    results.open(replace(THESE, k=None, fabric=fabric.document()))
    times = {("sopa", 1): 2.0, ("sopa", 2): 4.0, ("rps", 1): 3.0, ("rps", 2): None}
    for (scheme, seed), seconds in times.items():
        collective = {"transfers": 4, "completed": 4 if seconds else 3, "seconds": seconds}
        results.add(a_run(scheme, seed, collective=collective), [a_flow(scheme, seed)])
    found, said = summary(tmp_path)
    sopa, rps = (one["collective"] for one in sorted(found["schemes"], key=lambda one: one["scheme"] != "sopa"))
    assert (sopa["runs"], sopa["completed"], sopa["mean"], sopa["longest"]) == (2, 2, 3.0, 4.0)
    assert (rps["runs"], rps["completed"], rps["mean"], rps["ratio"]["value"]) == (2, 1, 3.0, 1.5)
    (table,) = [text for text in said if "Completion time of the collective operation" in text]
    assert "3000.0" in table
    page = (tmp_path / "report/README.md").read_text()
    assert "2x2 leaf-spine fabric, hosts' links of" in page
    assert '"e0_0-a0_1": 0.5' in page
