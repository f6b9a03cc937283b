"""A report says what the results say, names what it leaves out, and what to do where there is nothing to say."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from experiments.core.records import Results, ResultsError
from experiments.report import plots, report
from experiments.workloads import BadLink
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.picked import shown
from tests.helpers.records import THESE, a_flow, a_run, files_up_to, results_in
from topologies.fabric_file import parse


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second each, and are those of test_report_plots.py."""
    monkeypatch.setattr(plots, "plots", lambda *_: iter(()))


class Experiment:
    def __init__(self, parent: Path) -> None:
        self._parent, self._count = parent, 0
        self.do_begin()

    def handle(self, step: Step) -> str:
        try:
            return getattr(self, f"do_{step.command}")(*step.words, **step.options) or ""
        except ResultsError as error:
            return f"refused: {error}".replace(str(self._directory), "DIR")

    def do_begin(self, fabric: str = "") -> None:
        """Begin with no results, of the k=4 fat-tree or of another fabric."""
        self._count += 1
        self._directory = self._parent / str(self._count)
        self._results = results_in(self._directory) if not fabric else Results(self._directory)
        if fabric:
            self._results.open(replace(THESE, k=None, fabric=parse(fabric).fabric.document()))

    def do_run(
        self, scheme: str, seed: str, *rates: str, idle: str = "60", collective: str = "null", series: str = "",
        failed: str = "null", bad: str = "", **of_flows: str,
    ) -> None:  # fmt: skip
        """Add a run with flows of these rates; a rate with ``!`` is not valid, nor a run of busy processors.

        ``series`` are the rates of each flow in steps of 100 ms, ``4x20; 0x7 1x13`` those of two. Something has ``failed`` after so
        many seconds, or a link that the second flow may cross is ``bad`` from then on and counted so many packets.
        """
        lists = {name: json.loads(text) for name, text in of_flows.items()}
        valid, flows = float(idle) > 5, []
        for number, rate in enumerate(rates):
            its = {name: values[number] for name, values in lists.items()}
            mbit = float(Fraction(rate.strip("!")))
            flows.append(a_flow(scheme, int(seed), number, mbit, valid=valid and "!" not in rate, **its))
        run = a_run(scheme, int(seed), valid=valid, cpu_idle_percent=float(idle))
        parts = [[part.split("x") for part in flow.split()] for flow in series.split(";")]
        steps = {str(n): [float(rate) for rate, count in flow for _ in range(int(count))] for n, flow in enumerate(parts)}
        run = replace(run, series=steps, series_ms=100.0, failed_at=json.loads(failed)) if series else run
        if bad:
            at, packets = map(json.loads, bad.split())
            link = BadLink("a0_0-c0_0", "c0_0", at, 0.01, transfers=(1,)).record()
            run = replace(run, bad=[{**link, "packets": packets, "lost": 9, "corrupted": 1}])
        self._results.add(replace(run, collective=json.loads(collective) or run.collective), flows)

    def do_report(self, *parts: str, base: str = "sopa", said: str = "yes") -> str:
        """Say what a report says but its tables, which are on its page, and parts of its figures."""
        texts: list[str] = []
        folder = report(self._directory, base, texts.append)
        lines = [line for text in texts for line in text.splitlines() if not set(line) & set("│┃━─")]
        figures = shown(json.loads((folder / "summary.json").read_text()), [*parts])
        return "\n".join([*(lines if said == "yes" else ()), figures]).replace(str(self._directory), "DIR")

    def do_file(self, name: str) -> str:
        return (self._directory / "report" / name).read_text()


@each_script(__file__, "report")
def test_report(tmp_path: Path, script: Script) -> None:
    script.play(Experiment(tmp_path).handle)


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b'{"mbit": 1}', b"same NaN", b"same -1.0", b'same "many"', b"h9 "], ids=repr)
def test_damage_is_told_with_the_file(tmp_path: Path, damage: bytes) -> None:
    results_in(tmp_path).add(a_run(), [a_flow(mbit=123.5)])
    file = tmp_path / "sopa-1.jsonl"
    kind, _, value = damage.partition(b" ")
    wrong = file.read_bytes().replace(b"123.5", value) if kind == b"same" else damage
    file.write_bytes(file.read_bytes().replace(b"h0_0_2", b"h9_0_2") if kind == b"h9" else wrong)
    with pytest.raises(ResultsError, match=r"(?s)sopa-1\.jsonl.*(damaged|cannot be read).*delete (it|the file) and run again"):
        report(tmp_path)


def test_a_full_disk_is_told_and_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="contains no results"):
        report(tmp_path)
    results_in(tmp_path).add(a_run(), [a_flow()])
    with files_up_to(1000), pytest.raises(ResultsError, match="the report cannot be written"):
        report(tmp_path, say=lambda _: None)
    assert not list((tmp_path / "report").glob(".*"))


def test_a_report_does_not_disturb_results_nor_what_others_put_there(tmp_path: Path) -> None:
    results_in(tmp_path).add(a_run(), [a_flow()])
    folder = report(tmp_path, say=lambda _: None)
    (folder / "notes.txt").write_text("mine")
    results_in(tmp_path).add(a_run("ecmp"), [a_flow("ecmp")])
    report(tmp_path, say=lambda _: None)
    assert "| ecmp |" in (folder / "README.md").read_text()
    assert (folder / "notes.txt").read_text() == "mine"
