"""The simulator's commands as they are typed: what is there is not done again, and what ends half-way goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.simulator import MISSING
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.skipif(MISSING, reason="ns-3 is missing: make install-ns3")
SOPA = str(Path(sys.executable).parent / "sopa")
SHORT = ["run", "permutation", "--backend", "ns3", "--schemes", "sopa,rps", "--seeds", "2", "--seconds", "0.02"]

LONG = ["run", "permutation", "--backend", "ns3", "--k", "8", "--schemes", "sopa,rps", "--seeds", "3", "--seconds", "0.01",
        "--out", "out"]  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def sopa(cache: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*before, SOPA, "experiment", *words]
        environment = {**os.environ, "SOPA_CACHE": str(cache)}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    return run


def seconds(out: Path) -> dict[str, float]:
    """Return the processor time of each run, which differs between runs."""
    return {file.name: json.loads(file.read_text())["options"]["processor_seconds"] for file in out.glob("*.run.json")}


def flows(out: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in out.glob("*.jsonl")}


def simulators(where: Path) -> list[str]:
    """Return the processes of simulators that a command in a directory has started: other tests may run simulators, too."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().startswith("sopa_simulation"[:15]) and (
                process / "cwd"
            ).readlink() == where:
                found.append(process.name)
        except OSError:  # it has ended meanwhile
            pass
    return found


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the results of `SHORT` as ``one``, and what the cache got from it as ``cache``."""
    where = tmp_path_factory.mktemp("finished")
    environment = {**os.environ, "SOPA_CACHE": str(where / "cache")}
    done = subprocess.run(
        [SOPA, "experiment", *SHORT, "--out", "one"], capture_output=True, text=True, env=environment, cwd=where
    )
    assert done.returncode == 0, done.stderr
    return where


@pytest.fixture
def one(finished: Path, tmp_path: Path) -> Path:
    """Return the directory ``one`` of a test's own, with those results; the test's cache is that of their run."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "one"


def test_the_command_runs_reports_and_goes_on(sopa: Run, tmp_path: Path) -> None:
    done = sopa(*SHORT, "--out", "out")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert (out / "report" / "README.md").exists()
    [*lines] = (out / "sopa-1.jsonl").read_text().splitlines()
    assert {(flow["backend"], flow["rate_mbit"]) for flow in map(json.loads, lines)} == {("ns3", 1000.0)}
    assert "4 of 4" in done.stderr
    (out / "rps-2.jsonl").unlink()
    done = sopa(*SHORT, "--out", "out")
    assert "3 of 4 runs are already complete" in done.stderr
    assert (out / "rps-2.jsonl").exists()


def test_the_same_run_for_another_directory_comes_from_the_cache(
    sopa: Run, cache: Path, one: Path, tmp_path: Path
) -> None:
    assert len(list((cache / "ns3").iterdir())) == 4
    assert sopa(*SHORT, "--out", "two").returncode == 0
    assert flows(one) == flows(tmp_path / "two")
    assert seconds(one) == seconds(tmp_path / "two")  # they are of the first time
    assert sopa(*SHORT, "--set", "spread=1ms", "--out", "three").returncode == 0
    assert len(list((cache / "ns3").iterdir())) == 8  # other settings are another run
    assert flows(tmp_path / "three") != flows(one)


def test_a_damaged_entry_of_the_cache_is_made_anew(sopa: Run, cache: Path, one: Path, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in (cache / "ns3").iterdir()}
    for file, whole in before.items():
        file.write_bytes(whole[: len(whole) // 2])
    done = sopa(*SHORT, "--out", "two")
    assert done.returncode == 0, done.stderr
    assert flows(one) == flows(tmp_path / "two")
    assert all(len(file.read_bytes()) > len(whole) // 2 for file, whole in before.items())


def test_other_settings_do_not_go_into_the_same_directory(sopa: Run, one: Path) -> None:
    done = sopa(*SHORT, "--set", "spread=1ms", "--out", one.name)
    assert done.returncode == 1
    assert "results of another experiment" in done.stderr


def test_failed_links_are_those_of_the_seed_and_part_of_the_experiment(sopa: Run, tmp_path: Path) -> None:
    failed = [*SHORT, "--schemes", "sopa,ecmp", "--failed-links", "5"]
    done = sopa(*failed, "--out", "out")
    assert done.returncode == 0, done.stderr
    events = {
        name: json.loads((tmp_path / f"out/{name}.run.json").read_text())["events"]
        for name in ("sopa-1", "ecmp-1", "sopa-2")
    }
    assert len(events["sopa-1"]) == 2  # of 32 links between switches
    assert events["sopa-1"] == events["ecmp-1"] != events["sopa-2"]
    assert sopa(*SHORT, "--schemes", "sopa,ecmp", "--failed-links", "10", "--out", "out").returncode == 1
    done = sopa("run", "failure", "--backend", "ns3", "--failed-links", "5", "--out", "other")
    assert "a0_0 fails during the run" in done.stderr


@pytest.mark.parametrize("limit", ["2000", "20000"])
def test_a_full_disk_is_said_and_what_was_kept_goes_on(sopa: Run, tmp_path: Path, limit: str) -> None:
    done = sopa(*SHORT, "--out", "out", before=("prlimit", f"--fsize={limit}"))
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "run the same command again" in done.stderr
    assert "Traceback" not in done.stderr
    out = tmp_path / "out"
    assert not list(out.glob(".*"))
    assert not list(out.glob("*.jsonl"))
    done = sopa(*SHORT, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert len(flows(out)) == 4


@pytest.fixture
def long_run(cache: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [SOPA, "experiment", *LONG],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SOPA_CACHE": str(cache)},
        cwd=tmp_path,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_half_way_leaves_nobody_and_goes_on(
    sopa: Run, long_run: subprocess.Popen[str], tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "out"
    eventually(lambda: list(out.glob("*.jsonl")) or long_run.poll() is not None, seconds=60)
    assert long_run.poll() is None
    assert simulators(tmp_path)
    long_run.send_signal(how)
    _, said = long_run.communicate()
    assert long_run.returncode != 0
    assert "Traceback" not in said
    eventually(lambda: simulators(tmp_path), [])
    kept = flows(out)
    assert 0 < len(kept) < 6
    done = sopa(*LONG)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} of 6 runs are already complete" in done.stderr
    assert len(flows(out)) == 6
    assert {name: flows(out)[name] for name in kept} == kept


def test_a_papers_figure_has_a_table_data_and_plots(sopa: Run, tmp_path: Path) -> None:
    done = sopa("paper", "four-flows", "--seeds", "2", "--out", "out")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    table = (out / "tables.md").read_text()
    assert "| sopa, mean Mbit/s | 475 | 48" in table
    assert (out / "four-flows/report/queues.png").exists()
    runs = json.loads((out / "data/four-flows.json").read_text())
    assert {(run["scheme"], run["seed"]) for run in runs} == {
        (scheme, seed) for scheme in ("sopa", "rps", "rps+sack=off") for seed in (1, 2)
    }
    assert all(len(run["mbit"]) == 4 and run["record"]["simulator"] for run in runs)
    again = sopa("paper", "four-flows", "--seeds", "2", "--out", "out")
    assert "12 of 12 runs are already complete" in again.stderr
    assert (out / "tables.md").read_text() == table
    for file in out.glob("four-flows/rps-*"):  # those of the first column
        file.unlink()
    part = sopa("paper", "four-flows", "paths", "--seeds", "2", "--tables", "--out", "out")
    assert part.returncode == 0, part.stderr
    assert not list(out.glob("four-flows/rps-*"))
    text = (out / "tables.md").read_text()
    assert "| sopa, mean Mbit/s | 475 | 48" in text
    assert re.search(r"^\| rps, slowest \| 360.6 \|  \|  \| \d", text, re.MULTILINE)  # the second column's are there
    assert "## paths" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["four-flow"], "did you mean four-flows"),
        (["permutation", "--k", "5"], "must be an even number"),
        (["four-flows", "--k", "2"], "give --k 4 or more"),
        (["four-flows", "--seeds", "0"], "seeds"),
    ],
)
def test_what_no_figure_can_be_is_said(sopa: Run, tmp_path: Path, words: list[str], said: str) -> None:
    done = sopa("paper", *words, "--out", "out")
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_figures_are_listed(sopa: Run) -> None:
    listed = sopa("paper", "--list").stdout
    assert all(name in listed for name in ("four-flows", "thresholds", "sizes"))
