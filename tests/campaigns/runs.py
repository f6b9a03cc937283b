"""``make test-runs``: the whole of `make test` again and again: idle, beside busy loops, with standstills; a table at the end."""

import json
import re
import sys
import time
from functools import partial
from pathlib import Path

import click

from tests.campaigns.commands import end_in_order, run
from tests.campaigns.disturbances import DISTURBANCES
from tests.helpers import report

RECORD = Path("build/tests/record.jsonl")
RESULTS = Path("build/runs")
option = partial(click.option, type=click.IntRange(0), default=10, show_default=True)


@click.command()
@option("--idle", help="Runs with nothing beside.")
@option("--busy", help="Runs beside two busy loops.")
@option("--standstill", help="Runs that are stopped 3 s in each 20 s.")
@click.argument("pytest", nargs=-1)
def main(pytest: tuple[str, ...], **counts: int) -> None:
    """Run the tests many times (root), and say which runs failed, by what.

    PYTEST are arguments of pytest in place of the whole suite. The output of each run is in build/runs. Ctrl-C ends the
    run, and the table has those before it.
    """
    end_in_order()
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    try:
        for name, count in counts.items():
            for number in range(1, count + 1):
                rows.append(one(name, number, pytest))
                print(_row(rows[-1]), flush=True)
                (RESULTS / "runs.json").write_text(json.dumps(rows, indent=1))
    except KeyboardInterrupt:
        print("interrupted: the last run does not count")
    except OSError as error:
        raise click.ClickException(f"{name}: {error}") from error
    print("\nall runs:", *map(_row, rows), sep="\n")
    failed = sum(bool(row["status"]) for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    sys.exit(bool(failed) or 130 * (not rows))


def one(name: str, number: int, pytest: tuple[str, ...]) -> dict[str, object]:
    """Run the tests once; what the table says of it."""
    log = RESULTS / f"{name}-{number}.log"
    print(f"{name} {number}: its output is in {log}", flush=True)
    begin = time.monotonic()
    with DISTURBANCES[name]() as start:
        status = run(["scripts/test.sh", *pytest], log, start)
    text = log.read_text()
    void = 0
    if not pytest and RECORD.exists():
        lines = report.read(RECORD)
        void = sum(len(line["void"]) for line in lines if line["kind"] == "timing")
        RECORD.rename(RESULTS / f"{name}-{number}.jsonl")
    passed = sum(int(count) for count in re.findall(r"(\d+) passed", text))
    failed = sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)))
    minutes = round((time.monotonic() - begin) / 60, 1)
    row: dict[str, object] = {"kind": name, "run": number, "minutes": minutes, "status": status}
    return row | {"passed": passed, "failed": failed, "void": void}


def _row(row: dict[str, object]) -> str:
    failed = row["failed"]
    assert isinstance(failed, list)
    said = f"{row['passed']} passed" + (f", failed: {', '.join(failed)}" if failed else "")
    void = f", {row['void']} samples of time taken again" if row["void"] else ""
    return f"{row['kind']:>10} {row['run']:>2}  {row['minutes']:5} min  status {row['status']}  {said}{void}"


if __name__ == "__main__":
    main()
