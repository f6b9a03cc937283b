"""The record of the papers' figures: the data of every run, in ``experiments/record``, and the tables that are made from them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments import ns3
from experiments.core.records import ResultsError
from experiments.paper.figure_runs import compact, parts_of, read, rows_of, simulate_again, tables
from experiments.paper.figures import FIGURES, RunData
from sopa_ryu.runtime.atomic_file import write_atomically

RECORD = Path(__file__).parents[1] / "record"
_BELOW = re.compile(r"(<!-- table of (\S+) -->\n)(?:\|.*\n)*")
"""In ``RESULTS.md`` the mark above a table that is made from the record, and the table."""

Kept = Mapping[str, list[RunData]]
"""The runs of each part."""


def load(directory: Path) -> dict[str, list[RunData]]:
    """Return the data of every run in ``directory``/data. Raises `ResultsError`, which names file and run, if one is damaged."""
    found = {}
    for file in sorted((*directory.glob("data/*.json"), *directory.glob("lab/*.json"))):
        try:
            found[file.stem] = read(file.read_text())
        except (OSError, UnicodeDecodeError, ResultsError) as error:
            raise ResultsError(f"{file}: {error}") from error
    if not found:
        raise ResultsError(f"{directory} has no data of runs: sopa experiment paper --out {directory} makes some")
    return found


def problems(kept: Kept, directory: Path = RECORD) -> Iterator[str]:
    """Yield what is wrong with the record, which `load` has returned."""
    parts = {part.name: part for part in parts_of(FIGURES.values())}
    for name, runs in kept.items():
        seen = set()
        for run in runs:
            its = f"{_file(directory, name)}: the run of {run.scheme} with seed {run.seed}"
            if name not in parts or run.scheme not in parts[name].schemes:
                yield f"{its} belongs to no figure"
            if (run.scheme, run.seed) in seen:
                yield f"{its} is there twice"
            seen.add((run.scheme, run.seed))
    for figure in FIGURES.values():
        wanted = {(part.name, *run) for part in figure.runs() for run in product(part.schemes, range(1, part.seeds + 1))}
        missing = wanted - {(name, run.scheme, run.seed) for name, runs in kept.items() for run in runs}
        if missing:
            name, scheme, seed = min(missing)
            yield (
                f"{figure.name}: {len(missing)} of {len(wanted)} runs are missing, the first one of {name}, {scheme}, seed {seed}: "
                f"sopa experiment paper {figure.name} --out DIR, then sopa experiment record DIR"
            )
    for file, text in _documents(directory, kept).items():
        if not file.is_file() or file.read_text() != text:
            yield f"{file} is not what the data say: sopa experiment record DIR writes it"


def differences(kept: Kept, count: int) -> tuple[int, list[str]]:
    """Simulate runs again, those of other versions of the simulator first; return how many, and which values are not as recorded.

    The simulator's digest decides which, so that each version is asked for others; a larger ``count`` has all of a smaller one.
    Raises `ResultsError` if not all are simulated.
    """
    parts = {part.name: part for part in parts_of(FIGURES.values())}
    mine = ns3.digest()
    simulated = [(parts[name], run) for name, runs in sorted(kept.items()) for run in runs if "simulator" in run.record]
    random.Random(mine).shuffle(simulated)
    chosen = sorted(simulated, key=lambda one: one[1].record["simulator"] == mine)[:count]
    with TemporaryDirectory() as place:
        again = simulate_again(chosen, Path(place))
    found = []
    for (part, run), now in zip(chosen, again, strict=True):
        names = sorted(name for name, value in run.measures.items() if now.measures.get(name) != value)
        names += [] if run.record["hops"] == now.record["hops"] else ["hops"]
        names += [] if run.mbit == now.mbit else ["mbit"]
        if names:
            found.append(f"{part.name}: the run of {run.scheme} with seed {run.seed} has other values now: {', '.join(names)}")
    return len(chosen), found


def _file(directory: Path, part: str) -> Path:
    return directory / ("lab" if part.startswith("lab-") else "data") / f"{part}.json"


def _documents(directory: Path, kept: Kept) -> dict[Path, str]:
    """Return what the tables have to be: ``tables.md``, and what ``RESULTS.md`` beside the record has of them."""

    def below(mark: re.Match[str]) -> str:
        return mark[1] + "".join(f"{line}\n" for line in rows_of(FIGURES[mark[2]], kept))

    found = {directory / "tables.md": tables(FIGURES.values(), kept)}
    results = directory.parent / "RESULTS.md"
    return found | {results: _BELOW.sub(below, results.read_text())} if results.is_file() else found


def take(source: Path, directory: Path = RECORD) -> int:
    """Put the complete runs of the results in ``source`` into the record, and write its tables; return how many runs were new.

    A run that the record has already is replaced. Raises `ResultsError` if either is damaged, or a file cannot be written.
    """
    kept, taken = load(directory), load(source)
    new = 0
    for name, runs in taken.items():
        its = {(run.scheme, run.seed): run for run in kept.get(name, ())}
        new -= len(its)
        its |= {(run.scheme, run.seed): run for run in runs}
        new += len(its)
        kept[name] = [its[key] for key in sorted(its)]
    try:
        for name in taken:
            write_atomically(_file(directory, name), compact(kept[name], once=True).encode())
        for file, text in _documents(directory, kept).items():
            write_atomically(file, text.encode())
    except OSError as error:
        raise ResultsError(f"the record cannot be written to {directory}: {error.strerror or error}") from error
    return new
