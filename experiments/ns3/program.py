"""The program of the simulator: built with CMake from ``src/`` on Debian's ns-3, and rebuilt when its source changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from sopa_ryu.agent.kernel.build import SOURCES as AGENT
from sopa_ryu.arbiter.build import SOURCES as ARBITER

SOURCE = Path(__file__).resolve().parent
_ROOT = SOURCE.parent.parent
_IS_CHECKOUT = (_ROOT / "setup.py").exists()
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sopa"
BUILD = _ROOT / "build" / "ns3" if _IS_CHECKOUT else _CACHE / "ns3"
"""Of an installed package the user's cache: nothing is built in directories of the system's packages."""
OPTIMISED = _ROOT / "build" / "ns3-source"
"""Output of ``scripts/build_ns3.sh``, an optimised build of ns-3 with identical results."""
_NAME = "sopa_simulation"
_STAMP = "source.sha256"
_PACKAGES = "libns3-dev ns3 libgsl-dev cmake make g++"  # as in scripts/install_ns3.sh


class SimulatorError(RuntimeError):
    """The simulator is missing, or a simulation failed. The message says what to do."""


def digest() -> str:
    """Return the SHA-256 of the source of the program. The same source gives the same results."""
    found = hashlib.sha256()
    own, library = [SOURCE / "CMakeLists.txt", *SOURCE.glob("src/*")], [*ARBITER.glob("*.cc"), *ARBITER.glob("*.h")]
    for file in (*sorted(own), *sorted(library), AGENT / "flowhash.h"):
        found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def optimised() -> Path | None:
    """Return the tree of the optimised ns-3 if it is complete, else None."""
    return OPTIMISED / "ns-3.37" if (OPTIMISED / "made").exists() else None


def is_installed() -> bool:
    """Return whether there is an ns-3 that the program is made for: 3.37, as Debian 12 has it or `scripts/build_ns3.sh` made it."""
    packages = Path("/usr/lib").glob("*/cmake/ns3/ns3ConfigVersion.cmake")
    return optimised() is not None or any('(PACKAGE_VERSION "3.37")' in file.read_text() for file in packages)


def build(say: Callable[[str], None] = lambda _line: None, directory: Path = BUILD, packaged: bool = False) -> Path:
    """Build the program if it is missing or outdated, and return its path.

    With ``packaged`` Debian's ns-3 is used even if an optimised build exists. Raises `SimulatorError` if ns-3 or a compiler is
    missing, or compilation fails.
    """
    program, stamp, own = directory / _NAME, directory / _STAMP, None if packaged else optimised()
    try:
        wanted = f"{digest()} {own} {(OPTIMISED / 'made').read_text()}" if own else f"{digest()} Debian\n"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent callers wait for one build
            if program.exists() and stamp.exists() and stamp.read_text() == wanted:
                return program
            if shutil.which("cmake") is None or not is_installed():
                packages = f"apt-get install --no-install-recommends {_PACKAGES} (Debian 12's; on another release, use a checkout)"
                how = "make install-ns3" if _IS_CHECKOUT else packages
                raise SimulatorError(f"ns-3 3.37 is not installed: run {how}")
            say("building the simulator")
            stamp.unlink(missing_ok=True)
            # From g++ 13 on <cstdint> comes with no other header. In the sources it would give the record's runs another digest.
            _run("cmake", "--fresh", "-S", str(SOURCE), "-B", str(directory), f"-DSOPA_NS3_SOURCE={own or ''}",
                 f"-DSOPA_ARBITER={ARBITER}", f"-DSOPA_AGENT={AGENT}", "-DCMAKE_CXX_FLAGS=-include cstdint")  # fmt: skip
            _run("cmake", "--build", str(directory), "--parallel", str(os.cpu_count() or 1))
            stamp.write_text(wanted)
    except OSError as error:
        raise SimulatorError(f"cannot build the simulator in {directory}: {error}") from error
    return program


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SimulatorError(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
