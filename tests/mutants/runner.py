"""Try defects in copies of the checkout, and say which of them no test finds."""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.mutants.catalogue import CATALOGUE, Defect, MutantsError, load
from tests.mutants.plugin import function
from tests.mutants.selection import Function, Selection
from tests.mutants.tree import Tree

ROOT = Path(__file__).parents[2]
FOUND, SURVIVES, EQUIVALENT, STALE = VERDICTS = ("found", "survives", "equivalent", "stale")
LEAST_SECONDS, SLOWER, CONTROL_SECONDS = 300.0, 10.0, 3600.0
"""A run may take so long, and so many times longer than without a defect: what takes longer hangs."""


class Verdict(NamedTuple):
    """What became of a defect: the test that finds it, or why it was not tried."""

    defect: Defect
    verdict: str
    by: str = ""
    seconds: float = 0.0


class Runner:
    """Tries defects, each in one of some copies."""

    def __init__(self, trees: Sequence[Tree], selection: Selection) -> None:
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in trees:
            self._trees.put(tree)
        self._selection = selection
        self.unusable: set[str] = set()

    def attempt(self, defect: Defect) -> Verdict:
        """Try a defect."""
        if defect.equivalent:
            return Verdict(defect, EQUIVALENT, defect.equivalent)
        tree, began = self._trees.get(), time.monotonic()
        try:
            text = (tree.path / defect.file).read_text()
            with tree.with_defect(defect):
                if not defect.file.endswith(".py"):
                    by = self._modules(tree, self._selection.named(defect))
                else:
                    functions = self._selection.executing(defect, text)
                    by = self._functions(tree, functions) or self._functions(
                        tree, self._selection.further(defect, functions)
                    )
            return Verdict(defect, FOUND if by else SURVIVES, by, time.monotonic() - began)
        except (MutantsError, OSError) as error:
            return Verdict(defect, STALE, str(error))
        finally:
            self._trees.put(tree)

    def _modules(self, tree: Tree, modules: Sequence[str]) -> str:
        return tree.pytest(["-x", *modules, *(f"--deselect={name}" for name in self.unusable)], 2 * LEAST_SECONDS)[0]

    def _functions(self, tree: Tree, functions: Sequence[Function]) -> str:
        """Run functions until one fails, those of a few modules first: to collect all takes longer than to run most of them."""
        usable = [its for its in functions if its.name not in self.unusable]
        modules = list(dict.fromkeys(its.module for its in usable))
        for part in filter(None, (modules[:2], modules[2:8], modules[8:])):
            its = [each for each in usable if each.module in part]
            order = tree.path / "functions.txt"
            order.write_text("\n".join(each.name for each in its))
            seconds = LEAST_SECONDS + SLOWER * sum(each.seconds for each in its)
            if found := tree.pytest(["-x", "--functions-of", str(order), *part], seconds)[0]:
                return found
        return ""

    def control(self, verdicts: Sequence[Verdict]) -> set[str]:
        """Run the tests that have found a defect without any; return those that fail all the same, which are not used again."""
        by = {function(its.by) for its in verdicts if its.verdict == FOUND and "::" in its.by} - self.unusable
        tree, failing = self._trees.get(), set[str]()
        while by and (found := tree.pytest(["-x", *sorted(by)], CONTROL_SECONDS)[0]):
            if function(found) not in by:
                raise MutantsError(f"the tests that have found something cannot be run without a defect: {found}")
            failing.add(function(found))
            by -= failing
        self._trees.put(tree)
        self.unusable |= failing
        return failing


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, catalogue: Path = CATALOGUE) -> int:
    """Run the command; return 1 where a defect survives, 2 where one is stale or nothing can be tried."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="say which defects of the product no test finds"
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="defects with one of these words in name or file"
    )
    parser.add_argument("--count", type=int, metavar="N", help="so many of them, drawn by the seed; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many are tried at once")
    parser.add_argument(
        "--tests", type=Path, default=root, metavar="DIR", help="the checkout whose tests are run; default: this one"
    )
    parser.add_argument("--out", type=Path, default=root / "build/mutants.json", metavar="FILE", help="the record")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        defects = [
            its
            for its in load(catalogue)
            if any(word.lower() in f"{its.name} {its.file}".lower() for word in options.only)
        ]
        if options.count is not None and options.count < len(defects):
            defects = random.Random(options.seed).sample(defects, options.count)
        return _tell(_verdicts(defects, options, root), options)
    except (MutantsError, OSError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mutants: interrupted; nothing is recorded", file=sys.stderr)
        return 130


def _verdicts(defects: Sequence[Defect], options: argparse.Namespace, root: Path) -> list[Verdict]:
    if not defects:
        raise MutantsError("no defect has one of these words in its name or file")
    compiled = [not its.file.endswith(".py") for its in defects]
    if os.geteuid() and any(compiled):
        raise MutantsError("tests/bpf loads programs: run it as root, or choose other defects by --only")
    with ExitStack() as stack:
        directories = [
            tempfile.TemporaryDirectory(prefix="sopa-mutants-") for _ in range(min(options.jobs, len(defects)))
        ]
        trees = [Tree(root, options.tests.absolute(), Path(stack.enter_context(each))) for each in directories]
        executor = stack.enter_context(ThreadPoolExecutor(len(trees)))
        try:
            trees[0].check()
            selection = Selection(trees, root / "build/mutants")
            if not all(compiled):
                selection.record(executor)
            runner = Runner(trees, selection)
            verdicts = _attempts(runner, defects, executor)
            while failing := runner.control(verdicts):
                print(f"these fail without a defect, too, and are not used: {' '.join(sorted(failing))}", flush=True)
                again = [its.defect for its in verdicts if function(its.by) in failing]
                verdicts = [its for its in verdicts if its.defect not in again] + _attempts(runner, again, executor)
        except BaseException:
            for tree in trees:
                tree.stop()
            executor.shutdown(cancel_futures=True)
            raise
    return sorted(verdicts, key=lambda its: (its.defect.file, its.defect.name))


def _attempts(runner: Runner, defects: Sequence[Defect], executor: ThreadPoolExecutor) -> list[Verdict]:
    verdicts = []
    for future in as_completed([executor.submit(runner.attempt, its) for its in defects]):
        verdicts.append(its := future.result())
        place = f"[{len(verdicts)}/{len(defects)}] {its.verdict:10} {its.seconds:5.1f} s"
        print(f"{place}  {its.defect.file}: {its.defect.name}{f'  ({its.by})' if its.by else ''}", flush=True)
    return verdicts


def _tell(verdicts: Sequence[Verdict], options: argparse.Namespace) -> int:
    """Print a table and what a test is missing for, and write the record; return the exit status."""
    areas: dict[str, Counter[str]] = {}
    for its in verdicts:
        for area in ("/".join(its.defect.file.split("/")[:2]), "all"):
            areas.setdefault(area, Counter())[its.verdict] += 1
    print(f"\n{'':24}" + "".join(f"{verdict:>12}" for verdict in VERDICTS))
    for area, counts in sorted(areas.items(), key=lambda each: (each[0] == "all", each)):
        print(f"{area:24}" + "".join(f"{counts[verdict]:12}" for verdict in VERDICTS))
    for its in (its for its in verdicts if its.verdict in (SURVIVES, STALE)):
        print(f"{its.verdict}: {its.defect.file}: {its.defect.name}  {its.by}".rstrip())
    record = [its._asdict() | {"defect": its.defect.name, "file": its.defect.file} for its in verdicts]
    beside = options.out.with_suffix(".new")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(
        json.dumps({"tests": str(options.tests), "counts": areas["all"], "defects": record}, indent=1) + "\n"
    )
    beside.replace(options.out)
    print(f"recorded in {options.out}")
    return 2 if areas["all"][STALE] else 1 if areas["all"][SURVIVES] else 0
