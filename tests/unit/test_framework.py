"""What the tests stand on: verdicts on measurements, golden scripts, the record of a run, its interruption."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import report
from tests.helpers.documents import ROOT
from tests.helpers.golden import Script, Step
from tests.helpers.waiting import eventually
from tests.timing import controls
from tests.timing.controls import Control
from tests.timing.judge import MAX_VOID, Timing

GOOD, BAD = 1.0, 3.0


class Told(Control):
    """A control that is as late as told, sample by sample."""

    name = "told"

    def __init__(self, late: Iterator[float]) -> None:
        self._late = late

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *error: object) -> None:
        self.late = next(self._late)


@pytest.fixture(autouse=True)
def _no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is judged here is no measurement of the run."""
    monkeypatch.delenv(report.VARIABLE, raising=False)


def judged(values: list[float], late: dict[int, float] | None = None, relation: str = "at_most", **more: bool) -> str:
    """Return why a series of values misses its bound of 2, or nothing; it must be as long as the verdict needs."""
    given = iter(values)
    control = Told((late or {}).get(number, 0.0) for number in range(100))
    try:
        getattr(Timing(), relation)(2.0, lambda: next(given), what="steps", control=control, tolerated=0.1, **more)
    except AssertionError as error:
        return str(error)
    finally:
        assert next(given, None) is None
    return ""


@pytest.mark.parametrize("end", [[GOOD] * 3, [BAD, GOOD, BAD, GOOD, GOOD]])
def test_three_of_five_samples_decide(end: list[float]) -> None:
    other = [BAD + GOOD - value for value in end]
    assert (judged(end), judged(other, relation="at_least")) == ("", "")
    assert judged(other)
    assert judged(end, relation="at_least")


def test_a_sample_of_a_late_machine_is_recorded_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(report.VARIABLE, str(tmp_path / "record"))
    assert judged([BAD, GOOD, BAD, GOOD, GOOD], {0: 0.2, 2: 3.0}) == ""
    [line] = report.read(tmp_path / "record")
    assert (line["samples"], line["void"], line["late"]) == ([GOOD] * 3, [0.2, 3.0], [0.0] * 3)
    assert "2 samples taken again" in "\n".join(report.summary([line]))


def test_a_sample_that_cannot_be_taken_fails_only_a_machine_that_is_on_time() -> None:
    def sample() -> float:
        assert next(steps) != BAD, "a ping is lost"
        return GOOD

    for late, said in ((0.5, ""), (0.0, "a ping is lost")):
        steps, failed = iter([BAD, GOOD, GOOD, GOOD]), ""
        control = Told(iter([late, 0.0, 0.0, 0.0]))
        try:
            Timing().at_most(2.0, sample, what="steps", control=control, tolerated=0.1)
        except AssertionError as error:
            failed = str(error)
        assert failed.partition("\n")[0] == said


def test_a_machine_that_is_always_late_is_no_verdict_on_the_product() -> None:
    assert "15 more samples say nothing" in judged([GOOD] * MAX_VOID, dict.fromkeys(range(MAX_VOID), 0.5))


@pytest.mark.parametrize(("times", "kept"), [(1.0, False), (2.0, True), (0.1, False)])
def test_a_reaction_may_take_longer_on_a_slower_processor_only(times: float, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "work_seconds", lambda: times * controls.WORK_SECONDS)
    assert (judged([BAD] * 3, reaction=True) == "") == kept
    assert judged([BAD] * 3)


SCRIPT = "# What it shows.\nadd 2 to=3\n----\n{}\n\nnothing\n----\nok\n"


def calculator(step: Step) -> str:
    return str(int(step.words[0]) + int(step.options["to"])) if step.command == "add" else ""


@pytest.mark.parametrize(("text", "problem"), [(SCRIPT.format(6), "script:2: add 2 to=3"), ("add 1 to=1\n", "pytest --record")])
def test_a_script_that_says_otherwise_fails_at_its_line(tmp_path: Path, text: str, problem: str) -> None:
    script = tmp_path / "script"
    script.write_text(text)
    with pytest.raises(AssertionError, match=problem):
        Script(script, record=False).play(calculator)
    Script(script, record=True).play(calculator)
    assert script.read_text() in (SCRIPT.format(5), "add 1 to=1\n----\n2\n")
    Script(script, record=False).play(calculator)


def test_an_interrupted_worker_takes_down_what_it_started_however_long_that_takes(tmp_path: Path) -> None:
    started = tmp_path / "started"
    (tmp_path / "test_lab.py").write_text(
        "import pathlib, signal, time, pytest\n"
        "from tests.helpers.waiting import eventually\n"
        "@pytest.fixture\n"
        "def lab():\n"
        f"    started = pathlib.Path({str(started)!r})\n"
        "    started.touch()\n"
        "    yield\n"
        "    eventually(lambda: False)  # a fabric that the test left broken\n"
        "    time.sleep(6)  # xdist's own limit is 10 s from Ctrl-C on, of which the test has 5\n"
        "    started.unlink()\n"
        "def test_it(lab):\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "tests.conftest", "-o", "timeout=300", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SOPA_TEST_RECORD": ""}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as run:
        eventually(started.exists)
        run.send_signal(signal.SIGINT)
        assert run.wait() == pytest.ExitCode.INTERRUPTED
    assert not started.exists()
