"""Results are kept whole or not at all, and only those of one experiment in one directory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import schemes
from experiments.core.campaign import Campaign
from experiments.core.records import SETTINGS, Results, ResultsError
from experiments.core.run import Run
from experiments.workloads import Scale, named
from flowrules.label import Carrier
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.records import THESE, a_flow, a_run, files_up_to, results_in
from topologies import Clos


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


class Directory:
    """A directory of results; ``at`` is another one below it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def handle(self, step: Step) -> str:
        try:
            said = getattr(self, f"do_{step.command}")(*step.words, **step.options) or ""
        except ResultsError as error:
            said = f"refused: {error}"
        return said.replace(str(self.path), "DIR")

    def do_open(self, at: str = "", **changes: str) -> str:
        """Open it with other settings than `THESE`, in JSON; say which it has then."""
        Results(self.path / at).open(replace(THESE, **{name: json.loads(text) for name, text in changes.items()}))
        return self.do_settings(at)

    def do_settings(self, at: str = "") -> str:
        its = Results(self.path / at).settings()
        return f"k {its.k}, {its.title}, fabric {json.dumps(its.fabric and dict(its.fabric))}"

    def do_campaign(self, numbers: str, at: str, **fabric: str) -> str:
        tree = Clos(*map(int, numbers.split()), **{name: json.loads(text) for name, text in fabric.items()})
        Campaign(Results(self.path / at), "permutation", [], {}, tree, Scale(4.0, 5.0), 100, Carrier.MAC).open("lab", {})
        return self.do_settings(at)

    def do_write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def do_fabric(self, fabric: str = "null") -> None:
        """Put another fabric into its settings, or leave it out as earlier programs did."""
        its = json.loads((self.path / SETTINGS).read_text()) | {"fabric": json.loads(fabric)}
        (self.path / SETTINGS).write_text(json.dumps({name: value for name, value in its.items() if value is not None}))

    def do_files(self) -> str:
        return " ".join(sorted(file.name for file in self.path.iterdir()))


@each_script(__file__, "records")
def test_script(script: Script, tmp_path: Path) -> None:
    script.play(Directory(tmp_path).handle)


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
    # of two jobs, one of the even transfers and one of the odd ones, each has its own time
    two = replace(plan, transfers=tuple(replace(one, job=number % 2) for number, one in enumerate(plan.transfers)))
    assert replace(run, plan=two).collective(flows)["jobs"] == [count - 2 + 0.25, count - 1 + 0.25]
    assert replace(run, plan=two).collective(late)["jobs"] == [count - 2 + 0.25, None]


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
