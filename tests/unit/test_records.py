"""Results are kept whole or not at all, and only those of one experiment in one directory."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.core.records import SETTINGS, FlowRecord, Results, ResultsError, RunRecord, Settings

THESE = Settings("permutation", "emulation", 4, 20.0, 10.0, {"queue": 100})


def a_flow(scheme: str = "sopa", seed: int = 1, flow: int = 0, mbit: float = 10.0, **others: Any) -> FlowRecord:
    """A flow of a run; what is not given is of no interest."""
    made = FlowRecord(
        workload=THESE.workload,
        backend=THESE.backend,
        scheme=scheme,
        k=THESE.k,
        seed=seed,
        rate_mbit=THESE.rate_mbit,
        flow=flow,
        kind="",
        src=f"h0_{flow}",
        dst=f"h1_{flow}",
        bytes=int(mbit * 1.25e6),
        seconds=10.0,
        mbit=mbit,
        size=None,
        completed=True,
        start=0.0,
        packets=1000,
        reordered=0,
        retransmits=0,
        spurious=0,
        fast_retransmits=0,
        timeouts=0,
        rtt_ms=2.0,
        valid=True,
    )
    return replace(made, **others)


def a_run(scheme: str = "sopa", seed: int = 1, **others: Any) -> RunRecord:
    """What concerns a run as a whole; what is not given is empty."""
    return replace(RunRecord(scheme, seed, True, 60.0, {}, "sopa experiment", {}, {}, {}), **others)


def results_in(directory: Path) -> Results:
    """A directory that has been opened."""
    results = Results(directory)
    results.open(THESE)
    return results


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    results = results_in(tmp_path / "not" / "there" / "yet")
    flows = [a_flow(flow=0, mbit=1.5), a_flow(flow=1, size=1000, kind="short", completed=False)]
    run = a_run(queues={"e0_0-eth3": [1, 2]}, series={"0": [1.5]}, events=[[4.0, "cut"]])
    results.add(run, flows)
    assert list(results.flows()) == flows
    assert results.run("sopa", 1) == run
    assert results.settings() == THESE


def test_an_experiment_goes_on_where_it_was(tmp_path: Path) -> None:
    results_in(tmp_path).add(a_run(), [a_flow()])
    again = results_in(tmp_path)
    assert again.has("sopa", 1)
    assert not again.has("sopa", 2)
    assert not again.has("rps", 1)


def test_another_experiments_directory_is_refused_with_what_differs(tmp_path: Path) -> None:
    results_in(tmp_path)
    before = (tmp_path / SETTINGS).read_bytes()
    with pytest.raises(ResultsError, match=r"another experiment \(k 4 instead of 8\): give another --out"):
        Results(tmp_path).open(replace(THESE, k=8))
    with pytest.raises(ResultsError, match="parameters"):
        Results(tmp_path).open(replace(THESE, parameters={"queue": 50}))
    assert (tmp_path / SETTINGS).read_bytes() == before


def test_foreign_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ResultsError, match="give an empty --out"):
        Results(tmp_path).open(THESE)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ResultsError, match="cannot be used"):
        Results(file).open(THESE)


def test_damaged_settings_are_told(tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_text('{"workload":')
    with pytest.raises(ResultsError, match="contains no results"):
        Results(tmp_path).open(THESE)


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"workload": "permutation"}'])
def test_a_damaged_line_is_told_with_its_place(tmp_path: Path, line: str) -> None:
    results = results_in(tmp_path)
    results.add(a_run(), [a_flow(flow=0), a_flow(flow=1)])
    file = tmp_path / "sopa-1.jsonl"
    file.write_text(file.read_text().splitlines()[0] + "\n" + line + "\n")
    with pytest.raises(ResultsError, match=r"sopa-1.jsonl, line 2, is damaged .* delete the file and run again"):
        list(results.flows())


def test_a_field_that_a_later_version_added_does_no_harm(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.add(a_run(), [a_flow()])
    file = tmp_path / "sopa-1.jsonl"
    file.write_text(json.dumps({**json.loads(file.read_text()), "colour": "red"}) + "\n")
    assert list(results.flows()) == [a_flow()]


def test_a_missing_run_is_told(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.add(a_run(), [a_flow()])
    (tmp_path / "sopa-1.run.json").unlink()
    with pytest.raises(ResultsError, match=r"sopa-1.run.json is damaged or missing .* run again"):
        results.run("sopa", 1)


def test_a_full_disk_leaves_nothing_of_a_run(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    with files_up_to(100), pytest.raises(ResultsError, match="cannot be written"):
        results.add(a_run(), [a_flow()])
    assert [file.name for file in tmp_path.iterdir()] == [SETTINGS]
    results.add(a_run(), [a_flow()])
    assert results.has("sopa", 1)


def test_a_disk_that_fills_between_the_two_files_leaves_no_complete_run(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    with files_up_to(1000), pytest.raises(ResultsError, match="cannot be written"):
        results.add(a_run(), [a_flow(flow=flow) for flow in range(10)])
    assert not results.has("sopa", 1)
    assert list(results.flows()) == []
    assert not list(tmp_path.glob(".*")), "parts of files are left"


def test_a_disk_that_fills_between_the_two_files_leaves_nothing(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    with files_up_to(1000), pytest.raises(ResultsError, match="cannot be written"):
        results.add(a_run(), [a_flow(flow=flow) for flow in range(10)])
    assert [file.name for file in tmp_path.iterdir()] == [SETTINGS]


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
