"""Rules of every test run: a skipped test is an error of the run, and the labs' tests run one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

ALLOW_SKIPS = "SOPA_ALLOW_SKIPS"
NEEDS_ROOT = "needs root: Open vSwitch, network namespaces or eBPF"
MAX_SHOWN = 10

skipped = pytest.StashKey[list[tuple[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[skipped] = []
    config.pluginmanager.register(SkippedTests(config.stash[skipped]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the labs' tests first, and all of them in one worker: each of them keeps one Open vSwitch busy."""
    for item in items:
        for folder in {"bpf", "lab"} & {item.path.parent.name}:
            item.add_marker(folder)
        if os.geteuid() and any(item.get_closest_marker(name) for name in ("bpf", "lab", "switch")):
            item.add_marker(pytest.mark.skip(reason=NEEDS_ROOT))
    items.sort(key=lambda item: item.get_closest_marker("lab") is None)


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
