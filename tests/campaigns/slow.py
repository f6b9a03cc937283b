"""``make mutants-timing``: products that are too slow, on purpose, and in how many runs of its test of time each is found."""

import json
import re
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.campaigns.commands import end_in_order
from tests.mutants.catalogue import CATALOGUE, Defect, MutantsError, load
from tests.mutants.tree import Tree

RESULTS = Path("build/campaigns/slow.json")
MISSED = re.compile(r"^(?:E +)?([\w.]*(?:Error|Failed): .+)$", re.MULTILINE)
SAYS_NOTHING = "more samples say nothing"
"""The test has failed for its machine, not for the product (`tests.timing.judge`)."""
RUN_SECONDS = 600.0


@click.command()
@click.option("--runs", type=click.IntRange(1), default=30, show_default=True, help="Of each test with each product.")
@click.argument("words", nargs=-1, metavar="[WORD]...")
def main(runs: int, words: tuple[str, ...]) -> None:
    """Run each test of time with a product that is too slow for it (root), or those with a WORD in their names.

    A product is found if at most one run in 30 passes. A run that says nothing, as the machine was late, counts as one
    that passes. Ctrl-C ends it, and what was found so far is printed.
    """
    end_in_order()
    root = Path.cwd()
    defects = [its for its in load(CATALOGUE.parent / "slow") if all(word in its.name for word in words)]
    rows: list[dict[str, object]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="sopa-slow-") as directory:
            tree = Tree(root, root, Path(directory))
            tree.check()
            rows.extend(tried(tree, defect, runs) for defect in defects)
    except MutantsError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        print("interrupted: the last product has no result")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=1))
    lost = [row for row in rows if not row["found"]]
    print(f"{len(rows) - len(lost)} of {len(defects)} slow products are found in at least 29 of 30 runs")
    sys.exit(bool(lost) or 130 * (len(rows) < len(defects)))


def tried(tree: Tree, defect: Defect, runs: int) -> dict[str, object]:
    """Run the test of a product as often as asked; what the record says of it."""
    print(f"{defect.name}: {' '.join(defect.tests)}", flush=True)
    begin, missed = time.monotonic(), []
    with tree.with_defect(defect):
        for number in range(1, runs + 1):
            failed, output = tree.pytest(defect.tests, RUN_SECONDS)
            # by its bound, or because what it measures does not come at all; the body may have run in a process of the lab
            errors = MISSED.findall(output) if failed.startswith("tests/timing/") else []
            error = errors[-1] if errors and SAYS_NOTHING not in errors[-1] else None
            missed += [error] if error else []
            print(f"  {number:>3}  {error or f'NOT FOUND  {failed or output[-200:].strip()}'}", flush=True)
    minutes = round((time.monotonic() - begin) / 60, 1)
    print(f"  found in {len(missed)} of {runs} runs, {minutes} min", flush=True)
    found_enough = 30 * len(missed) >= 29 * runs
    return {"defect": defect.name, "runs": runs, "missed": missed, "minutes": minutes, "found": found_enough}


if __name__ == "__main__":
    main()
