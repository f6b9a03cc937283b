"""Runs the experiments of the papers, and writes tables, figures and data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

from matplotlib.patches import Patch
from rich.table import Table

from experiments import ns3, workloads
from experiments.core.campaign import Campaign, progress_bar
from experiments.core.records import FlowRecord, Results, ResultsError
from experiments.paper.figures import Figure, FigurePart, FigureRow, RunData, TableCell, Variant, column_row
from experiments.paper.measures import data
from experiments.report import report, style
from experiments.report.statistics import mean_interval
from experiments.report.style import COLOURS, Plot, finish, legend_below, styled
from experiments.schemes import named
from experiments.workloads import Scale, WorkloadError
from flowrules.label import Carrier

PAYLOAD_SHARE = {"ns3": 1460 / 1500, "lab": 1448 / 1514}
"""Of the rate of a link: the lab counts the Ethernet header, and Linux sends TCP timestamps."""
MIN_SPREAD = 1e-6
"""Smaller intervals, as a share of the mean, are rounding errors."""
BAR_WIDTH = 0.8
"""Of a group of bars, as a share of the distance of groups."""
FAILED = "asymmetric"
"""Workload whose first two flows are those of figure 7 of the SOPA paper."""


def scaled(figure: Figure, k: int | None, seeds: int | None) -> Figure:
    """Return a figure with another fabric or number of seeds. Raises `WorkloadError` if a workload is impossible in the fabric."""
    parts = tuple(replace(part, k=part.k if part.fabric else k or part.k, seeds=seeds or part.seeds) for part in figure.parts)
    for part in parts:
        _plan(part, 1)
    other = k and any(part.fabric is None for part in parts)
    return replace(figure, parts=parts, source=f"{figure.source}; here k={k}" if other else figure.source)


def campaigns(figures: Iterable[Figure], out: Path, backend: str = "ns3") -> list[Campaign]:
    """Return the campaigns of some figures in the simulator, or in the lab. Parts that figures share occur once.

    Raises `ResultsError` if a directory contains something else.
    """
    return [_campaign(part, out, range(1, part.seeds + 1)) for part in parts_of(figures) if part.backend == backend]


def _campaign(part: FigurePart, out: Path, seeds: Iterable[int]) -> Campaign:
    settings, queue = ns3.sized(ns3.parse(part.options), part.tree, part.rate_mbit, part.queue_packets)
    plans = {seed: _plan(part, seed) for seed in seeds}
    schemes = [named(scheme) for scheme in part.schemes]
    scale = Scale(part.rate_mbit, part.seconds)
    made = Campaign(Results(out / part.name), part.workload, schemes, plans, part.tree, scale, queue, Carrier.MAC, settings)
    carrier = {"carrier": Carrier.MAC.value} if part.backend == "lab" else {}
    lost = {} if part.failed_links is None else {"failed_links_percent": part.failed_links}
    made.open(part.backend, {**carrier, **workloads.named(part.workload).parameters, **lost})
    return made


def simulate_again(chosen: Sequence[tuple[FigurePart, RunData]], out: Path) -> list[RunData]:
    """Simulate runs that there are already, and return what they are now.

    Raises `ResultsError` if a simulation fails or is interrupted; the user has been told why.
    """
    alone = [replace(part, name=str(number), schemes=(run.scheme,)) for number, (part, run) in enumerate(chosen)]
    if ns3.run_simulations([_campaign(part, out, [run.seed]) for part, (_, run) in zip(alone, chosen, strict=True)]):
        raise ResultsError("not all runs were simulated again")
    return [run for part in alone for run in collect(part, out, partial=True)]


def collect(part: FigurePart, out: Path, partial: bool = False) -> list[RunData]:
    """Return the data of the runs of a part. Raises `ResultsError` if a run is damaged, or missing unless ``partial``."""
    results = Results(out / part.name)
    payload = part.rate_mbit * PAYLOAD_SHARE[part.backend]
    wanted = {(scheme, seed) for scheme in part.schemes for seed in range(1, part.seeds + 1)}
    flows: dict[tuple[str, int], list[FlowRecord]] = {}
    for flow in results.flows():
        if flow.valid and (flow.scheme, flow.seed) in wanted:
            flows.setdefault((flow.scheme, flow.seed), []).append(flow)
    missing = wanted - flows.keys()
    if missing and not partial:
        scheme, seed = min(missing)
        raise ResultsError(f"{results.directory} has no run of {scheme} with seed {seed}: run the same command again")
    return [
        data(results.run(scheme, seed), flows[scheme, seed], payload, part.workload == FAILED)
        for scheme, seed in sorted(wanted - missing)
    ]


def table_cell(figure: Figure, row: FigureRow, variant: Variant, kept: Mapping[str, Sequence[RunData]]) -> TableCell | None:
    """Return the measured value of a row in a variant, from the data of each part's runs; None if no run has it."""
    [part] = [variant.of(part) for part in figure.parts if part.name == row.part]
    run_datas = [run for run in kept.get(part.name, ()) if run.seed <= part.seeds and row.measure in run.measures]
    found = {run.seed: run.measures[row.measure] for run in run_datas if run.scheme == row.scheme}
    if row.over:
        others = {run.seed: run.measures[row.measure] for run in run_datas if run.scheme == row.over}
        found = {seed: value / others[seed] for seed, value in found.items() if others.get(seed)}
    values = list(found.values())
    if not values:
        return None
    interval = mean_interval(values)
    half = (interval.high - interval.low) / 2 if interval else None
    return TableCell(math.fsum(values) / len(values), half, len(values))


def write(figures: Sequence[Figure], out: Path, say: Callable[[object], None], partial: bool = False) -> None:
    """Write ``tables.md``, figures and ``data/PART.json`` of the complete runs to a directory, and the parts' reports.

    ``say`` receives the table of each figure for a terminal. With ``partial`` runs may be missing, and figures without any run are
    omitted. Raises `ResultsError` if a run is missing or damaged, or a file cannot be written.
    """
    kept = {}
    with progress_bar()[1] as bar:  # a run of production traffic takes seconds to read
        for part in bar.track(parts_of(figures), description="reading the runs"):
            if runs := collect(part, out, partial):
                kept[part.name] = runs
                report(out / part.name, say=lambda _text: None)
    figures = [figure for figure in figures if any(part.name in kept for part in figure.runs())]
    if not kept:
        raise ResultsError(f"{out} contains no run of these figures")
    for figure in figures:
        say(terminal(figure, kept))
    try:
        (out / "data").mkdir(exist_ok=True)
        for name, runs in kept.items():
            (out / "data" / f"{name}.json").write_text(compact(runs))
        (out / "tables.md").write_text(tables(figures, kept))
        for plot in (measure_bars(figure, kept) for figure in figures if figure.bars):
            (out / f"{plot.name}.png").write_bytes(plot.png)
            (out / f"{plot.name}.svg").write_bytes(plot.svg)
    except OSError as error:
        raise ResultsError(f"tables cannot be written to {out}: {error.strerror or error}") from error


def compact(runs: Sequence[RunData], once: bool = False) -> str:
    """Return runs as JSON with one line per run, which ends with its own digest.

    With ``once``, what names the values of the run before is not said again: there is a list of values in that order, with null for
    the same text.
    """
    ones = [vars(run) for run in runs]
    return "[\n" + ",\n".join(map(_line_of, ones, [{}, *ones] if once else repeat({}))) + "\n]\n"


def read(text: str) -> list[RunData]:
    """Parse the output of `compact`. Raises `ResultsError` if it is damaged; the text says which run."""
    lines = text.splitlines()
    if lines[:1] != ["["] or lines[-1] != "]":
        raise ResultsError("no data of runs, or not all of them")
    runs: list[RunData] = []
    for number, line in enumerate(lines[1:-1], 2):
        runs.append(_run_of(number, line.removesuffix(","), vars(runs[-1]) if runs else {}))
    return runs


def _digest(one: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(one, separators=(",", ":")).encode()).hexdigest()


def _line_of(one: dict[str, Any], before: dict[str, Any]) -> str:
    short = {name: _short(value, before.get(name)) if isinstance(value, dict) else value for name, value in one.items()}
    return json.dumps({**short, "sha256": _digest(one)}, separators=(",", ":"))


def _short(value: Any, before: Any) -> Any:
    if isinstance(value, dict) and isinstance(before, dict) and [*value] == [*before] and None not in value.values():
        return [_short(each, before[name]) for name, each in value.items()]
    return None if isinstance(value, str) and value == before else value


def _whole(short: Any, before: Any) -> Any:
    if isinstance(short, list) and isinstance(before, dict):
        return {name: _whole(each, value) for each, (name, value) in zip(short, before.items(), strict=True)}
    return before if short is None else short


def _run_of(number: int, line: str, before: dict[str, Any]) -> RunData:
    try:
        one = {name: _whole(value, before.get(name)) for name, value in json.loads(line).items()}
        place = f"line {number}, the run of {one['scheme']} with seed {one['seed']}"
        right = one.pop("sha256") == _digest(one)
        run = RunData(**{**one, "mbit": tuple(one["mbit"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultsError(f"line {number} is damaged: {error}") from error
    if not right:
        raise ResultsError(f"{place}, is not what was recorded: its digest is another one")
    return run


def tables(figures: Iterable[Figure], kept: Mapping[str, Sequence[RunData]]) -> str:
    """Return the tables of the figures that have runs, without rows and variants that no run has measured."""
    return "\n".join(markdown(figure, kept) for figure in figures if any(part.name in kept for part in figure.runs()))


def markdown(figure: Figure, kept: Mapping[str, Sequence[RunData]]) -> str:
    """Return the table of a figure in Markdown."""
    lines = [f"## {figure.name}", "", f"{figure.source}.", "", *rows_of(figure, kept), "", *(f"- {note}" for note in figure.notes)]
    return "\n".join(lines).rstrip() + "\n"


def rows_of(figure: Figure, kept: Mapping[str, Sequence[RunData]]) -> list[str]:
    """Return the lines of the table of a figure in Markdown, without what is around it; none without runs."""
    figure = _measured(figure, kept)
    if not figure.variants:
        return []
    titles = _titles(figure)
    return [_line(titles), "|---|" + "---:|" * (len(titles) - 1), *map(_line, _rows(figure, kept))]


def terminal(figure: Figure, kept: Mapping[str, Sequence[RunData]]) -> Table:
    """Return the table of a figure for a terminal."""
    figure = _measured(figure, kept)
    table = Table(title=figure.source, title_justify="left", box=None)
    for number, title in enumerate(_titles(figure)):
        table.add_column(title, justify="right" if number else "left")
    for cells in _rows(figure, kept):
        table.add_row(*cells)
    return table


def measure_bars(of: Figure, kept: Mapping[str, Sequence[RunData]]) -> Plot:
    """Draw the measures of a figure that has bars: means over seeds, of the first variant. Parts without runs have no bar."""
    bars = of.bars
    assert bars is not None
    with styled():
        made = style.figure(3.4)
        panel = made.subplots()
        each = BAR_WIDTH / len(bars.schemes)
        for place, part in enumerate(bars.groups.values()):
            for number, scheme in enumerate(bars.schemes):
                runs = [run.measures for run in kept.get(part, ()) if run.scheme == scheme]
                if not runs:
                    continue
                mean, most = (
                    math.fsum(run[name] for run in runs) / len(runs) for name in (bars.measure, bars.most or bars.measure)
                )
                at = place - BAR_WIDTH / 2 + (number + 0.5) * each
                colour = COLOURS[number % len(COLOURS)]
                panel.bar(at, most, 0.9 * each, color="white", edgecolor=colour, linewidth=1)
                panel.bar(at, mean, 0.9 * each, color="white", edgecolor=colour, linewidth=1, hatch="/////")
        panel.set_xticks(range(len(bars.groups)), list(bars.groups))
        panel.set(xlabel=bars.across, ylabel=bars.title)
        panel.grid(visible=False, axis="x")
        handles = [Patch(facecolor="white", edgecolor=COLOURS[at % len(COLOURS)]) for at in range(len(bars.schemes))]
        legend_below(made, handles, list(bars.schemes))
        return finish(made, of.name, of.source, f"{bars.caption} Means over seeds.".strip())


def _measured(figure: Figure, kept: Mapping[str, Sequence[RunData]]) -> Figure:
    """Return a figure with those of its variants of which there are runs."""
    made = (variant for variant in figure.variants if any(variant.of(part).name in kept for part in figure.parts))
    return replace(figure, variants=tuple(made))


def _titles(figure: Figure) -> list[str]:
    if figure.columns:
        return ["scheme", *figure.columns]
    found = ["", "paper"]
    for variant in figure.variants:
        found += [variant.title, "ratio"]
    return found


def _rows(figure: Figure, kept: Mapping[str, Sequence[RunData]]) -> Iterator[list[str]]:
    if figure.columns:
        by_title = {row.title: row for row in figure.rows}
        for scheme in dict.fromkeys(row.scheme for row in figure.rows):
            its = (by_title.get(column_row(scheme, column)) for column in figure.columns)
            cells_of_scheme = [table_cell(figure, row, figure.variants[0], kept) if row else None for row in its]
            if any(cells_of_scheme):
                yield [scheme, *map(_here, cells_of_scheme)]
        return
    for row in figure.rows:
        cells = [row.title, "" if row.paper is None else _number(row.paper)]
        measured = [table_cell(figure, row, variant, kept) for variant in figure.variants]
        for found in measured:
            cells += [_here(found), f"{found.here / row.paper:.2f}" if found and row.paper else ""]
        if any(measured):
            yield cells


def _here(found: TableCell | None) -> str:
    if found is None:
        return ""
    spread = found.spread or 0.0
    return _number(found.here) + (f" ± {_number(float(f'{spread:.2g}'))}" if spread > MIN_SPREAD * abs(found.here) else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def parts_of(figures: Iterable[Figure]) -> list[FigurePart]:
    """Return the part of each directory once, with all schemes and seeds that any of the figures needs."""
    found: dict[str, FigurePart] = {}
    for part in (part for figure in figures for part in figure.runs()):
        before = found.get(part.name, part)
        schemes = tuple(dict.fromkeys((*before.schemes, *part.schemes)))
        found[part.name] = replace(before, schemes=schemes, seeds=max(before.seeds, part.seeds))
    return list(found.values())


def _plan(part: FigurePart, seed: int) -> workloads.Plan:
    try:
        plan = workloads.named(part.workload).build(part.tree, seed, Scale(part.rate_mbit, part.seconds))
        return plan if part.failed_links is None else workloads.with_failed_links(plan, part.tree, seed, part.failed_links)
    except WorkloadError as error:
        raise WorkloadError(f"{part.name}: {error}") from error
