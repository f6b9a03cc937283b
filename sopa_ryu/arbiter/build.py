"""Compile the arbiter's library, at installation and before the tests: ``python -m sopa_ryu.arbiter.build``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sopa_ryu.runtime.atomic_file import replaced

SOURCES = Path(__file__).parent / "allocator"
LIBRARY = SOURCES / "libsopa_arbiter.so"
FLAGS = ("-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror")
"""Of every program that has the library in it. No -march: a package runs on any processor of its architecture."""
_SHARED = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--no-undefined", "-Wl,-z,relro")


class AllocatorBuildError(RuntimeError):
    """The library cannot be compiled here; the message says what is missing."""


def build(*, force: bool = False) -> list[Path]:
    """Compile the library if it is older than a source, or in any case.

    Returns:
        The library, if it was compiled.

    Raises:
        BuildError: If g++ is missing, or the sources do not compile.
    """
    return build_program(LIBRARY, sorted(SOURCES.glob("*.cc")), _SHARED, force=force)


def build_program(target: Path, sources: Sequence[Path], flags: Sequence[str] = (), *, force: bool = False) -> list[Path]:
    """Compile what consists of some sources and headers beside those of the library, as `build` does."""
    read = [*sources, *SOURCES.glob("*.h"), Path(__file__)]
    newest = max(source.stat().st_mtime for source in read)
    if not force and target.exists() and newest <= target.stat().st_mtime:
        return []
    name = os.environ.get("CXX", "g++")
    compiler = shutil.which(name)
    if compiler is None:
        raise AllocatorBuildError(f"{name} is missing: apt install g++")
    try:
        with replaced(target) as fresh:  # a running arbiter has the old one mapped
            command = [compiler, *FLAGS, *flags, f"-I{SOURCES}", *map(str, sources), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise AllocatorBuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    except OSError as error:
        raise AllocatorBuildError(f"cannot write {target}: {error.strerror}") from error
    return [target]


if __name__ == "__main__":
    try:
        for path in build(force="--force" in sys.argv[1:]):
            print(f"built {path}")
    except AllocatorBuildError as problem:
        sys.exit(f"sopa: {problem}")
