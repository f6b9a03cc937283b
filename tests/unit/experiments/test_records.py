"""Results are kept whole or not at all, and only those of one experiment in one directory."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from experiments import schemes
from experiments.core.campaign import Campaign
from experiments.core.records import SETTINGS, Results, ResultsError
from experiments.core.run import Run
from experiments.workloads import Scale, named
from flowrules.label import Carrier
from tests.helpers.records import THESE, a_flow, a_run, files_up_to, results_in
from topologies import Clos, FatTree


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    results = results_in(tmp_path / "not" / "there" / "yet")
    flows = [a_flow(flow=0, mbit=1.5), a_flow(flow=1, size=1000, kind="short", completed=False)]
    run = a_run(queues={"e0_0-eth3": [1, 2]}, series={"0": [1.5]}, events=[[4.0, "cut"]])
    results.add(run, flows)
    assert list(results.flows()) == flows
    assert results.run("sopa", 1) == run
    assert results.settings() == THESE
    again = results_in(tmp_path / "not" / "there" / "yet")  # an experiment goes on where it was
    assert [again.has(*run) for run in (("sopa", 1), ("sopa", 2), ("rps", 1))] == [True, False, False]


def test_another_experiments_directory_is_refused_with_what_differs(tmp_path: Path) -> None:
    results_in(tmp_path)
    before = (tmp_path / SETTINGS).read_bytes()
    with pytest.raises(ResultsError, match=r"another experiment \(k 4 instead of 8\): give another --out"):
        Results(tmp_path).open(replace(THESE, k=8))
    with pytest.raises(ResultsError, match="parameters"):
        Results(tmp_path).open(replace(THESE, parameters={"queue": 50}))
    assert (tmp_path / SETTINGS).read_bytes() == before


def test_results_of_two_fabrics_never_share_a_directory(tmp_path: Path) -> None:
    one, other = (Clos(1, 2, 2, 0, 2, links={"e0_0-a0_1": rate}).document() for rate in (0.5, "absent"))
    its = replace(THESE, k=None, fabric=one)
    Results(tmp_path).open(its)
    Results(tmp_path).open(its)
    assert Results(tmp_path).settings() == its
    assert its.title == "2x2 leaf-spine fabric"
    for settings in (replace(its, fabric=other), THESE):
        with pytest.raises(ResultsError, match=r"another experiment .*another fabric, 2x2 leaf-spine fabric"):
            Results(tmp_path).open(settings)


def test_settings_without_a_fabric_are_those_of_a_fat_tree_as_before(tmp_path: Path) -> None:
    settings = json.loads(json.dumps(asdict(THESE)))
    assert settings.pop("fabric") is None
    (tmp_path / SETTINGS).write_text(json.dumps(settings))
    Results(tmp_path).open(THESE)
    (tmp_path / SETTINGS).write_text(json.dumps({**settings, "fabric": {"pods": 1}}))
    with pytest.raises(ResultsError, match="contains no results: edges is missing"):
        Results(tmp_path).settings()


@pytest.mark.parametrize(
    ("tree", "k", "title"),
    [
        (FatTree(4), 4, "k=4"),
        (Clos(4, 2, 2, 4, 2), 4, "k=4"),
        (Clos(4, 2, 2, 4, 2, mbit={"host": 1, "edge": 1, "aggregation": 0.5}), 4, "4-pod Clos fabric"),
        (Clos(4, 2, 2, 4, 2, links={"a0_0-c0_0": "absent"}), None, "4-pod Clos fabric"),
        (Clos(1, 3, 2, 0, 4), None, "3x2 leaf-spine fabric"),
    ],
    ids=repr,
)
def test_settings_name_the_fabric(tmp_path: Path, tree: Clos, k: int | None, title: str) -> None:
    Campaign(Results(tmp_path), "permutation", [], {}, tree, Scale(4.0, 5.0), 100, Carrier.MAC).open("lab", {})
    settings = Results(tmp_path).settings()
    assert (settings.k, settings.title) == (k, title)
    assert settings.fabric is None or Clos.from_document(dict(settings.fabric)) == tree
    assert (settings.fabric is None) == (title == "k=4")


def test_a_collective_is_complete_when_all_its_transfers_are() -> None:
    tree = Clos(1, 2, 2, 0, 2)
    plan = named("all-reduce-ring").build(tree, 1, Scale(4.0, 5.0))
    run = Run(tree, plan, "all-reduce-ring", schemes.named("sopa"), 1, Scale(4.0, 5.0))
    flows = [a_flow(flow=flow, start=float(flow), seconds=0.25) for flow in range(len(plan.transfers))]
    count = len(plan.transfers)
    assert run.collective(flows) == {"transfers": count, "completed": count, "seconds": count - 1 + 0.25}
    assert run.collective(flows[:-1]) == {"transfers": count, "completed": count - 1, "seconds": None}
    late = [*flows[:-1], replace(flows[-1], completed=False)]
    assert run.collective(late)["seconds"] is None
    assert replace(run, plan=replace(plan, collective=False)).collective(flows) == {}


def test_a_place_that_is_no_directory_of_results_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ResultsError, match="give an empty --out"):
        Results(tmp_path).open(THESE)
    with pytest.raises(ResultsError, match="cannot be used"):
        Results(tmp_path / "thesis.txt").open(THESE)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / SETTINGS).write_text('{"workload":')
    with pytest.raises(ResultsError, match="contains no results"):
        Results(tmp_path).open(THESE)


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"workload": "permutation"}'])
def test_what_is_damaged_or_missing_is_told_and_new_fields_do_no_harm(tmp_path: Path, line: str) -> None:
    results, file = results_in(tmp_path), tmp_path / "sopa-1.jsonl"
    results.add(a_run(), [a_flow()])
    file.write_text(json.dumps({**json.loads(file.read_text()), "colour": "red"}) + "\n")
    assert list(results.flows()) == [a_flow()]
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(ResultsError, match=r"sopa-1.jsonl, line 2, is damaged .* delete the file and run again"):
        list(results.flows())
    (tmp_path / "sopa-1.run.json").unlink()
    with pytest.raises(ResultsError, match=r"sopa-1.run.json is damaged or missing .* run again"):
        results.run("sopa", 1)


@pytest.mark.parametrize(("room", "flows"), [(100, 1), (1000, 10)], ids=["of its flows", "of its record"])
def test_a_full_disk_leaves_nothing_of_a_run(tmp_path: Path, room: int, flows: int) -> None:
    results = results_in(tmp_path)
    with files_up_to(room), pytest.raises(ResultsError, match="cannot be written"):
        results.add(a_run(), [a_flow(flow=flow) for flow in range(flows)])
    assert not results.has("sopa", 1)
    assert [file.name for file in tmp_path.iterdir()] == [SETTINGS]
    results.add(a_run(), [a_flow()])
    assert results.has("sopa", 1)


def test_who_reads_meanwhile_sees_all_of_a_run_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_in(tmp_path)
    seen = []
    rename = Path.rename

    def look_and_rename(part: Path, target: Path) -> Path:
        # All of it is on the disk under another name, and none of it under its own.
        seen.append((part.read_text().endswith("\n"), target.exists(), results.has("sopa", 1)))
        return rename(part, target)

    monkeypatch.setattr(Path, "rename", look_and_rename)
    results.add(a_run(), [a_flow(flow=flow) for flow in range(1000)])
    assert seen == [(True, False, False), (True, False, False)]
    assert len(list(results.flows())) == 1000
    assert not list(tmp_path.glob(".*"))
