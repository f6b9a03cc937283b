"""``make test-all``: everything that looks for defects, one after another, and at the end what ran, how long, and what it found."""

import shlex
import sys
import time
from pathlib import Path

import click

from tests.campaigns.commands import end_in_order, last_line, run

LOGS = Path("build/campaigns")
CAMPAIGNS = {
    "lint": "make lint",
    "test": "make test",
    "mutants": "make mutants",
    "fuzz": "make fuzz",
    "flood": "make flood",
    "alerts": "make alerts ARGS=one",
    "alerts-cluster": "make alerts ARGS=three",
    "soak": "make soak ARGS='--faults 200 --seed 1'",
    "soak-irregular": "make soak ARGS='--faults 100 --seed 1 --fabric tests/faults/fabrics/irregular.yaml'",
    "soak-cluster": "make soak-cluster ARGS='--faults 50 --seed 1'",
    "procedures": ".venv/bin/python -m tests.cluster.procedures",
    "packages": "make test-deb",
    "kernels": "make test-kernel",
    "platforms": "make test-platforms",
    "os-ken": "make test-os-ken ARGS='-n 4 tests/switch tests/contract tests/cluster tests/faults tests/unit'",
    "runs": "make test-runs ARGS='--idle 1 --busy 1 --standstill 1'",
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CAMPAIGNS)), metavar="[NAME]...")
def main(names: tuple[str, ...]) -> None:
    """Run every campaign, or those with a NAME (root; all take some eight hours).

    Their output is in build/campaigns. Ctrl-C ends the one that runs, and what was found so far is printed.
    """
    end_in_order()
    LOGS.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, int, float, str]] = []
    try:
        for name in names or CAMPAIGNS:
            log = LOGS / f"{name}.log"
            print(f"{name}: {CAMPAIGNS[name]} > {log}", flush=True)
            begin = time.monotonic()
            status = run(shlex.split(CAMPAIGNS[name]), log)
            rows.append((name, status, time.monotonic() - begin, last_line(log)))
            print(_row(*rows[-1]), flush=True)
    except KeyboardInterrupt:
        print(f"interrupted: {name} has no result")
    print("\nall campaigns:", *(_row(*row) for row in rows), sep="\n")
    sys.exit(any(status for _, status, _, _ in rows) or 130 * (len(rows) < len(names or CAMPAIGNS)))


def _row(name: str, status: int, seconds: float, found: str) -> str:
    return f"{name:>15}  {seconds / 60:6.1f} min  {'passed' if status == 0 else f'FAILED ({status})'}  {found}"


if __name__ == "__main__":
    main()
