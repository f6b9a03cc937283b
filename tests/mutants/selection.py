"""Which test functions execute which lines of the product: from a run of all without a defect, kept until something changes."""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Executor
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from tests.mutants.catalogue import Defect, MutantsError
from tests.mutants.plugin import PACKAGES
from tests.mutants.tree import Tree

SUITES = ("tests/unit", "tests/bpf")
OWN = "tests/unit/test_mutants.py"
"""It compares the product with the catalogue: no defect would survive it."""
RECORD_SECONDS = 7200.0
SLOW_SECONDS, MUCH_SLOWER_SECONDS = 5.0, 20.0
"""Functions that run last, and those that only run if they execute the lines of a defect."""


class Function(NamedTuple):
    """A test function with its module, and what it executes: the lines of each file as bits, and the number of all."""

    name: str
    module: str
    seconds: float
    files: dict[str, int]
    lines: int


def write(path: Path, content: object) -> None:
    """Write JSON at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    beside.replace(path)


class Selection:
    """The tests of `SUITES`, by what they execute in copies without a defect; ``kept`` has that of each module by all contents."""

    def __init__(self, trees: Sequence[Tree], kept: Path) -> None:
        self._trees, self._kept, self._root = trees, kept, trees[0].path
        self.modules = self._found(*SUITES, "tests/arbiter")
        self.functions: list[Function] = []

    def _found(self, *suites: str) -> list[str]:
        paths = [path for suite in suites for path in sorted(self._root.glob(f"{suite}/**/test_*.py"))]
        return [name for name in (str(path.relative_to(self._root)) for path in paths) if name != OWN]

    def record(self, executor: Executor) -> None:
        """Run the modules of which nothing is kept, and read all that is; raises `MutantsError` if a test fails."""
        keys = self._keys()
        missing = [module for module, path in keys.items() if not path.exists()]
        if missing:
            print(f"{len(missing)} test modules run without a defect, to see what they execute: ten minutes", flush=True)
        shares = [missing[at :: len(self._trees)] for at in range(len(self._trees))]
        if failed := " ".join(executor.map(self._record, self._trees, shares, [keys] * len(shares))).strip():
            raise MutantsError(f"these fail without a defect: mend them, or run again if it was by chance: {failed}")
        for module, path in keys.items():
            for name, (seconds, _, files) in json.loads(path.read_text()).items():
                lines = sum(bits.bit_count() for bits in files.values())
                self.functions.append(Function(name, module, seconds, files, lines))

    def _keys(self) -> dict[str, Path]:
        """Return the file of each module: its name has a hash of the product, of all that tests share, and of the module."""
        common = hashlib.sha256()
        for path in sorted(self._root.rglob("*.*")):
            name = str(path.relative_to(self._root))
            is_product = name.startswith(PACKAGES) and path.suffix in {".py", ".c", ".h", ".cc"}
            is_shared = name.startswith("tests/") and path.suffix in {".py", ".txt"} and path.stem[:5] != "test_"
            if is_product or (is_shared and "/mutants/" not in name):
                common.update(name.encode() + path.read_bytes())

        def key(module: str) -> str:
            its = hashlib.sha256(common.digest() + (self._root / module).read_bytes()).hexdigest()
            return f"{module.replace('/', '-')}-{its[:16]}.json"

        return {module: self._kept / key(module) for module in self._found(*SUITES)}

    def _record(self, tree: Tree, modules: Sequence[str], keys: dict[str, Path]) -> str:
        """Run modules and keep what those execute that pass; return the functions that fail."""
        if not modules:
            return ""
        target = tree.path / "lines.json"
        _, output = tree.pytest(["--lines-to", str(target), *modules], RECORD_SECONDS)
        if not target.exists():
            why = "what tests execute was not recorded (pip install -r requirements-dev.txt?)"
            raise MutantsError(f"{why}:\n{output[-2000:]}")
        content = json.loads(target.read_text())
        failed = [name for name, (_, failed, _) in content.items() if failed]
        for module in set(modules) - {name.partition("::")[0] for name in failed}:
            write(keys[module], {name: its for name, its in content.items() if name.startswith(f"{module}::")})
        return " ".join(failed)

    def executing(self, defect: Defect, text: str) -> list[Function]:
        """Return the functions that execute the lines of a defect, those of modules first that execute little else."""
        bits = sum(1 << line for line in defect.lines(text))
        # an expression may be counted at the line before; what runs at import, a constant, is seen by all that use the file
        for wanted in (bits, bits >> 1 | bits >> 2, -1):
            if found := [its for its in self.functions if its.files.get(defect.file, 0) & wanted]:
                break
        shares: dict[str, float] = {}
        for its in found:
            shares[its.module] = max(shares.get(its.module, 0.0), its.files[defect.file].bit_count() / its.lines)
        return sorted(found, key=lambda its: (its.seconds > SLOW_SECONDS, -shares[its.module], its.module))

    def further(self, defect: Defect, tried: Sequence[Function]) -> list[Function]:
        """Return what may find a defect besides: what shares fixtures with those, and the area's tests, which start processes."""
        package, rest = defect.file.split("/", 1)
        area = f"tests/unit/{rest.split('/')[0] if package == 'sopa_ryu' else package}/"
        modules, names = {its.module for its in tried}, {its.name for its in tried}
        beside = [its for its in self.functions if its.module in modules or its.module.startswith(area)]
        return [its for its in beside if its.name not in names and its.seconds < MUCH_SLOWER_SECONDS]

    def named(self, defect: Defect) -> list[str]:
        """Return the modules that a defect of a compiled file is tried with."""
        named = dict.fromkeys(its for pattern in defect.tests for its in self.modules if fnmatch(its, pattern))
        return list(named) or [its for its in self.modules if its.startswith("tests/bpf/")]
