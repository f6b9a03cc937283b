"""The command: copies, tries, tells."""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.catalogue import CATALOGUE, CatalogueError, Defect, chosen, load
from tests.mutants.selection import KEPT, Selection
from tests.mutants.tree import Tree

ROOT = Path(__file__).parents[2]
FOUND, SURVIVES, EQUIVALENT, STALE = "found", "survives", "equivalent", "stale"
LEAST_SECONDS, SLOWER = 120.0, 10.0
"""A run with a defect may take so long, and so many times as long as without: what takes longer hangs."""


class Verdict(NamedTuple):
    """What became of a defect: by which test it was found, or why it is not tried."""

    defect: Defect
    verdict: str
    by: str = ""
    seconds: float = 0.0


class Runner:
    """Tries defects in copies of a checkout."""

    def __init__(self, trees: Sequence[Tree], selection: Selection, more: Sequence[str] = ()) -> None:
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in trees:
            self._trees.put(tree)
        self._selection, self._more = selection, more
        self.distrusted: set[str] = set()

    def attempt(self, defect: Defect) -> Verdict:
        """Return what becomes of a defect."""
        if defect.equivalent:
            return Verdict(defect, EQUIVALENT, defect.equivalent)
        tree, begin = self._trees.get(), time.monotonic()
        try:
            text = (tree.path / defect.file).read_text()
            defect.applied(text)
            functions = self._selection.executing(defect, text)
            with tree.with_defect(defect):
                by = self._test(tree, functions) or self._test(tree, self._selection.further(defect, functions))
        except (CatalogueError, OSError) as error:
            return Verdict(defect, STALE, str(error))
        finally:
            self._trees.put(tree)
        return Verdict(defect, FOUND if by else SURVIVES, by, time.monotonic() - begin)

    def _test(self, tree: Tree, names: Sequence[str]) -> str:
        """Run functions or whole modules until one fails; return which."""
        wanted = [name for name in names if name not in self.distrusted]
        if not wanted:
            return ""
        modules = list(dict.fromkeys(name.partition("::")[0] for name in wanted))
        order = tree.path / "functions.txt"
        order.write_text("\n".join(wanted))
        arguments = ["-x", *self._more, *modules]
        if "::" in wanted[0]:
            arguments += ["--functions-of", str(order)]
        return tree.pytest(arguments, LEAST_SECONDS + SLOWER * self._selection.seconds(wanted)).found_by

    def control(self, verdicts: Sequence[Verdict]) -> set[str]:
        """Run the tests that have found something without any defect; return those that fail all the same."""
        tree = self._trees.get()
        by = {its.by.partition("[")[0] for its in verdicts if its.verdict == FOUND and "::" in its.by}
        failing: set[str] = set()
        while left := sorted(by - failing):
            found = self._test(tree, left)
            if not found:
                break
            failing.add(found.partition("[")[0])
        self._trees.put(tree)
        self.distrusted |= failing
        return failing


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, catalogue: Path = CATALOGUE) -> int:
    """Run the command; return its exit status: 1 where a defect survives, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="say which defects no test finds")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="defects with one of the words in name or file")
    parser.add_argument("--count", type=int, metavar="N", help="so many of them, drawn by the seed; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="copies that are tried at once")
    parser.add_argument("--tests", type=Path, default=root, metavar="DIR", help="another checkout, whose tests are taken")
    parser.add_argument("--out", type=Path, default=root / "build/mutants.json", metavar="FILE", help="the record")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        defects = chosen(load(catalogue), options.only, options.count, options.seed)
        return _run(defects, options, root)
    except (CatalogueError, OSError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(defects: Sequence[Defect], options: argparse.Namespace, root: Path) -> int:
    if os.geteuid() and any(its.is_compiled for its in defects):
        raise CatalogueError("tests/bpf loads programs: run this as root, or choose others with --only")
    if not defects:
        raise CatalogueError("no defect has these words in its name or file")
    verdicts: list[Verdict] = []
    with ExitStack() as stack:
        trees = []
        for _ in range(min(options.jobs, len(defects))):
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="sopa-mutants-"))
            trees.append(Tree(root, options.tests.absolute(), Path(directory)))
        trees[0].check()
        executor = stack.enter_context(ThreadPoolExecutor(len(trees)))
        selection = Selection(trees, root / KEPT)
        try:
            if not all(its.is_compiled for its in defects):
                selection.record(executor)
            runner = Runner(trees, selection)
            verdicts += _attempts(runner, defects, executor)
            while failing := runner.control(verdicts):
                print(f"without a defect these fail, too, and are not used: {' '.join(sorted(failing))}", flush=True)
                again = [its.defect for its in verdicts if its.by.partition("[")[0] in failing]
                verdicts = [its for its in verdicts if its.defect not in again]
                verdicts += _attempts(runner, again, executor)
        except KeyboardInterrupt:
            for tree in trees:
                tree.stop()
            executor.shutdown(cancel_futures=True)
            print("interrupted: this is no result, and nothing is recorded")
            raise
    return _tell(verdicts, defects, options)


def _attempts(runner: Runner, defects: Sequence[Defect], executor: ThreadPoolExecutor) -> list[Verdict]:
    verdicts = []
    for number, future in enumerate(as_completed(executor.submit(runner.attempt, its) for its in defects), 1):
        its = future.result()
        verdicts.append(its)
        line = f"[{number:3}/{len(defects)}] {its.verdict:10} {its.seconds:6.1f} s  {its.defect.file}: {its.defect.name}"
        print(f"{line}  ({its.by})" if its.by else line, flush=True)
    return verdicts


def _tell(verdicts: Sequence[Verdict], defects: Sequence[Defect], options: argparse.Namespace) -> int:
    verdicts = sorted(verdicts, key=lambda its: defects.index(its.defect))
    areas: dict[str, Counter[str]] = {}
    for its in verdicts:
        areas.setdefault("/".join(its.defect.file.split("/")[:2]), Counter())[its.verdict] += 1
    total = Counter(its.verdict for its in verdicts)
    print(f"\n{'':24}{FOUND:>10}{SURVIVES:>10}{EQUIVALENT:>12}{STALE:>8}")
    for area, counts in [*sorted(areas.items()), ("all", total)]:
        print(f"{area:24}{counts[FOUND]:10}{counts[SURVIVES]:10}{counts[EQUIVALENT]:12}{counts[STALE]:8}")
    for its in verdicts:
        if its.verdict in (SURVIVES, STALE):
            print(f"{its.verdict}: {its.defect.file}: {its.defect.name}  {its.by}".rstrip())
    record: dict[str, Any] = {
        "tests": str(options.tests),
        "seed": options.seed,
        "counts": dict(total),
        "defects": [
            {"name": its.defect.name, "file": its.defect.file, "verdict": its.verdict, "by": its.by, "seconds": its.seconds}
            for its in verdicts
        ],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    beside = options.out.with_suffix(".new")
    beside.write_text(json.dumps(record, indent=1) + "\n")
    beside.replace(options.out)
    print(f"recorded in {options.out}")
    if total[STALE]:
        print("stale: the product has changed; give these defects its text in tests/mutants/catalogue, or take them out")
        return 2
    return 1 if total[SURVIVES] else 0
