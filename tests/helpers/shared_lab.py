"""Labs that many tests share: each test's body runs in the lab's process, and leaves the lab as it found it.

A lab costs several seconds of a processor. So tests that neither need another fabric nor other options name one of the fixtures of
`tests/lab/conftest.py`, and run one after the other in the process that holds it. After each test the lab's state is compared with
that before the first; if it stays different, the test has failed, and the next one has a new lab.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.veth import run
from tests.helpers.waiting import eventually
from topologies.lab.isolation import die_with_parent, isolated
from topologies.lab.network import Lab

MAX_LOG = 3000
BEGUN_LATER = "sopa_ryu.health.worker"  # a child of the controller, with the first reports of probes


class SharedLab:
    """A lab in a process of its own, started by the first test that runs in it. At most one of them runs at a time.

    ``state`` returns what no test may leave changed; nothing while the lab is not at rest.
    """

    _running: SharedLab | None = None

    def __init__(self, make: Callable[[], AbstractContextManager[Any]], state: Callable[[Any], dict[str, object]]) -> None:
        self._make, self._state = make, state
        self._pid = 0
        self._channel: Connection | None = None

    def run(self, item: pytest.Function) -> None:
        """Run a test's body in the lab's process; what fails there fails the test here."""
        if SharedLab._running is not self:
            if SharedLab._running is not None:
                SharedLab._running.close()
            self._start({each.nodeid: each for each in item.session.items if isinstance(each, pytest.Function)})
        assert self._channel is not None
        arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames if item.funcargs[name] is not self}
        problem = "the lab has ended"
        try:
            self._channel.send((item.nodeid, arguments))
            with suppress(EOFError):
                problem = self._channel.recv()
        finally:
            if problem:
                self.close()
        if problem:
            pytest.fail(problem, pytrace=False)

    def close(self) -> None:
        if SharedLab._running is not self:
            return
        SharedLab._running = None
        assert self._channel is not None
        self._channel.close()
        with suppress(AssertionError):
            eventually(self._ended)
            return
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _ended(self) -> bool:
        return os.waitpid(self._pid, os.WNOHANG)[0] == self._pid

    def _start(self, items: dict[str, pytest.Function]) -> None:
        ours, its = multiprocessing.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                die_with_parent(parent)
                ours.close()
                status = isolated(lambda: self._serve(its, items))
            finally:
                os._exit(status)
        its.close()
        self._channel, SharedLab._running = ours, self

    def _serve(self, channel: Connection, items: dict[str, pytest.Function]) -> int:
        """Run tests until the other end is closed."""
        try:
            with self._make() as lab:
                # a machine that stood still at the start has links that look dead for a moment
                before = eventually(lambda: self._state(lab), lambda state: state and not state.get("failures"))
                while True:
                    nodeid, arguments = channel.recv()
                    channel.send(problem := self._problem(lab, before, items[nodeid], arguments))
                    if problem:
                        return 1
        except EOFError:
            return 0
        except Exception:
            channel.send(f"the lab does not start:\n{traceback.format_exc()}")
            return 1

    def _problem(self, lab: Any, before: dict[str, object], item: pytest.Function, arguments: dict[str, Any]) -> str:
        """Run a test; what is wrong, or nothing."""
        wanted = {name: arguments.get(name, lab) for name in item._fixtureinfo.argnames}
        at = {log: log.stat().st_size for log in _logs(lab)}
        try:
            item.obj(**wanted)
            eventually(lambda: changes(before, self._state(lab)), [])
        except BaseException:
            for log in _logs(lab):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[at.get(log, 0) :][-MAX_LOG:]}")
            sys.stdout.flush()
            return str(pytest.ExceptionInfo.from_current().getrepr(style="long", abspath=False, funcargs=True))
        return ""


def _logs(lab: Any) -> list[Path]:
    return sorted(lab.directory.rglob("*.log")) if isinstance(lab, SopaLab) else []


def shared(make: Callable[[], AbstractContextManager[Any]], state: Callable[[Any], dict[str, object]]) -> Any:
    """Return a fixture: tests that name it run in that lab, by `pytest_pyfunc_call` of a conftest.py."""

    @pytest.fixture(scope="module")
    def fixture() -> Iterator[SharedLab]:
        its = SharedLab(make, state)
        yield its
        its.close()

    return fixture


def lab_of(item: pytest.Item) -> SharedLab | None:
    return next((its for its in getattr(item, "funcargs", {}).values() if isinstance(its, SharedLab)), None)


def changes(before: dict[str, object], now: dict[str, object]) -> list[str]:
    """Tell in words what is not as it was."""
    told = []
    for name, its in before.items():
        present = now.get(name)
        if isinstance(its, list) and isinstance(present, list):
            more, fewer = [each for each in present if each not in its], [each for each in its if each not in present]
            its, present = f"{fewer} of {len(its)}", f"{more} of {len(present)}"
        if now.get(name) != before[name]:
            told.append(f"{name} was {its}, is {present}")
    return told


# -- what no test may leave changed -----------------------------------------------------------------------------------


def of_fabric(lab: SopaLab) -> dict[str, object]:
    """Return the state of a lab with a controller, once it is at rest: an empty one while it is not."""
    fabric = lab.controller.answer("/fabric")
    wanted = len(lab.labelling) if lab.agent is not None else 0
    if fabric is None or not fabric["settled"] or not lab.controller.agents_know(wanted):
        return {}
    links = {link["name"]: link["capacity_bits_per_second"] for link in lab.controller.get("/links").json()["links"]}
    return {
        "failures": fabric["failures"],
        "missing": fabric["missing"],
        "drains": lab.controller.get("/drains").json()["drains"],
        "capacities": links,
        "hosts": [_of_host(lab.lab, name) for name in map(lab.tree.name, lab.tree.hosts())],
        **of_machine(),
    }


def of_machine() -> dict[str, object]:
    """Return the processes, interfaces, queueing disciplines and filters in the lab's namespaces."""
    processes, namespaces = [], set()
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            namespaces.add(os.readlink(directory / "ns/net"))
            processes.append((directory / "cmdline").read_text().replace("\0", " "))
    return {
        "processes": sorted(command for command in processes if BEGUN_LATER not in command),
        "namespaces": len(namespaces),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "disciplines": disciplines(),
    }


def disciplines() -> list[str]:
    """Return the queueing disciplines and filters of the lab's root namespace, without numbers that the kernel draws."""
    lines = re.sub(r"qdisc (\w+) \w+:", r"qdisc \1", run("tc qdisc show")).splitlines()
    return sorted(line for line in lines if " tbf " in line or " clsact " in line)


def _of_host(lab: Lab, name: str) -> str:
    return "".join(run(f"nsenter --net={lab.netns(name)} ip -brief {what} show dev {name}-eth0") for what in ("address", "link"))
