"""A copy of the checkout in which defects are tried: the checkout itself never changes."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutants.catalogue import Defect, MutantsError
from tests.mutants.plugin import PACKAGES

PROGRAMS, LIBRARY = "sopa_ryu/agent/bpf", "sopa_ryu/arbiter/allocator/libsopa_arbiter.so"
BUILT = ("sopa_ryu/**/*.o", "sopa_ryu/**/*.so", "experiments/**/*.o")
BUILD_LIBRARY = "from sopa_ryu.arbiter.build import build; build(force=True)"
BUILD_PROGRAMS = """
import sys, pathlib, sopa_ryu.agent.kernel.build
sopa_ryu.agent.kernel.build.build([pathlib.Path(path) for path in sys.argv[1:]], force=True)
"""
BUILD_SECONDS = 600.0
END_SECONDS = 60.0
"""The time that an interrupted test has for taking down what it has put up."""


class Tree:
    """A copy in a directory: the files of a checkout that git knows, ``tests`` of another, and what is built of the first."""

    def __init__(self, root: Path, tests: Path, directory: Path) -> None:
        self.path = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        own = [name for name in tracked(root) if not name.startswith("tests/")]
        own += [str(path.relative_to(root)) for pattern in BUILT for path in root.glob(pattern)]
        theirs = [name for name in tracked(tests) if name.startswith("tests/")]
        for source, name in [*((root, name) for name in own), *((tests, name) for name in theirs)]:
            if (source / name).exists() and not name.startswith("tests/mutants/"):
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, directory / name)
        (directory / "tests/__init__.py").touch()
        shutil.copytree(Path(__file__).parent, directory / "tests/mutants")
        # it comes before the editable installation of the checkout
        self._env = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": ""}

    def check(self) -> None:
        """Raise `MutantsError` if Python does not take the product from here, wherever it starts."""
        packages = [name for name in PACKAGES if (self.path / name).is_dir()]
        code = "import os, sys; os.chdir('/'); [print(__import__(its).__file__) for its in sys.argv[1:]]"
        _, output = self.run(["-c", code, *packages], BUILD_SECONDS)
        if output.split() != [str(self.path / name / "__init__.py") for name in packages]:
            raise MutantsError(f"the product is not taken from {self.path}, but from {output}")

    @contextmanager
    def with_defect(self, defect: Defect) -> Iterator[None]:
        """Apply a defect, and undo it; raises `MutantsError` if it does not fit or does not compile."""
        path, built = self.path / defect.file, self._built(defect.file)
        before = {file: (file.read_bytes(), file.stat()) for file in (path, *built)}
        changed = defect.applied(path.read_text()).encode()
        try:
            _write(path, changed, before[path][1])  # the time is the former one: nothing else is built anew for it
            if built:
                objects = [BUILD_LIBRARY] if built[0].suffix == ".so" else [BUILD_PROGRAMS, *map(str, built)]
                failed, output = self.run(["-c", *objects], BUILD_SECONDS)
                if failed:
                    raise MutantsError(f"it does not compile:\n{output[-2000:]}")
            yield
        finally:
            for file, (content, times) in before.items():
                _write(file, content, times)

    def _built(self, name: str) -> list[Path]:
        """Return what is built of a source: all programs of a header, although not all include it."""
        if name.startswith(PROGRAMS):
            sources = [self.path / name] if name.endswith(".c") else sorted(self.path.glob(f"{PROGRAMS}/*.c"))
            return [its.with_suffix(".o") for its in sources]
        return [self.path / LIBRARY] if name.endswith((".cc", ".h")) else []

    def pytest(self, arguments: Sequence[str], seconds: float) -> tuple[str, str]:
        """Run pytest; return as `run` does."""
        plugins = ["-p", "no:cacheprovider", "-p", "tests.mutants.plugin"]
        return self.run(["-m", "pytest", "-q", *plugins, *arguments], seconds)

    def run(self, arguments: Sequence[str], seconds: float) -> tuple[str, str]:
        """Run Python; return the test that has failed first, or why the run has failed, or nothing; and all output."""
        status = None
        with tempfile.TemporaryFile() as file:
            if not self._stopped:
                command = [sys.executable, *arguments]
                its = {"cwd": self.path, "env": self._env, "stdout": file, "stderr": file, "start_new_session": True}
                self._process = subprocess.Popen(command, **its)  # type: ignore[call-overload]
                try:
                    status = self._process.wait(seconds)
                except subprocess.TimeoutExpired:
                    pass
                finally:  # Ctrl-C reaches no other session
                    self._end()
            file.seek(0)
            output = file.read().decode(errors="replace")
        if self._stopped:
            raise KeyboardInterrupt
        if status is None:
            return f"(more than {seconds:.0f} s)", output
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return ("" if status in (0, 5) else failed[1] if failed else f"(exit status {status})"), output

    def stop(self) -> None:
        """End what runs: `run` then raises `KeyboardInterrupt`."""
        self._stopped = True
        self._end()

    def _end(self) -> None:
        """End the process and what it has started in its session: labs and namespaces are taken down if it can."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def tracked(root: Path) -> list[str]:
    """Return the files of a checkout that git knows; raises `MutantsError`."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MutantsError(f"{root} is no git checkout: {done.stderr.strip()}")
    return done.stdout.rstrip("\0").split("\0")


def _write(path: Path, content: bytes, times: os.stat_result) -> None:
    path.unlink()  # a program may have it loaded
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
