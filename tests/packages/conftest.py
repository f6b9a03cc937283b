"""Where the tests of packages run: only by ``make test-deb``, which builds what they test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.packages.roots import CHROOT, WORK, Root

PACKAGES = "SOPA_PACKAGES"
collect_ignore_glob = [] if PACKAGES in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def debs() -> dict[str, Path]:
    """The package files that were built last, by the name of the package."""
    files = sorted(Path(os.environ[PACKAGES]).glob("sopa-*.deb"), key=lambda file: file.stat().st_mtime)
    return {file.name.partition("_")[0]: file for file in files}


@pytest.fixture(scope="session")
def directory() -> Path:
    """The directory of this run's roots: what is mounted there goes with the mount namespace, the rest with the next run."""
    subprocess.run(["rm", "-rf", "--one-file-system", *WORK.glob("roots-*")], check=True)
    return Path(mkdtemp(prefix="roots-", dir=WORK))


@pytest.fixture(scope="session")
def bare(directory: Path) -> Path:
    """What a bare root needs for apt: its lists. To be given as ``below``."""
    root = Root(directory / "bare")
    root.apt("update")
    return root.upper


@pytest.fixture(scope="session")
def prepared(directory: Path, bare: Path) -> list[Path]:
    """A root with what the packages depend on, which stays when they are purged. To be given as ``below``."""
    root = Root(directory / "prepared", [bare, CHROOT])
    root.apt("install", "python3", "libbpf1", "adduser", "libstdc++6", "zlib1g")
    return [root.upper, bare, CHROOT]


@pytest.fixture
def new_root(directory: Path, prepared: list[Path]) -> Callable[[], Root]:
    """A function that makes a root with the dependencies, in which no package of SOPA has been."""
    return lambda: Root(Path(mkdtemp(dir=directory)), prepared)
