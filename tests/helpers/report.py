"""The record of a test run: one file of JSON lines, to which every process of it adds, children of tests included.

``SOPA_TEST_RECORD`` names the file; without it nothing is recorded. ``scripts/test.sh`` sets it, and prints `summary` at the end.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "SOPA_TEST_RECORD"
SLOWEST = 10
NEAR = 0.5  # of its bound: what came so near on this machine is the next to fail on a slower one


def record(kind: str, **fields: Any) -> None:
    """Add a line. One write of less than a page is whole, however many processes write (write(2), ``O_APPEND``)."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    line = json.dumps({"kind": kind, "test": test, **fields})
    with open(path, "a") as file:
        file.write(line + "\n")


def note_wait(seconds: float, bound: float) -> None:
    """Record a wait that came near its bound."""
    if bound > 0 and seconds >= NEAR * bound:
        record("wait", seconds=round(seconds, 3), bound=bound)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what a reader of a run wants to know: the slowest tests, those near a bound, and each measurement of time."""
    tests = [line for line in lines if line["kind"] == "test"]
    yield f"the {SLOWEST} slowest tests:"
    for line in sorted(tests, key=lambda line: -line["seconds"])[:SLOWEST]:
        yield f"  {line['seconds']:7.1f} s  {line['test']}"
    near = [line for line in lines if line["kind"] == "wait"]
    near += [line | {"bound": line["timeout"]} for line in tests if line["seconds"] >= NEAR * line["timeout"] > 0]
    yield f"waits and tests that took half of their bound or more: {len(near) or 'none'}"
    for line in near:
        yield f"  {line['seconds']:7.1f} s of {line['bound']:g}  {line['test']}"
    verdicts = [line for line in lines if line["kind"] == "timing"]
    if verdicts:
        again = sum(len(line["void"]) for line in verdicts)
        yield f"measurements of time: {len(verdicts)}, {again} samples taken again because the machine was late meanwhile:"
    for line in verdicts:
        values = ", ".join(f"{value:.3g}" for value in line["samples"])
        late = f"; {len(line['void'])} void, control late by up to {max(line['void']):.3f} s" if line["void"] else ""
        yield f"  {line['what']}: {values} ({line['relation']} {line['bound']:g}; {line['control']}){late}"


if __name__ == "__main__":
    print(*summary(read(Path(sys.argv[1]))), sep="\n")
