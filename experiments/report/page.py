"""The files of a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from experiments.report import tables
from experiments.report.plots import DRAWN
from experiments.report.style import Plot
from experiments.report.summary import RunSummary
from sopa_ryu.runtime.atomic_file import write_atomically

FOLDER = "report"
PAGE = "README.md"
FILES = ("schemes.csv", "kinds.csv", "excluded.csv", "summary.json")


def write(folder: Path, summary: RunSummary, drawn: Sequence[Plot]) -> None:
    """Write or replace all files of a report; others in the folder are unchanged. Raises OSError if a file cannot be written."""
    folder.mkdir(exist_ok=True)
    figures = {plot.name: plot.numbers for plot in drawn}
    texts = (tables.schemes_csv(summary), tables.kinds_csv(summary), tables.excluded_csv(summary))
    for plot in drawn:
        write_atomically(folder / f"{plot.name}.png", plot.png)
        write_atomically(folder / f"{plot.name}.svg", plot.svg)
    for name, text in zip(FILES, (*texts, tables.as_json(summary, figures)), strict=True):
        write_atomically(folder / name, text.encode())
    # Last, because it refers to all other files.
    write_atomically(folder / PAGE, page(summary, drawn).encode())
    for name in DRAWN.keys() - {plot.name for plot in drawn}:
        # left by an earlier report
        (folder / f"{name}.png").unlink(missing_ok=True)
        (folder / f"{name}.svg").unlink(missing_ok=True)


def page(summary: RunSummary, drawn: Sequence[Plot]) -> str:
    """Return the page of the report in Markdown."""
    run_settings = summary.settings
    names = ", ".join(scheme.scheme for scheme in summary.schemes)
    lines = [f"# {run_settings.workload}: {names}", "", f"{tables.heading(summary)}."]
    if run_settings.fabric is not None:
        lines.append(f"Fabric: `{json.dumps(run_settings.fabric)}`.")
    if run_settings.parameters:
        lines.append("Parameters: " + ", ".join(f"{name} {value}" for name, value in run_settings.parameters.items()) + ".")
    if summary.notes:
        lines += ["", *(f"- **{note}**" for note in summary.notes)]
    lines.append("")
    for grid in tables.grids(summary):
        lines += [tables.markdown(grid)]
    lines += [
        "Means, percentiles and the standard deviation are over all flows of all valid runs. ± is the 95% interval by Student's "
        f"t over at least two runs. The ratio to {summary.base} is the mean of the ratios for each common seed, with its interval. "
        "Fairness is the mean of Jain's index over runs.",
        "",
        "All digits: " + ", ".join(f"[{name}]({name})" for name in FILES) + ".",
    ]
    for plot in drawn:
        lines += ["", f"## {plot.title}", "", plot.caption, "", f"[![{plot.title}]({plot.name}.png)]({plot.name}.svg)"]
    return "\n".join(lines) + "\n"
