"""The simulator's commands as they are typed: what is there is not done again, and what ends half-way goes on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from experiments.paper.record import RECORD, differences, load
from experiments.report import plots
from tests.helpers.commands import sopa as command
from tests.helpers.simulator import NEEDS_NS3
from tests.helpers.waiting import eventually

pytestmark = NEEDS_NS3
Run = Callable[..., Result]
SOPA = str(Path(sys.executable).parent / "sopa")
PERMUTATION = ["run", "permutation", "--backend", "ns3"]
SHORT = [*PERMUTATION, "--schemes", "sopa,rps", "--seeds", "2", "--seconds", "0.005"]
LONG = [*PERMUTATION, "--schemes", "sopa", "--seeds", "3", "--seconds", "0.02", "--out", "out"]


@pytest.fixture(scope="module", autouse=True)
def no_plots() -> Iterator[None]:
    """Reports without plots, which tests/unit/experiments shows: they would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "plots", lambda *_: [])
        yield


@pytest.fixture
def sopa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return ``sopa experiment``, in this process, with a cache and a present directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: command("experiment", *words, SOPA_CACHE=str(tmp_path / "cache"))


def seconds(out: Path) -> dict[str, float]:
    """Return the processor time of each run, which differs between runs."""
    return {file.name: json.loads(file.read_text())["options"]["processor_seconds"] for file in out.glob("*.run.json")}


def flows(out: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in out.glob("*.jsonl")}


def simulators(where: Path) -> list[str]:
    """Return the processes of simulators that a command in a directory has started: other tests may run simulators, too."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            is_one = (process / "comm").read_text().startswith("sopa_simulation"[:15])
            found += [process.name] if is_one and (process / "cwd").readlink() == where else []
    return found


def test_a_run_reports_goes_on_with_the_same_settings_only_and_comes_from_the_cache(sopa: Run, tmp_path: Path) -> None:
    one, two, three, cache = (tmp_path / name for name in ("one", "two", "three", "cache"))
    done = sopa(*SHORT, "--out", "one")
    assert (done.exit_code, "4 of 4" in done.stderr) == (0, True), done.stderr
    assert (one / "report" / "README.md").exists()
    found = map(json.loads, (one / "sopa-1.jsonl").read_text().splitlines())
    assert {(flow["backend"], flow["rate_mbit"]) for flow in found} == {("ns3", 1000.0)}
    (one / "rps-2.jsonl").unlink()
    done = sopa(*SHORT, "--out", "one")
    assert "3 of 4 runs are already complete" in done.stderr
    assert (one / "rps-2.jsonl").exists()
    done = sopa(*SHORT, "--set", "spread=1ms", "--out", "one")
    assert done.exit_code == 1
    assert "results of another experiment" in done.stderr

    assert len(list((cache / "ns3").iterdir())) == 4
    assert sopa(*SHORT, "--out", "two").exit_code == 0
    assert flows(one) == flows(two)
    assert seconds(one) == seconds(two)  # they are of the first time
    assert sopa(*SHORT, "--set", "spread=1ms", "--out", "three").exit_code == 0
    assert len(list((cache / "ns3").iterdir())) == 8  # other settings are another run
    assert flows(three) != flows(one)


def test_failed_links_are_those_of_the_seed_and_part_of_the_experiment(sopa: Run, tmp_path: Path) -> None:
    done = sopa(*SHORT, "--failed-links", "5", "--out", "out")
    assert done.exit_code == 0, done.stderr
    files = [tmp_path / f"out/{name}.run.json" for name in ("sopa-1", "rps-1", "sopa-2")]
    sopa_1, rps_1, sopa_2 = (json.loads(file.read_text())["events"] for file in files)
    assert len(sopa_1) == 2  # of 32 links between switches
    assert sopa_1 == rps_1 != sopa_2
    assert sopa(*SHORT, "--failed-links", "10", "--out", "out").exit_code == 1


def ended(how: signal.Signals, where: Path) -> str | None:
    """End `LONG` after its first run; return what it said, or None if it was complete before."""
    shutil.rmtree(where / "out", ignore_errors=True)
    env, command = {**os.environ, "SOPA_CACHE": str(where / "unused")}, [SOPA, "experiment", *LONG]
    with subprocess.Popen(command, stdout=-3, stderr=subprocess.PIPE, text=True, env=env, cwd=where) as process:
        try:
            eventually(lambda: list((where / "out").glob("*.jsonl")))
        finally:
            process.send_signal(how)
        _, said = process.communicate()
    return said if process.returncode != 0 and 0 < len(flows(where / "out")) < 3 else None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_half_way_leaves_nobody_and_goes_on(sopa: Run, tmp_path: Path, how: signal.Signals) -> None:
    said = eventually(lambda: ended(how, tmp_path), lambda said: said is not None)
    assert said is not None
    assert "Traceback" not in said
    eventually(lambda: simulators(tmp_path), [])
    kept = flows(tmp_path / "out")
    done = sopa(*LONG)
    assert done.exit_code == 0, done.stderr
    assert f"{len(kept)} of 3 runs are already complete" in done.stderr
    now = flows(tmp_path / "out")
    assert len(now) == 3
    assert {name: now[name] for name in kept} == kept


def test_a_papers_figure_has_a_table_data_and_plots(sopa: Run, tmp_path: Path) -> None:
    assert all(name in sopa("paper", "--list").stdout for name in ("four-flows", "thresholds", "sizes"))
    done = sopa("paper", "four-flows", "--seeds", "1", "--out", "out")
    assert done.exit_code == 0, done.stderr
    out = tmp_path / "out"
    table = (out / "tables.md").read_text()
    assert "| sopa, mean Mbit/s | 475 | 48" in table
    assert (out / "four-flows/report/README.md").exists()
    runs = json.loads((out / "data/four-flows.json").read_text())
    assert {(run["scheme"], run["seed"]) for run in runs} == {("sopa", 1), ("rps", 1), ("rps+sack=off", 1)}
    assert all(len(run["mbit"]) == 4 and run["record"]["simulator"] for run in runs)
    again = sopa("paper", "four-flows", "--seeds", "1", "--out", "out")
    assert "6 of 6 runs are already complete" in again.stderr
    assert (out / "tables.md").read_text() == table
    for file in out.glob("four-flows/rps-*"):  # those of the first column
        file.unlink()
    part = sopa("paper", "four-flows", "paths", "--seeds", "1", "--tables", "--out", "out")
    assert part.exit_code == 0, part.stderr
    assert not list(out.glob("four-flows/rps-*"))
    text = (out / "tables.md").read_text()
    assert "| sopa, mean Mbit/s | 475 | 48" in text
    assert re.search(r"^\| rps, slowest \| 360.6 \|  \|  \| \d", text, re.MULTILINE)  # the second column's are there
    assert "## paths" not in text


def test_runs_of_former_versions_are_simulated_again_and_those_that_differ_are_named() -> None:
    """Of two recorded runs, which this version gives to the bit, one has another value."""
    recorded = load(RECORD)["four-flows"]
    same, other = (next(run for run in recorded if run.scheme == scheme) for scheme in ("sopa", "rps"))
    other = replace(other, measures={**other.measures, "mean": other.measures["mean"] + 0.1})
    runs = [replace(run, record={**run.record, "simulator": "a former one"}) for run in (same, other)]
    assert differences({"four-flows": runs}, 3) == (
        2,
        [f"four-flows: the run of rps with seed {other.seed} has other values now: mean"],
    )
