"""CFR in the lab: real hosts send in the slots of a real arbiter, and go on when it dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer
from topologies import FatTree
from topologies.lab.isolation import isolated

pytestmark = pytest.mark.lab

TREE = FatTree(4)
RATE = 2.0
CFR = named("cfr+slot=1")
RECEIVER = TREE.host("h0_0_2")
INCAST = tuple(Transfer(TREE.host(name), RECEIVER) for name in ("h0_1_2", "h1_0_2", "h2_0_3", "h3_1_3"))


def run(fabric: EmulatedFabric, seconds: float, tick: Callable[[float], None]) -> tuple[RunRecord, list[FlowRecord]]:
    """Let four hosts send to one."""
    return perform(fabric, Run(TREE, Plan(INCAST, seconds), "test", CFR, 1, Scale(RATE, seconds)), tick)


class Enough:
    """Looks from a moment of a run on, twice a second, whether the arbiter has granted enough cells."""

    def __init__(self, fabric: EmulatedFabric, since: float) -> None:
        self.reached = False
        self._fabric, self._due = fabric, since

    def __call__(self, elapsed: float) -> None:
        if self.reached or elapsed < self._due:
            return
        self._due = elapsed + 0.5
        assert self._fabric.arbiter is not None
        with suppress(httpx.TransportError):  # it has just been started
            self.reached = self._fabric.arbiter.metrics()["sopa_arbiter_granted_cells_total"] > 100


def test_hosts_send_in_slots_and_go_on_when_the_arbiter_dies_and_comes_back() -> None:
    def main() -> int:
        with EmulatedFabric(TREE, CFR, RATE) as fabric:
            enough = Enough(fabric, 2.0)
            record, flows = run(fabric, 4.0, enough)
            port = fabric.lab.interface(TREE.edge_of(RECEIVER), TREE.port(TREE.edge_of(RECEIVER), RECEIVER))
            waiting = sorted(record.queues.get(port, [0]))
            assert record.options["slot_ms"] == 6.4
            assert enough.reached
            assert waiting[len(waiting) // 2] <= 8  # TCP alone: some twenty packets for each of the flows
            assert sum(flow.retransmits for flow in flows) < 0.02 * sum(flow.packets for flow in flows)

            steps = iter((1.0, 3.0))
            due = next(steps)
            again = Enough(fabric, 4.0)

            def killed_and_started_again(elapsed: float) -> None:
                nonlocal due
                if due == float("inf"):
                    again(elapsed)
                if elapsed < due:
                    return
                assert fabric.arbiter is not None
                if due == 1.0:
                    fabric.arbiter.stop(signal.SIGKILL)
                else:
                    fabric.arbiter.start()
                due = next(steps, float("inf"))

            _, flows = run(fabric, 10.0, killed_and_started_again)
            assert again.reached  # since it came back
            assert all(flow.bytes > 0 for flow in flows)
            assert sum(flow.mbit for flow in flows) > 0.25 * RATE  # on a busy machine
        return 0

    assert isolated(main) == 0


def test_sopa_lab_has_an_arbiter_that_grants_to_every_host(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("h0_0_2 ping -c 1 h2_0_2\nsh sopa agents\n")
    command = [sys.executable, "-m", "sopa_ryu.cli", "lab", "--policy=cfr", f"--script={script}", f"--rate={RATE:g}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "waiting until the arbiter grants slots to every host" in done.stderr
    assert "1 packets transmitted, 1 received" in done.stderr
    assert done.stdout.count(" cfr ") == TREE.host_count


def test_sopa_lab_rejects_what_slots_contradict() -> None:
    for option, problem in (("--no-limit", "needs links with a rate"), ("--carrier=option", "leave out --carrier")):
        command = [sys.executable, "-m", "sopa_ryu.cli", "lab", "--policy=cfr", option]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert problem in " ".join(done.stderr.split())
