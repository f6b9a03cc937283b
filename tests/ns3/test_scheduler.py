"""Simulations on the workers of a real Dask scheduler, on this machine."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from experiments.ns3.program import digest
from tests.helpers.memory import children
from tests.helpers.waiting import eventually

OTHER = "import experiments.ns3.program as its; its.digest = lambda: 'f00d'"
RUN = ["experiment", "run", "permutation", "--backend", "ns3", "--k", "4", "--seconds", "0.02", "--schemes", "sopa", "--seeds", "3"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(name: str, *words: str) -> subprocess.Popen[str]:
            with (tmp_path / f"{name}.log").open("w") as log:
                environment = {**os.environ, "SOPA_CACHE": str(tmp_path / name)}
                command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
                process = subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment, cwd=tmp_path)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield started


def sopa(tmp_path: Path, name: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "SOPA_CACHE": str(tmp_path / f"cache of {name}")}
    command = [sys.executable, "-m", "sopa_ryu.cli", *RUN, "--out", str(tmp_path / name), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def ended(running: subprocess.Popen[str]) -> tuple[int, str]:
    """Return a command's status once it has ended, and what it has said."""
    said = running.communicate()[1]
    return running.returncode, said


def test_a_worker_that_dies_costs_its_run_only_another_simulator_is_refused_and_a_lost_scheduler_said(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "scheduler.log"
    scheduler = start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0")
    [address] = eventually(lambda: re.findall(r"Scheduler at: +(tcp://\S+)", log.read_text()), bool, seconds=120)
    option = ["--scheduler", address]
    assert f"the scheduler at {address} has no worker: run dask worker" in ended(sopa(tmp_path, "none", *option))[1]

    workers = [start(name, "worker", address, "--nthreads", "1", "--no-nanny") for name in ("one", "two")]
    eventually(lambda: log.read_text().count("Register worker") >= 2, seconds=120)
    running = sopa(tmp_path, "there", *option)
    eventually(lambda: children(workers[0].pid), bool, seconds=120)
    workers[0].send_signal(signal.SIGKILL)
    status, said = ended(running)
    assert (status, said.count("flows, mean")) == (0, 3)
    assert ended(sopa(tmp_path, "here"))[0] == 0
    for seed in (1, 2, 3):
        here, there = ((tmp_path / where / f"sopa-{seed}.jsonl").read_bytes() for where in ("here", "there"))
        assert here == there

    (tmp_path / "other.py").write_text(OTHER)
    start("other", "worker", address, "--no-nanny", "--preload", str(tmp_path / "other.py"))
    eventually(lambda: log.read_text().count("Register worker") >= 3, seconds=120)
    status, said = ended(sopa(tmp_path, "refused", *option))
    assert status == 1
    assert f"is refused: its simulator is f00d, and the one here is {digest()}" in said
    scheduler.kill()
    scheduler.wait()
    assert f"no scheduler answers at {address}: start one with dask scheduler" in ended(sopa(tmp_path, "lost", *option))[1]
