"""Rules of every test run: a skipped test fails it, examples are the same each time, workers share whole modules."""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from execnet.gateway_base import WorkerGateway
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import NodeManager

from tests.helpers.golden import Script
from tests.helpers.report import record
from tests.helpers.waiting import interrupted

ALLOW_SKIPS = "SOPA_ALLOW_SKIPS"
NEEDS_ROOT = "needs root: Open vSwitch, network namespaces or eBPF"
MAX_SHOWN = 10
INTERRUPT_SECONDS, TAKE_DOWN_SECONDS = 5.0, 120.0
"""How long a worker's test may go on after Ctrl-C, and then take down what it started; xdist's own 5 s left labs behind."""
FIRST = ("faults", "lab", "cluster", "ns3", "switch", "web", "contract", "bpf")  # folders whose modules take longest
LONGEST = ("coordinator_states", "mutants", "observer", "report_plots", "docs", "manager", "pki", "path_health")  # of all others


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("golden scripts").addoption(
        "--record", action="store_true", help="write what the steps of golden scripts say today; git diff is the review"
    )
    parser.getgroup("hypothesis").addoption(
        "--examples", type=int, metavar="N", help="how many sequences of events test_coordinator_states.py tries"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker's reports reach its parent
        config.pluginmanager.register(RecordedTests(float(config.getini("timeout"))))
        NodeManager.EXIT_TIMEOUT = INTERRUPT_SECONDS + TAKE_DOWN_SECONDS
    else:
        WorkerGateway._terminate_execution = interrupt
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    use_same_examples(config.getoption("--hypothesis-seed", None))


def interrupt(worker: WorkerGateway) -> None:
    """End the test of a worker in order; its parent kills it after `NodeManager.EXIT_TIMEOUT`."""
    worker._execpool.trigger_shutdown()
    while not worker._execpool.waitall(INTERRUPT_SECONDS):
        if not interrupted.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # `isolated` passes it on to the lab, and SIGINT is lost there


def pytest_keyboard_interrupt() -> None:
    interrupted.set()


def use_same_examples(seed: str | None) -> None:
    """Let property tests try the same examples in each run, or those of a seed, on a machine of any speed."""
    settings.register_profile(
        "same", derandomize=seed is None, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("same")


@pytest.fixture
def script(request: pytest.FixtureRequest) -> Script:
    return Script(request.param, request.config.option.record)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its folder, and skip it where it cannot run."""
    for folder in {"bpf", "lab", "kernel_datapath", "timing"} & {item.path.parent.name}:
        item.add_marker(folder)
    if os.geteuid() and any(item.get_closest_marker(name) for name in ("bpf", "lab", "switch", "kernel_datapath", "timing")):
        item.add_marker(pytest.mark.skip(reason=NEEDS_ROOT))


class Modules(LoadScopeScheduling):
    """Gives each worker a whole module at a time, so that what a module starts once is started once."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Modules:
    config.option.loadscopereorder = False  # modules with few tests would come last, of which many take longest
    return Modules(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the folders and modules that take longest first, so that workers end together."""
    folders, modules = ({name: place for place, name in enumerate(names)} for names in (FIRST, LONGEST))

    def place(item: pytest.Item) -> tuple[int, int]:
        its = (folders[part] for part in item.path.parts if part in folders and "unit" not in item.path.parts)
        return next(its, len(folders)), modules.get(item.path.stem.removeprefix("test_"), len(modules))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Examine what was collected no more: 400,000 objects take a quarter of a second each time, and `sopa` asks for it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


class RecordedTests:
    """Plugin that adds to the run's record how long each test took, what it set up and took down included."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = self._seconds.pop(report.nodeid, 0.0) + report.duration
        if report.when == "teardown":
            record("test", test=report.nodeid, seconds=round(seconds, 3), timeout=self._timeout)
        else:
            self._seconds[report.nodeid] = seconds


# A part that is missing would otherwise look like a part that works.


def skipped(config: pytest.Config) -> dict[str, list[str]]:
    """Return skipped tests by reason; none in a worker, and where the machine cannot have all parts (`ALLOW_SKIPS`)."""
    found: dict[str, list[str]] = {}
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and os.environ.get(ALLOW_SKIPS) != "1":
        for report in reporter.stats.get("skipped", ()):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            found.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if skipped(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not (found := skipped(config)):
        return
    terminalreporter.section(f"{sum(map(len, found.values()))} skipped tests: this run has failed", red=True)
    for reason, names in sorted(found.items()):
        terminalreporter.line(f"{reason} ({len(names)} tests)")
        more = [f"... and {len(names) - MAX_SHOWN} more"] if len(names) > MAX_SHOWN else []
        for name in (*names[:MAX_SHOWN], *more):
            terminalreporter.line(f"    {name}")
    terminalreporter.line(f"`make test` as root installs every part; {ALLOW_SKIPS}=1 accepts a run without them.")
