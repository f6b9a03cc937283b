"""The data of record in the repository: whole, small, and what its tables say."""

from pathlib import Path

import pytest

from experiments.paper.figure import RunData
from experiments.paper.figure_runs import read, tables
from experiments.paper.figures import FIGURES

RECORD = Path(__file__).parents[3] / "experiments/record"
MAX_BYTES = 5_000_000


@pytest.fixture(scope="module")
def kept() -> dict[str, list[RunData]]:
    return {file.stem: read(file.read_text()) for file in (RECORD / "data").glob("*.json")}


def test_every_file_is_of_a_part_and_has_its_runs_once(kept: dict[str, list[RunData]]) -> None:
    parts = {part.name: part for figure in FIGURES.values() for part in figure.runs()}
    schemes: dict[str, set[str]] = {}
    for part in (part for figure in FIGURES.values() for part in figure.runs()):
        schemes.setdefault(part.name, set()).update(part.schemes)
    assert kept
    for name, runs in kept.items():
        assert name in parts
        assert {run.scheme for run in runs} <= schemes[name]
        assert len({(run.scheme, run.seed) for run in runs}) == len(runs)
        for run in runs:
            assert run.measures["mean"] == pytest.approx(sum(run.mbit) / len(run.mbit), abs=0.06)
            assert len(str(run.record["simulator"])) == 64


def test_the_tables_are_of_the_data(kept: dict[str, list[RunData]]) -> None:
    told = [figure for figure in FIGURES.values() if any(part.name in kept for part in figure.runs())]
    assert (RECORD / "tables.md").read_text() == tables(told, kept)


def test_they_are_small() -> None:
    assert sum(file.stat().st_size for file in RECORD.rglob("*") if file.is_file()) < MAX_BYTES
