"""Which test functions execute which lines of the product: from one run of all of them, kept until something changes."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.catalogue import CatalogueError, Defect
from tests.mutants.plugin import PACKAGES
from tests.mutants.tree import Tree

SUITES = ("tests/unit", "tests/bpf")
KEPT = Path("build/mutants")
RUN_SECONDS = 7200
SLOW_SECONDS = 5.0


class Recorded(NamedTuple):
    """A test function: the lines that it executes in each file (bits), how many these are, and how long it takes."""

    name: str
    files: dict[str, int]
    lines: int
    seconds: float

    @property
    def module(self) -> str:
        """Its module."""
        return self.name.partition("::")[0]


class Selection:
    """The tests of `SUITES`.

    Parameters
    ----------
    trees : sequence of Tree
        Copies without a defect: each records a part of the modules.
    kept : Path
        Where recordings are kept, by the contents of the product, the tests' helpers and the module.
    """

    def __init__(self, trees: Sequence[Tree], kept: Path) -> None:
        self._tree = trees[0].path
        self._modules = sorted(str(path.relative_to(self._tree)) for suite in SUITES for path in self._found(suite))
        self._trees, self._kept = trees, kept
        self.functions: list[Recorded] = []

    def _found(self, suite: str) -> Iterable[Path]:
        return (self._tree / suite).rglob("test_*.py")

    def record(self, executor: Executor) -> None:
        """Run the modules whose recordings are missing, and read all of them.

        Raises
        ------
        CatalogueError
            If a test fails without a defect.
        """
        self._kept.mkdir(parents=True, exist_ok=True)
        keys = self._keys()
        missing = [module for module in self._modules if not keys[module].exists()]
        if missing:
            print(f"{len(missing)} test modules are run once without a defect, to see what they execute", flush=True)
        parts = [missing[number :: len(self._trees)] for number in range(len(self._trees))]
        failed = [name for names in executor.map(self._record, self._trees, parts, [keys] * len(parts)) for name in names]
        if failed:
            raise CatalogueError(f"these tests fail without a defect; run them again, or mend them first: {' '.join(failed)}")
        self.functions = [its for module in self._modules for its in _read(keys[module])]

    def _keys(self) -> dict[str, Path]:
        common = hashlib.sha256()
        for path in sorted(self._tree.rglob("*")):
            name = str(path.relative_to(self._tree))
            is_product = name.startswith(PACKAGES) and path.suffix in {".py", ".c", ".h", ".cc"}
            if is_product or (name.startswith("tests/") and path.suffix == ".py" and name not in self._modules):
                if "/mutants/" not in name:
                    common.update(name.encode() + path.read_bytes())
        names = {}
        for module in self._modules:
            its = common.copy()
            its.update(module.encode() + (self._tree / module).read_bytes())
            names[module] = self._kept / f"{module.replace('/', '-')}-{its.hexdigest()[:16]}.json"
        return names

    def _record(self, tree: Tree, modules: Sequence[str], keys: dict[str, Path]) -> list[str]:
        """Run modules in a copy; return the functions that fail."""
        if not modules:
            return []
        target = tree.path / "lines.json"
        output = tree.pytest(["--lines-to", str(target), *modules], RUN_SECONDS).output
        if not target.exists():
            raise CatalogueError(f"what tests execute could not be recorded:\n{output[-2000:]}")
        content = json.loads(target.read_text())
        keep(content, {module: keys[module] for module in modules})
        return [str(name) for name in content["failed"]]

    # -- what a defect is tried with ----------------------------------------------------------------------------------

    def executing(self, defect: Defect, text: str) -> list[str]:
        """Return the functions that execute the lines of a defect, those first that execute little else."""
        if defect.is_compiled:
            return []
        changed = defect.lines(text)
        bits = sum(1 << line for line in changed)
        # the first line of a statement stands for it; what runs at import (a constant) is seen by all that use the file
        for wanted in (bits, bits | bits >> 1 | bits >> 2, -1):
            found = [its for its in self.functions if its.files.get(defect.file, 0) & wanted]
            if found:
                break
        shares: dict[str, float] = defaultdict(float)
        for its in found:
            shares[its.module] = max(shares[its.module], its.files[defect.file].bit_count() / its.lines)
        found.sort(key=lambda its: (its.seconds > SLOW_SECONDS, -shares[its.module], its.module))
        return [its.name for its in found]

    def further(self, defect: Defect, functions: Sequence[str]) -> list[str]:
        """Return what else may find a defect: what shares fixtures with these functions, and what may run it in a process of its own."""
        if defect.is_compiled:
            patterns = defect.tests or ("tests/bpf/test_*.py",)
            return [name for name in self._modules_and_more() if any(fnmatch.fnmatch(name, each) for each in patterns)]
        done, modules = set(functions), {name.partition("::")[0] for name in functions}
        package, _, rest = defect.file.partition("/")
        area = f"tests/unit/{rest.partition('/')[0] if package == 'sopa_ryu' else package}/"
        return [
            its.name
            for its in self.functions
            if its.name not in done and (its.module in modules or its.module.startswith(area) or self._is_named(its, defect))
        ]

    @staticmethod
    def _is_named(its: Recorded, defect: Defect) -> bool:
        return any(fnmatch.fnmatch(its.module, pattern) for pattern in defect.tests)

    def _modules_and_more(self) -> list[str]:
        return [*self._modules, *sorted(str(path.relative_to(self._tree)) for path in self._found("tests/arbiter"))]

    def seconds(self, names: Iterable[str]) -> float:
        """Return how long functions took when they were recorded."""
        wanted = set(names)
        return sum(its.seconds for its in self.functions if its.name in wanted)


def keep(content: dict[str, Any], keys: dict[str, Path]) -> None:
    """Keep what was recorded of modules without a failure, each in a file."""
    failed = {name.partition("::")[0] for name in content["failed"]}
    for module, path in keys.items():
        if module in failed:
            continue
        its = {
            name: {"seconds": seconds, "files": content["lines"].get(name, {})}
            for name, seconds in content["seconds"].items()
            if name.partition("::")[0] == module
        }
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(its))
        beside.replace(path)


def _read(path: Path) -> Iterable[Recorded]:
    for name, its in json.loads(path.read_text()).items():
        files = {file: int(bits, 16) for file, bits in its["files"].items()}
        yield Recorded(name, files, sum(bits.bit_count() for bits in files.values()), its["seconds"])
