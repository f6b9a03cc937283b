"""Try defects in copies of the checkout, and say which of them no test finds."""

import argparse
import os
import queue
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.campaigns.commands import end_in_order
from tests.mutants.catalogue import CATALOGUE, Defect, MutantsError, load
from tests.mutants.plugin import function
from tests.mutants.selection import Function, Selection, write
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
    """Tries defects, each in one of some copies; `verdicts` has what became of those that were tried."""

    def __init__(self, trees: Sequence[Tree], selection: Selection, verdicts: list[Verdict]) -> None:
        self._trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in trees:
            self._trees.put(tree)
        self._selection, self._unusable, self.verdicts = selection, set[str](), verdicts

    def try_all(self, defects: Sequence[Defect], executor: ThreadPoolExecutor) -> None:
        """Try defects, and again those that tests have found which fail without a defect, too."""
        while defects:
            for future in as_completed([executor.submit(self._attempt, its) for its in defects]):
                self.verdicts.append(its := future.result())
                by = f"  ({its.by})" if its.by else ""
                place = f"[{len(self.verdicts)}] {its.verdict:10} {its.seconds:5.1f} s"
                print(f"{place}  {its.defect.file}: {its.defect.name}{by}", flush=True)
            if failing := self._control():
                print(f"these fail without a defect, too, and are not used: {' '.join(sorted(failing))}", flush=True)
            defects = [its.defect for its in self.verdicts if function(its.by) in failing]
            self.verdicts[:] = [its for its in self.verdicts if its.defect not in defects]

    def _attempt(self, defect: Defect) -> Verdict:
        if defect.equivalent:
            return Verdict(defect, EQUIVALENT, defect.equivalent)
        tree, began = self._trees.get(), time.monotonic()
        try:
            text = (tree.path / defect.file).read_text()
            with tree.with_defect(defect):
                if defect.file.endswith(".py"):
                    first = self._selection.executing(defect, text)
                    by = self._functions(tree, first) or self._functions(tree, self._selection.further(defect, first))
                else:
                    without = [f"--deselect={name}" for name in self._unusable]
                    by = tree.pytest(["-x", *self._selection.named(defect), *without], 2 * LEAST_SECONDS)[0]
            return Verdict(defect, FOUND if by else SURVIVES, by, time.monotonic() - began)
        except (MutantsError, OSError) as error:
            return Verdict(defect, STALE, str(error))
        finally:
            self._trees.put(tree)

    def _functions(self, tree: Tree, functions: Sequence[Function]) -> str:
        """Run functions until one fails, those of a few modules first: to collect all takes longer than to run most of them."""
        usable = [its for its in functions if its.name not in self._unusable]
        modules = list(dict.fromkeys(its.module for its in usable))
        for part in filter(None, (modules[:2], modules[2:8], modules[8:])):
            its = [each for each in usable if each.module in part]
            order = tree.path / "functions.txt"
            order.write_text("\n".join(each.name for each in its))
            seconds = LEAST_SECONDS + SLOWER * sum(each.seconds for each in its)
            if found := tree.pytest(["-x", "--functions-of", str(order), *part], seconds)[0]:
                return found
        return ""

    def _control(self) -> set[str]:
        """Run the tests that have found a defect without any; return those that fail all the same, which are not used again."""
        by = {function(its.by) for its in self.verdicts if its.verdict == FOUND and "::" in its.by} - self._unusable
        tree, failing = self._trees.get(), set[str]()
        while by and (found := tree.pytest(["-x", *sorted(by)], CONTROL_SECONDS)[0]):
            if function(found) not in by:
                raise MutantsError(f"the tests that have found something cannot be run without a defect: {found}")
            failing.add(function(found))
            by -= failing
        self._trees.put(tree)
        self._unusable |= failing
        return failing


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, catalogue: Path = CATALOGUE) -> int:
    """Run the command; return 1 where a defect survives, 2 where one is stale or nothing can be tried."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description="say which defects no test finds")
    add, record = parser.add_argument, root / "build/mutants.json"
    add("--only", nargs="+", default=[""], metavar="WORD", help="defects with one of these words in name or file")
    add("--count", type=int, metavar="N", help="so many of them, drawn by the seed; default: all")
    add("--seed", type=int, default=1)
    add("--jobs", type=int, default=os.cpu_count() or 1, help="how many are tried at once")
    add("--tests", type=Path, default=root, metavar="DIR", help="the checkout whose tests are run; default: this one")
    add("--out", type=Path, default=record, metavar="FILE", help="the record")
    options = parser.parse_args(arguments)
    end_in_order()
    words, verdicts = [word.lower() for word in options.only], list[Verdict]()
    try:
        defects = [its for its in load(catalogue) if any(word in f"{its.name} {its.file}".lower() for word in words)]
        if options.count is not None and options.count < len(defects):
            defects = random.Random(options.seed).sample(defects, options.count)
        _try(defects, options, root, verdicts)
        counts = _tell(verdicts)
        _record(verdicts, counts, options)
        return 2 if counts[STALE] else 1 if counts[SURVIVES] else 0
    except (MutantsError, OSError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        _tell(verdicts)
        print(f"mutants: interrupted after {len(verdicts)} defects; nothing is recorded", file=sys.stderr)
        return 130


def _try(defects: Sequence[Defect], options: argparse.Namespace, root: Path, verdicts: list[Verdict]) -> None:
    if not defects:
        raise MutantsError("no defect has one of these words in its name or file")
    compiled = [not its.file.endswith(".py") for its in defects]
    if os.geteuid() and any(compiled):
        raise MutantsError("tests/bpf loads programs: run it as root, or choose other defects by --only")
    with ExitStack() as stack:
        copies = [tempfile.TemporaryDirectory(prefix="sopa-mutants-") for _ in defects[: options.jobs]]
        trees = [Tree(root, options.tests.absolute(), Path(stack.enter_context(copy))) for copy in copies]
        executor = stack.enter_context(ThreadPoolExecutor(len(trees)))
        try:
            trees[0].check()
            selection = Selection(trees, root / "build/mutants")
            if not all(compiled):
                selection.record(executor)
            Runner(trees, selection, verdicts).try_all(defects, executor)
        except BaseException:
            for tree in trees:
                tree.stop()
            executor.shutdown(cancel_futures=True)
            raise


def _tell(verdicts: list[Verdict]) -> Counter[str]:
    """Print a table and what a test is missing for; return how many have which verdict."""
    areas: dict[str, Counter[str]] = {}
    verdicts.sort(key=lambda its: (its.defect.file, its.defect.name))
    for its in verdicts:
        areas.setdefault("/".join(its.defect.file.split("/")[:2]), Counter())[its.verdict] += 1
    counts = areas["all"] = sum(areas.values(), Counter[str]())
    print(f"\n{'':24}" + "".join(f"{verdict:>12}" for verdict in VERDICTS))
    for area, its_counts in areas.items():
        print(f"{area:24}" + "".join(f"{its_counts[verdict]:12}" for verdict in VERDICTS))
    for its in (its for its in verdicts if its.verdict in (SURVIVES, STALE)):
        print(f"{its.verdict}: {its.defect.file}: {its.defect.name}  {its.by}".rstrip())
    return counts


def _record(verdicts: Sequence[Verdict], counts: Counter[str], options: argparse.Namespace) -> None:
    defects = [its._asdict() | {"defect": its.defect.name, "file": its.defect.file} for its in verdicts]
    write(options.out, {"tests": str(options.tests), "counts": counts, "defects": defects})
    print(f"recorded in {options.out}")
