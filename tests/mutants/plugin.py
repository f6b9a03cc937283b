"""Pytest's side of `tests.mutants`: record which test function executes which lines, or run some functions in an order."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

PACKAGES = ("topologies", "flowrules", "sopa_ryu", "experiments")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutants")
    group.addoption("--lines-to", type=Path, metavar="FILE", help="write which test function executes which lines")
    group.addoption("--functions-of", type=Path, metavar="FILE", help="run the test functions in a file, in its order")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.lines_to:
        config.pluginmanager.register(Recorder(config.option.lines_to, config.rootpath))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.functions_of:
        order = {name: place for place, name in enumerate(config.option.functions_of.read_text().split())}
        items[:] = sorted((item for item in items if function(item) in order), key=lambda item: order[function(item)])


def function(item: pytest.Item) -> str:
    """Return the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


class Recorder:
    """Plugin that writes `{"lines": {function: {file: lines in hexadecimal}}, "seconds": ..., "failed": ...}`."""

    def __init__(self, target: Path, root: Path) -> None:
        from coverage import Coverage  # only who records has it

        self._target, self._root = target, root
        self._coverage = Coverage(
            data_file=f"{target}.coverage",
            config_file=False,
            source=[str(root / package) for package in PACKAGES],
            concurrency=["thread", "greenlet"],
        )
        self._coverage.set_option("run:disable_warnings", ["module-not-measured", "no-data-collected"])
        self._coverage.start()
        self._seconds: Counter[str] = Counter()
        self._failed: set[str] = set()
        self._process = os.getpid()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(function(item))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[0]
        self._seconds[name] += report.duration
        if not report.passed and not hasattr(report, "wasxfail"):
            self._failed.add(name)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if os.getpid() != self._process:
            return
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            for line, names in data.contexts_by_lineno(file).items():
                for name in filter(None, names):
                    lines.setdefault(name, {}).setdefault(str(Path(file).relative_to(self._root)), []).append(line)
        packed = {
            name: {file: format(sum(1 << line for line in its), "x") for file, its in files.items()}
            for name, files in lines.items()
        }
        content = {"lines": packed, "seconds": self._seconds, "failed": sorted(self._failed)}
        self._target.write_text(json.dumps(content))
