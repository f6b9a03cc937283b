"""Where the tests of packages run: only by ``make test-deb``, which builds what they test."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.packages.roots import CHROOT, Root

PACKAGES = "SOPA_PACKAGES"
LAB = ("ethtool", "iperf3", "iproute2", "iputils-ping", "mininet", "net-tools", "openvswitch-switch", "procps",
       "python3-yaml")  # fmt: skip
collect_ignore_glob = [] if PACKAGES in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def debs() -> dict[str, Path]:
    """The package files that were built last, by the name of the package."""
    files = sorted(Path(os.environ[PACKAGES]).glob("sopa-*.deb"), key=lambda file: file.stat().st_mtime)
    return {file.name.partition("_")[0]: file for file in files}


@pytest.fixture(scope="session")
def directory() -> Path:
    """The directory of this run's roots, which scripts/test_deb.sh removes; what is mounted there goes with the mount namespace."""
    return Path(os.environ["SOPA_ROOTS"])


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


@pytest.fixture(scope="session")
def with_lab(directory: Path, prepared: list[Path]) -> list[Path]:
    """A root with what sopa-tools depends on, too. To be given as ``below``."""
    root = Root(directory / "with_lab", prepared)
    root.apt("install", *LAB)
    return [root.upper, *prepared]


@pytest.fixture
def new_root(directory: Path, request: pytest.FixtureRequest) -> Callable[..., Root]:
    """A function that makes a root with the dependencies, those of the lab included if asked for, without a package of SOPA."""
    return lambda lab=False: Root(Path(mkdtemp(dir=directory)), request.getfixturevalue("with_lab" if lab else "prepared"))
