"""Pytest's side of `tests.mutants`: record which test function executes which lines, or run some functions in an order."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

PACKAGES = ("topologies", "flowrules", "sopa_ryu", "experiments")


def function(test: str) -> str:
    """Return the name of a test without its parameters."""
    return test.partition("[")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutants")
    group.addoption("--lines-to", type=Path, metavar="FILE", help="write which test function executes which lines")
    group.addoption("--functions-of", type=Path, metavar="FILE", help="run the test functions in a file, in its order")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # that an example fails is enough: to look for the smallest one takes minutes
    settings.register_profile("unshrunk", settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("unshrunk")
    if config.option.lines_to:
        config.pluginmanager.register(Recorder(config.option.lines_to, config.rootpath))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.functions_of:
        order = {name: place for place, name in enumerate(config.option.functions_of.read_text().split())}
        chosen = [its for its in items if function(its.nodeid) in order]
        items[:] = sorted(chosen, key=lambda its: order[function(its.nodeid)])


class Recorder:
    """Plugin that writes, for each test function, its seconds, whether it has failed, and the lines of each file as bits."""

    def __init__(self, target: Path, root: Path) -> None:
        from coverage import Coverage  # who only selects need not have it

        self._coverage = Coverage(
            f"{target}.coverage",
            config_file=False,
            source=[str(root / package) for package in PACKAGES],
            concurrency=["thread", "greenlet"],
        )
        self._coverage.set_option("run:disable_warnings", ["module-not-measured", "no-data-collected"])
        self._coverage.start()
        self._target, self._root, self._process = target, root, os.getpid()
        self._seconds: Counter[str] = Counter()
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(function(item.nodeid))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[function(report.nodeid)] += report.duration
        if report.failed:
            self._failed.add(function(report.nodeid))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if os.getpid() != self._process:
            return
        self._coverage.stop()
        data, lines = self._coverage.get_data(), defaultdict[str, Counter[str]](Counter)
        for file in data.measured_files():
            for line, names in data.contexts_by_lineno(file).items():
                for name in names:
                    lines[name][str(Path(file).relative_to(self._root))] |= 1 << line
        found = {name: [seconds, name in self._failed, lines[name]] for name, seconds in self._seconds.items()}
        self._target.write_text(json.dumps(found))
