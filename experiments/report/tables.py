"""Results as tables: for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.report.faults import Effect
from experiments.report.statistics import Distribution, Interval, RatioStatistics
from experiments.report.summary import Collective, RunSummary, SchemeSummary

MISSING = "-"
CONSOLE_WIDTH = 120


@dataclass(frozen=True)
class Grid:
    """A table independent of its format; so many columns at the beginning are text, the others are numbers."""

    title: str
    labels: int
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def heading(summary: RunSummary) -> str:
    """Return the settings of the experiment in one line."""
    run = summary.settings
    links = "links" if run.fabric is None else "hosts' links"
    return f"{run.workload}, {run.backend}, {run.title}, {links} of {run.rate_mbit:g} Mbit/s, {run.seconds:g} s"


def grids(summary: RunSummary) -> list[Grid]:
    """Return every table for which data exist."""
    several_kinds = any(len(scheme.kinds) > 1 for scheme in summary.schemes)
    any_recovery = any(scheme.recoveries for scheme in summary.schemes)
    every = (
        Grid(
            "Mean throughput of flows in Mbit/s",
            1,
            ("scheme", "runs", "invalid", "mean", "± 95%", f"to {summary.base}", "± 95%", "fairness"),
            [_throughput(scheme) for scheme in summary.schemes],
        ),
        Grid(
            "Distribution of the throughput of flows in Mbit/s",
            1,
            ("scheme", "flows", *_SPREAD, "deviation"),
            [(one.scheme, str(one.mbit.count), *_spread(one.mbit), _number(one.mbit.deviation)) for one in summary.schemes],
        ),
        Grid(
            "Throughput by kind of flow in Mbit/s",
            2,
            ("scheme", "kind", "flows", "mean", *_SPREAD),
            [
                (scheme.scheme, kind or MISSING, str(one.count), _number(one.mean), *_spread(one))
                for scheme in summary.schemes
                for kind, one in scheme.kinds.items()
                if several_kinds
            ],
        ),
        Grid(
            "Completion time of the collective operation in ms",
            2,
            ("scheme", "job", "runs", "ended in time", "mean of those", "± 95%", f"to {summary.base}", "± 95%", "longest"),
            [_collective(scheme, one) for scheme in summary.schemes for one in scheme.collectives],
        ),
        Grid(
            "Completion times of transfers in ms",
            2,
            ("scheme", "kind", "transfers", "ended in time", "mean of those", "median", "99%", "slowdown 50%", "95%", "99%"),
            [
                (
                    *(scheme.scheme, kind or MISSING, str(one.count), str(one.completed)),
                    _milliseconds(one.mean),
                    *("not in time" if time is None else _milliseconds(time) for time in (one.median, one.p99)),
                    *map(_number, astuple(scheme.slowdown[kind])),
                )
                for scheme in summary.schemes
                for kind, one in scheme.completion.items()
            ],
        ),
        Grid(
            "After the failure, in seconds: time without traffic, and time until 90% of the later rate",
            1,
            ("scheme", "runs", "silence", "worst", "full rate, mean", "last flow", "worst"),
            [_recoveries(scheme) for scheme in summary.schemes if any_recovery],
        ),
        Grid(
            "Mean throughput in Mbit/s before and after a link has become bad, and what the link did to packets",
            1,
            ("scheme", "before", "after", "left", "crossing it: before", "after", "left", "lost", "corrupted", "of"),
            [_bad_link(scheme.scheme, scheme.bad_link) for scheme in summary.schemes if scheme.bad_link],
        ),
        Grid(
            "Retransmissions by TCP",
            1,
            ("scheme", "packets", "reordered", "retransmits", "of packets", "spurious", "fast retransmits", "timeouts"),
            [_losses(scheme) for scheme in summary.schemes],
        ),
    )
    return [grid for grid in every if grid.rows]


def terminal(grid: Grid) -> Table:
    """Return a table for a terminal."""
    table = Table(title=grid.title, title_justify="left")
    for index, column in enumerate(grid.columns):
        table.add_column(column, justify="left" if index < grid.labels else "right", no_wrap=index == 0)
    for row in grid.rows:
        table.add_row(*row)
    return table


def text(grid: Grid) -> str:
    """Return a table as plain text."""
    console = Console(file=io.StringIO(), width=CONSOLE_WIDTH, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(terminal(grid))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def markdown(grid: Grid) -> str:
    """Return a table in Markdown, below its title."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---" if index < grid.labels else "---:" for index in range(len(grid.columns))]
    return "\n".join((f"**{grid.title}**", "", line(grid.columns), line(rule), *map(line, grid.rows))) + "\n"


def schemes_csv(summary: RunSummary) -> str:
    """Return a line per scheme, with all digits."""
    return _csv(_flat_scheme(scheme) for scheme in summary.schemes)


def kinds_csv(summary: RunSummary) -> str:
    """Return a line per scheme and kind of flow."""
    return _csv(
        {"scheme": scheme.scheme, "kind": kind, **_prefixed("mbit", asdict(one))}
        | _prefixed("completion_s", asdict(scheme.completion[kind]) if kind in scheme.completion else _NO_COMPLETION)
        | _prefixed("slowdown", asdict(scheme.slowdown[kind]) if kind in scheme.slowdown else _NO_SLOWDOWN)
        for scheme in summary.schemes
        for kind, one in scheme.kinds.items()
    )


def excluded_csv(summary: RunSummary) -> str:
    """Return a line per excluded run."""
    return _csv((asdict(one) for one in summary.excluded), ("scheme", "seed", "why"))


def as_json(summary: RunSummary, figures: dict[str, Any]) -> str:
    """Return everything as JSON, with the numbers of the figures."""
    return json.dumps({**asdict(summary), "figures": figures}, indent=1, allow_nan=False) + "\n"


_SPREAD = ("minimum", "1%", "5%", "median", "95%", "99%", "maximum")
_NO_COMPLETION: dict[str, Any] = dict.fromkeys(("count", "completed", "mean", "median", "p99"))
_NO_SLOWDOWN: dict[str, Any] = dict.fromkeys(("p50", "p95", "p99"))


def _throughput(scheme: SchemeSummary) -> tuple[str, ...]:
    against = scheme.ratio
    return (
        scheme.scheme,
        str(len(scheme.seeds)),
        f"{100 * scheme.invalid_share:.0f}%",
        _number(scheme.mbit.mean),
        _half(scheme.interval),
        _number(against.value if against else None, 3),
        _half(against.interval if against else None, 3),
        _number(scheme.fairness, 4),
    )


def _spread(mbit: Distribution) -> tuple[str, ...]:
    return tuple(map(_number, (mbit.minimum, mbit.p1, mbit.p5, mbit.p50, mbit.p95, mbit.p99, mbit.maximum)))


def _recoveries(scheme: SchemeSummary) -> tuple[str, ...]:
    recoveries = scheme.recoveries
    if recoveries is None:
        return (scheme.scheme, "0", *[MISSING] * 5)
    times = (recoveries.silence, recoveries.worst_silence, recoveries.mean, recoveries.longest, recoveries.worst)
    return (scheme.scheme, str(recoveries.runs), *(_number(time, 1) for time in times))


def _collective(scheme: SchemeSummary, collective: Collective) -> tuple[str, ...]:
    half = None if collective.interval is None else (collective.interval.high - collective.interval.low) / 2
    against = collective.ratio
    return (
        *(scheme.scheme, str(collective.job or "all"), str(collective.runs), str(collective.completed)),
        *(_milliseconds(collective.mean), MISSING if half is None else _milliseconds(half)),
        *(_number(against.value if against else None, 3), _half(against.interval if against else None, 3)),
        _milliseconds(collective.longest),
    )


def _bad_link(scheme: str, effect: Effect) -> tuple[str, ...]:
    packets = MISSING if effect.packets is None else str(effect.packets)
    return (
        *(scheme, _number(effect.before), _number(effect.after), f"{100 * effect.ratio:.1f}%"),
        *(_number(effect.crossing_before), _number(effect.crossing_after), f"{100 * effect.crossing_ratio:.1f}%"),
        *(str(effect.lost), str(effect.corrupted), packets),
    )


def _losses(scheme: SchemeSummary) -> tuple[str, ...]:
    loss_statistics = scheme.losses
    return (
        scheme.scheme,
        str(loss_statistics.packets),
        _percent(loss_statistics.reordered_share),
        str(loss_statistics.retransmits),
        _percent(loss_statistics.retransmitted_share),
        str(loss_statistics.spurious),
        str(loss_statistics.fast_retransmits),
        str(loss_statistics.timeouts),
    )


def _flat_scheme(scheme: SchemeSummary) -> dict[str, Any]:
    interval, against = scheme.interval, scheme.ratio or RatioStatistics(0, None, 0)
    return {
        "scheme": scheme.scheme,
        "seeds": " ".join(map(str, scheme.seeds)),
        "invalid_share": scheme.invalid_share,
        **_prefixed("mbit", asdict(scheme.mbit)),
        "mean_low": interval and interval.low,
        "mean_high": interval and interval.high,
        "ratio": against.value if against.seeds else None,
        "ratio_low": against.interval and against.interval.low,
        "ratio_high": against.interval and against.interval.high,
        "ratio_seeds": against.seeds,
        "fairness": scheme.fairness,
        **asdict(scheme.losses),
    }


def _csv(rows: Iterator[dict[str, Any]], columns: Sequence[str] = ()) -> str:
    every = list(rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, columns or list(every[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    return file.getvalue()


def _prefixed(name: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}_{key}": value for key, value in values.items()}


def _number(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def _milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{1000 * seconds:.1f}"


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.2f}%"


def _half(interval: Interval | None, digits: int = 2) -> str:
    """Return half of the width of an interval."""
    return _number((interval.high - interval.low) / 2 if interval else None, digits)
