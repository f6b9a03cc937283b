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


def sopa(tmp_path: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SOPA_CACHE": str(tmp_path / f"cache of {name}")}
    command = [sys.executable, "-m", "sopa_ryu.cli", *RUN, "--out", str(tmp_path / name), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_worker_that_dies_costs_its_run_only_another_simulator_is_refused_and_a_lost_scheduler_said(
    start: Start, tmp_path: Path
) -> None:
    said = tmp_path / "scheduler.log"
    scheduler = start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0")
    [address] = eventually(lambda: re.findall(r"Scheduler at: +(tcp://\S+)", said.read_text()), bool, seconds=120)
    assert f"the scheduler at {address} has no worker: run dask worker" in sopa(tmp_path, "none", "--scheduler", address).stderr

    workers = [start(name, "worker", address, "--nthreads", "1", "--no-nanny") for name in ("one", "two")]
    eventually(lambda: said.read_text().count("Register worker"), 2, seconds=120)
    running = subprocess.Popen(
        [sys.executable, "-m", "sopa_ryu.cli", *RUN, "--out", str(tmp_path / "there"), "--scheduler", address],
        env={**os.environ, "SOPA_CACHE": str(tmp_path / "own")},
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: children(workers[0].pid), bool, seconds=120)
    workers[0].send_signal(signal.SIGKILL)
    assert (running.communicate()[1].count("flows, mean"), running.returncode) == (3, 0)
    assert sopa(tmp_path, "here").returncode == 0
    for seed in (1, 2, 3):
        here, there = ((tmp_path / where / f"sopa-{seed}.jsonl").read_bytes() for where in ("here", "there"))
        assert here == there

    (tmp_path / "other.py").write_text(OTHER)
    start("other", "worker", address, "--no-nanny", "--preload", str(tmp_path / "other.py"))
    eventually(lambda: said.read_text().count("Register worker"), 3, seconds=120)
    refused = sopa(tmp_path, "refused", "--scheduler", address)
    assert refused.returncode == 1
    assert f"is refused: its simulator is f00d, and the one here is {digest()}" in refused.stderr
    scheduler.kill()
    scheduler.wait()
    assert (
        f"no scheduler answers at {address}: start one with dask scheduler" in sopa(tmp_path, "lost", "--scheduler", address).stderr
    )


def children(pid: int) -> list[str]:
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
