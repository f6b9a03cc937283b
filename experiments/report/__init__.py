"""Reports: statistics, tables and figures of a directory of results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.core.records import ResultsError

__all__ = ["report"]


def report(directory: Path, base: str = "sopa", say: Callable[[str], object] = print) -> Path:
    """Write a page with tables and figures, and all numbers as CSV and JSON, to ``DIRECTORY/report``, and return that folder.

    Without a valid run of the scheme ``base``, the scheme with the best mean is compared with. ``say`` receives tables and notes as
    text. Raises `ResultsError` if results are missing, damaged or all invalid, or if the report cannot be written.
    """
    # Imported here because matplotlib takes a second to load.
    from experiments.report import page, plots, tables
    from experiments.report.collect import collect
    from experiments.report.summary import summarize

    collected = collect(directory)
    summary = summarize(collected, base)
    say(tables.heading(summary))
    for grid in tables.grids(summary):
        say(tables.text(grid))
    for note in summary.notes:
        say(note)
    folder = directory / page.FOLDER
    try:
        page.write(folder, summary, list(plots.plots(collected, summary)))
    except OSError as error:
        raise ResultsError(f"the report cannot be written to {folder}: {error.strerror or error}") from error
    return folder
