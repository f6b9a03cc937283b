"""Packaging. All dependencies and their versions are in requirements.txt, tool settings in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent


def _version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"', (HERE / "sopa_ryu/__init__.py").read_text(), re.MULTILINE)
    if not found:
        raise SystemExit("setup.py: no __version__ in sopa_ryu/__init__.py")
    return found[1].replace("~", ".")  # as PEP 440 writes it


def _requirements(file: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (HERE / file).read_text().splitlines())
    return [line for line in lines if line]


RYU = [line for line in _requirements("requirements.txt") if line.startswith("ryu==")]

setup(
    name="sopa-ryu",
    version=_version(),
    description="SOPA: source-routed packet-level multi-path routing for fat-tree data centres, on Ryu",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(
        include=[f"{name}{tail}" for name in ("topologies", "flowrules", "sopa_ryu", "experiments") for tail in ("", ".*")]
    ),
    package_data={
        "topologies": ["*.json"],
        "sopa_ryu": [
            *("agent/**/*.c", "agent/**/*.h", "agent/**/*.o"),
            *("arbiter/allocator/*.cc", "arbiter/allocator/*.h", "arbiter/allocator/*.so"),
            *("web/static/*", "py.typed"),
        ],
        "experiments": ["bench/*.txt", "paper/*.yaml", "**/*.c", "**/*.cc", "**/*.h", "**/CMakeLists.txt"],
    },
    install_requires=[line for line in _requirements("requirements.txt") if line not in RYU],
    # The OpenFlow library is one of the first two: see sopa_ryu/runtime/library.py.
    extras_require={
        "ryu": RYU,
        "os-ken": _requirements("requirements-os-ken.txt"),
        "dask": ["distributed==2026.8.0"],  # sopa experiment --scheduler; requirements-dev.txt has the same
    },
    entry_points={
        "console_scripts": [
            # Replaces Ryu's script of the same name: see sopa_ryu/manager.py.
            "ryu-manager = sopa_ryu.manager:main",
            "sopa = sopa_ryu.cli:main",
        ],
        # sopa_ryu imports nothing of the packages above it: their commands are found by name.
        "sopa.commands": [
            "demo = experiments.cli.demo:demo",
            "lab = experiments.cli.lab:lab",
            "experiment = experiments.cli.experiment:experiment",
        ],
    },
)
