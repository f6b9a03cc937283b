"""What results say: statistics, tables and figures of a directory that `experiments.core.records` wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.core.records import ResultsError

__all__ = ["report"]


def report(directory: Path, base: str = "sopa", say: Callable[[str], object] = print) -> Path:
    """Write ``DIRECTORY/report``: a page with tables and figures, and all figures for programs.

    Parameters
    ----------
    directory : Path
    base : str
        The scheme to compare with. If it has no valid run, the one with the best mean is taken instead.
    say : callable
        Gets the tables and notes as text.

    Returns
    -------
    Path
        The folder that was written.

    Raises
    ------
    ResultsError
        If there are no results, none that are valid, or damaged ones, or if nothing can be written there.
    """
    # Here, as drawing takes a second to load: commands that only run experiments do without.
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
