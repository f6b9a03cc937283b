"""A copy of the checkout in which a defect is tried: the checkout itself never changes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.mutants.catalogue import CatalogueError, Defect
from tests.mutants.plugin import PACKAGES

PROGRAMS = Path("sopa_ryu/agent/bpf")
BUILT = ("sopa_ryu/**/*.o", "sopa_ryu/**/*.so", "experiments/**/*.o")
BUILD_PROGRAMS = """
import sys; from pathlib import Path; from sopa_ryu.agent.kernel.build import build
build([Path(path).absolute() for path in sys.argv[1:]], force=True)
"""
BUILD_LIBRARY = "from sopa_ryu.arbiter.build import build; build(force=True)"


class Outcome(NamedTuple):
    """What pytest said: the test that failed first, a reason if none can be named, or nothing; and all output."""

    found_by: str
    output: str


class Tree:
    """A copy, made of the files that git knows.

    Parameters
    ----------
    root, tests : Path
        Checkouts: of the product, and of the tests. `tests.mutants` is that of the first.
    directory : Path
        Where the copy is made.
    """

    def __init__(self, root: Path, tests: Path, directory: Path) -> None:
        self.path = directory
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._copy(root, (name for name in tracked(root) if not name.startswith("tests/") or "/mutants/" in name))
        self._copy(tests, (name for name in tracked(tests) if name.startswith("tests/") and "/mutants/" not in name))
        self._copy(root, (str(path.relative_to(root)) for pattern in BUILT for path in root.glob(pattern)))
        self.env = {name: its for name, its in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.env["PYTHONPATH"] = str(directory)  # before the editable installation of the checkout

    def _copy(self, source: Path, names: Iterable[str]) -> None:
        for name in names:
            if (source / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, self.path / name)

    def check(self) -> None:
        """Make sure that Python takes the product from here.

        Raises
        ------
        CatalogueError
            If it does not.
        """
        for package in PACKAGES:
            if (self.path / package).is_dir():
                code = f"import {package}; print({package}.__file__)"
                done = subprocess.run(
                    [sys.executable, "-c", code], cwd="/", env=self.env, capture_output=True, text=True, check=False
                )
                if not done.stdout.startswith(str(self.path)):
                    raise CatalogueError(f"{package} is {done.stdout or done.stderr}, not that of {self.path}")

    @contextmanager
    def with_defect(self, defect: Defect) -> Iterator[None]:
        """Apply a defect, and undo it afterwards.

        Raises
        ------
        CatalogueError
            If it does not fit, or does not compile.
        """
        path = self.path / defect.file
        text, times = path.read_text(), path.stat()
        changed = defect.applied(text)
        objects = {built: (built.read_bytes(), built.stat()) for built in self._objects(defect.file)}
        try:
            self._write(path, changed.encode(), times)
            if defect.is_compiled:
                self._compile(list(objects))
            yield
        finally:
            self._write(path, text.encode(), times)
            for built, (content, its_times) in objects.items():
                self._write(built, content, its_times)

    @staticmethod
    def _write(path: Path, content: bytes, times: os.stat_result) -> None:
        """Write a file with the times of another: what is built from it counts as current."""
        path.unlink(missing_ok=True)  # a program may have it loaded
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def _objects(self, name: str) -> list[Path]:
        """Return what is built from a source."""
        if name.endswith(".py"):
            return []
        if not name.startswith(str(PROGRAMS)):
            return [self.path / "sopa_ryu/arbiter/allocator/libsopa_arbiter.so"]
        sources = (self.path / PROGRAMS).glob("*.c")
        return [source.with_suffix(".o") for source in sources if self.path / name in _read_by(source)]

    def _compile(self, objects: Sequence[Path]) -> None:
        library = any(built.suffix == ".so" for built in objects)
        command = [BUILD_LIBRARY] if library else [BUILD_PROGRAMS, *map(str, objects)]
        done = self._run([sys.executable, "-c", *command], seconds=600)
        if done.found_by:
            raise CatalogueError(f"it does not compile:\n{done.output[-2000:]}")

    def pytest(self, arguments: Sequence[str], seconds: float) -> Outcome:
        """Run pytest; more than so many seconds are a failure."""
        plain = ["-q", "-p", "no:cacheprovider", "-p", "tests.mutants.plugin", "--tb=short"]
        return self._run([sys.executable, "-m", "pytest", *plain, *arguments], seconds)

    def _run(self, command: Sequence[str], seconds: float) -> Outcome:
        if self._stopped:
            raise KeyboardInterrupt
        with tempfile.TemporaryFile() as file:
            process = subprocess.Popen(command, cwd=self.path, env=self.env, stdout=file, stderr=file, start_new_session=True)
            self._running = process
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = -1
            finally:
                _end(process)
            if self._stopped:
                raise KeyboardInterrupt
            file.seek(0)
            output = file.read().decode(errors="replace")
        if status == 0:
            return Outcome("", output)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        hung = f"(more than {seconds:.0f} s)"
        return Outcome(hung if status == -1 else failed[1] if failed else f"(exit status {status})", output)

    def stop(self) -> None:
        """End what runs, for another thread's `KeyboardInterrupt`."""
        self._stopped = True
        if self._running is not None:
            _end(self._running)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tracked(root: Path) -> list[str]:
    """Return the files of a checkout that git knows."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CatalogueError(f"{root} is no git checkout: {done.stderr.strip()}")
    return done.stdout.rstrip("\0").split("\0")


def _read_by(source: Path, seen: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """Return a C source and all headers of its directory that it includes."""
    seen |= {source}
    for name in re.findall(r'#include "(.+)"', source.read_text()):
        if source.parent / name not in seen:
            seen |= _read_by(source.parent / name, seen)
    return seen
