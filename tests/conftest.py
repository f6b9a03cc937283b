"""Rules of every test run: a skipped test fails it, examples are the same each time, and two processes can share the tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ALLOW_SKIPS = "SOPA_ALLOW_SKIPS"
NEEDS_ROOT = "needs root: Open vSwitch, network namespaces or eBPF"
MAX_SHOWN = 10
LONG = ("ns3", "web", "switch")  # folders whose modules take longest

skipped = pytest.StashKey[list[tuple[str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sharing tests among processes, as scripts/test.sh does")
    group.addoption(
        "--share", type=Path, metavar="DIR", help="run only modules that no other process with DIR has taken"
    )
    group.addoption(
        "--labs", choices=("first", "never"), help="with --share: run the labs' tests first, or leave them all"
    )
    parser.getgroup("hypothesis").addoption(
        "--examples", type=int, metavar="N", help="how many sequences of events test_coordinator_states.py tries"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[skipped] = []
    config.pluginmanager.register(SkippedTests(config.stash[skipped]))
    if config.option.share:
        config.pluginmanager.register(SharedTests(config.option.share, config.option.labs == "first"))
    use_same_examples(config.getoption("--hypothesis-seed", None))


def use_same_examples(seed: str | None) -> None:
    """Let property tests try the same examples in each run, or those of a seed, on a machine of any speed."""
    settings.register_profile(
        "same", derandomize=seed is None, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("same")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its folder, and skip it where it cannot run."""
    for folder in {"bpf", "lab", "kernel_datapath"} & {item.path.parent.name}:
        item.add_marker(folder)
    if os.geteuid() and any(item.get_closest_marker(name) for name in ("bpf", "lab", "switch", "kernel_datapath")):
        item.add_marker(pytest.mark.skip(reason=NEEDS_ROOT))


class SharedTests:
    """Plugin for one of two processes that share the tests, a module at a time.

    Only one of them runs the labs' tests, as each lab keeps one Open vSwitch busy. After these it goes through the other modules
    from the end, and its partner through the same from the beginning: they meet where both have done as much.
    """

    def __init__(self, directory: Path, labs: bool) -> None:
        self._directory = directory
        self._labs = labs
        self._mine: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        labs = [item for item in items if item.get_closest_marker("lab")]
        modules: dict[Path, list[pytest.Item]] = {}
        for item in items:
            if not item.get_closest_marker("lab"):
                modules.setdefault(item.path, []).append(item)
        order = sorted(modules, key=lambda path: (path.parent.name not in LONG, path), reverse=self._labs)
        items[:] = [*(labs if self._labs else ()), *(item for path in order for item in modules[path])]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Take the test, or say that it is done where another process has taken its module."""
        return None if item.get_closest_marker("lab") or self._take(item.path) else True

    def _take(self, path: Path) -> bool:
        name = "-".join(path.parts[-3:])
        if name not in self._mine:
            with suppress(FileExistsError):
                (self._directory / name).touch(exist_ok=False)
                self._mine[name] = True
        return self._mine.setdefault(name, False)


class SkippedTests:
    """Plugin that lists skipped tests with their reasons and fails the run for them.

    A part that is missing would otherwise look like a part that works. On a machine that cannot have all parts,
    ``SOPA_ALLOW_SKIPS=1`` accepts the rest.
    """

    def __init__(self, skipped: list[tuple[str, str]]) -> None:
        self._skipped = skipped
        self._allowed = os.environ.get(ALLOW_SKIPS) == "1"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self._skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._skipped and not self._allowed and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._skipped or self._allowed:
            return
        terminalreporter.section(f"{len(self._skipped)} skipped tests: this run has failed", red=True)
        for reason in sorted({reason for _, reason in self._skipped}):
            names = [name for name, its in self._skipped if its == reason]
            terminalreporter.line(f"{reason} ({len(names)} tests)")
            for name in _shown(names):
                terminalreporter.line(f"    {name}")
        terminalreporter.line(f"`make test` as root installs every part; {ALLOW_SKIPS}=1 accepts a run without them.")


def _shown(names: list[str]) -> Iterable[str]:
    yield from names[:MAX_SHOWN]
    if len(names) > MAX_SHOWN:
        yield f"... and {len(names) - MAX_SHOWN} more"
