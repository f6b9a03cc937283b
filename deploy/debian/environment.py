"""The Python environment of a package: the project's modules that its commands import, and the distributions that those import.

``python debian/environment.py PACKAGE DESTINATION`` is run by debian/rules in an environment that has everything that
deploy/requirements.lock names, and copies from there what pip has installed and checked. DESTINATION becomes
``/usr/lib/PACKAGE``, a venv on Debian's Python with the commands in ``bin``. What a package contains follows from imports: those of
its root modules, and of all that they import, also inside functions, or start (``python -m``); `Package.absent` are the exceptions.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import Distribution, distribution, packages_distributions
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
OWN = ("topologies", "flowrules", "sopa_ryu", "experiments")
PYTHON = Path("/usr/bin/python3").resolve()
SITE = Path("lib") / PYTHON.name / "site-packages"
_FILES = {
    "topologies": ("*.json",),
    "sopa_ryu.agent": ("bpf/*.[cho]",),
    "sopa_ryu.arbiter": ("allocator/*.cc", "allocator/*.h", "allocator/*.so"),
    "sopa_ryu.web": ("static/*",),
    "experiments": ("bench/*.txt", "paper/*.yaml", "emulation/**/*.[co]", "**/*.cc", "**/*.h", "**/CMakeLists.txt"),
}
"""Files beside modules, by the package that reads them."""


@dataclass(frozen=True)
class Package:
    """The contents of a Debian package.

    Args:
        roots: Modules from which imports are followed; names that end with ``.*`` are every module below.
        commands: The module and the function behind each command.
        absent: Modules and packages that are imported inside functions only, by what the package is not for.
        debian: Packages that are Debian's, as Mininet is; if there are any, the environment shows Debian's.
    """

    roots: tuple[str, ...]
    commands: dict[str, str] = field(default_factory=lambda: {"sopa": "sopa_ryu.cli:main"})
    absent: frozenset[str] = frozenset()
    debian: frozenset[str] = frozenset()


_BOTH = {"sopa": "sopa_ryu.cli:main", "ryu-manager": "sopa_ryu.manager:main"}
# networkx: the fabric as a graph, for experiments
PACKAGES = {
    "sopa-agent": Package(
        ("sopa_ryu.cli.*", "sopa_ryu.agent.put_back"),
        absent=frozenset({"sopa_ryu.cli.doctor_controller", "sopa_ryu.cli.relay", "networkx"}),
    ),
    "sopa-controller": Package(
        ("sopa_ryu.cli.*", "sopa_ryu.manager", "sopa_ryu.app"), commands=_BOTH, absent=frozenset({"networkx"})
    ),
    "sopa-tools": Package(tuple(f"{name}.*" for name in OWN), commands=_BOTH, debian=frozenset({"mininet"})),
}


def modules() -> dict[str, Path]:
    """Return every module of the project by its name."""
    files = (file for package in OWN for file in sorted((ROOT / package).rglob("*.py")))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def imported(node: ast.AST) -> Iterator[str]:
    """Yield what a module imports or starts when it runs, anywhere in it; names out of a module also with the module."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.List):
            yield from started(child)
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from imported(child)


@cache
def imports(file: Path) -> frozenset[str]:
    """Return what a module's file imports or starts, as `imported`."""
    return frozenset(imported(ast.parse(file.read_text())))


def started(words: ast.List) -> Iterator[str]:
    """Yield the module that a command line starts as a process of its own: ``[sys.executable, "-m", MODULE, ...]``."""
    for option, name in pairwise(words.elts):
        if isinstance(option, ast.Constant) and option.value == "-m" and isinstance(name, ast.Constant):
            yield str(name.value)


def is_root(module: str, root: str) -> bool:
    """Return True if a module is one of those that `Package.roots` names."""
    return f"{module}.".startswith(root[:-1]) if root.endswith(".*") else module == root


def followed(package: Package) -> tuple[set[str], set[str]]:
    """Return the project's modules of a package, and the names of the other packages that those import."""
    all_modules = modules()
    todo = [name for name in all_modules if name not in package.absent and any(map(partial(is_root, name), package.roots))]
    own: set[str] = set()
    others: set[str] = set()
    while todo:
        module = todo.pop()
        if module in own:
            continue
        own.add(module)
        todo += [module.rpartition(".")[0]] if "." in module else []
        for name in imports(all_modules[module]) - package.absent:
            top = name.partition(".")[0]
            if name in all_modules:
                todo.append(name)
            elif top not in (*OWN, *sys.stdlib_module_names, *package.absent, *package.debian):
                others.add(top)
    if "sopa_ryu.manager" in own:
        others.add("ryu")  # sopa_ryu/runtime/library.py imports it by a name that it makes
    return own, others


def distributions(names: Iterable[str]) -> list[Distribution]:
    """Return the distributions that provide packages, and those that they require, sorted by name."""
    providers = packages_distributions()
    todo = [provider for name in names for provider in providers[name]]
    found: dict[str, Distribution] = {}
    while todo:
        name = normal(todo.pop())
        if name not in found:
            found[name] = distribution(name)
            requirements = map(Requirement, found[name].requires or [])
            todo += [its.name for its in requirements if its.marker is None or its.marker.evaluate({"extra": ""})]
    return [found[name] for name in sorted(found)]


def normal(name: str) -> str:
    """Return the name of a distribution as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)
    to.chmod(0o644)


def copy_distribution(its: Distribution, site: Path) -> None:
    """Copy what pip has installed of a distribution, without commands, bytecode and pip's own records."""
    for file in its.files or []:
        if ".." in file.parts or file.suffix in (".pyc", ".pyi") or "__pycache__" in file.parts:
            continue
        if file.parent.name.endswith(".dist-info") and file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            continue
        copy(Path(str(file.locate())), site / file)


def make(package: str, destination: Path) -> None:
    its = PACKAGES[package]
    own, others = followed(its)
    site = destination / SITE
    for found in distributions(others):
        copy_distribution(found, site)
    all_modules = modules()
    for name in own:
        copy(all_modules[name], site / all_modules[name].relative_to(ROOT))
    for name in own & _FILES.keys():
        for pattern in _FILES[name]:
            for file in all_modules[name].parent.glob(pattern):
                copy(file, site / file.relative_to(ROOT))
    make_metadata(own, site)
    make_venv(package, its, destination)


def make_metadata(own: set[str], site: Path) -> None:
    """Write the project's own metadata, with those entry points whose modules are there."""
    found = distribution("sopa-ryu")
    directory = site / f"sopa_ryu-{found.version}.dist-info"
    directory.mkdir(parents=True)
    (directory / "METADATA").write_text(found.read_text("PKG-INFO") or "")
    lines: dict[str, list[str]] = {}
    for entry in found.entry_points:
        if entry.module in own:
            lines.setdefault(entry.group, []).append(f"{entry.name} = {entry.value}\n")
    text = "\n".join(f"[{group}]\n{''.join(sorted(lines[group]))}" for group in sorted(lines))
    (directory / "entry_points.txt").write_text(text)


def make_venv(package: str, its: Package, destination: Path) -> None:
    """Write what makes a directory a venv, and its commands."""
    binaries = destination / "bin"
    binaries.mkdir(parents=True)
    version = PYTHON.name.removeprefix("python")
    (destination / "pyvenv.cfg").write_text(
        f"home = {PYTHON.parent}\ninclude-system-site-packages = {str(bool(its.debian)).lower()}\nversion = {version}\n"
    )
    for name in ("python3", PYTHON.name):
        (binaries / name).symlink_to(PYTHON)
    for command, target in its.commands.items():
        module, _, function = target.partition(":")
        file = binaries / command
        file.write_text(
            f"#!/usr/lib/{package}/bin/python3\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        )
        file.chmod(0o755)


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
