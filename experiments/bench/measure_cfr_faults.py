"""CFR in the lab when its arbiter is killed, or grants are lost: goodput beside SOPA's without slots."""

from __future__ import annotations

import signal
import statistics
import time
from typing import Any

import httpx

from experiments.bench.measure_cfr import RATE_MBIT, SEED
from experiments.bench.measuring import measured_in_lab, say
from experiments.core.records import RunRecord
from experiments.core.run import Run
from experiments.emulation.datagram_relay import DatagramRelay
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.slot_arbiter import slot_ms
from experiments.schemes import named
from experiments.workloads import WORKLOADS, Scale
from sopa_ryu.arbiter.schedule import Timing
from sopa_ryu.channel.slots import PORT
from topologies import FatTree

TREE = FatTree(4)
SECONDS = 18.0
KILLED, STARTED = 6.0, 12.0
SETTLED = 2.0
"""Seconds from a run's beginning that do not count: TCP's slow start."""
LOST = 0.05
LIMITS = {"of_sopa_after_two_leases": 0.95, "slots_again_seconds": 1.0, "of_goodput_with_lost_grants": 0.94}


def measure() -> dict[str, Any]:
    """Kill the arbiter under a permutation and start it again; run the same with 5% of the grants lost.

    Returns:
        Mbit/s of a flow in the parts of each run, connections that moved nothing in a part, and their ``limits``.
    """
    return measured_in_lab(_inside)


def _inside() -> dict[str, Any]:
    found: dict[str, Any] = {"limits": LIMITS}
    with EmulatedFabric(TREE, named("sopa"), RATE_MBIT) as fabric:
        sopa, _ = perform(fabric, _run_of("sopa"))
    say(
        "sopa: done; now the arbiter is killed and started again, then a run without faults, then one without some grants"
    )
    scheme = named("cfr")
    assert scheme.slots is not None
    lease = Timing.of(slot_ms(scheme.slots, RATE_MBIT)).lease_ms / 1000
    with EmulatedFabric(TREE, scheme, RATE_MBIT) as fabric:
        steps = _Steps(fabric)
        killed, _ = perform(fabric, _run_of("cfr"), steps.tick)
        undisturbed, _ = perform(fabric, _run_of("cfr"))
        with DatagramRelay(("127.0.0.1", PORT), LOST, SEED) as relay:
            fabric.arbiter_at = f"{relay.address[0]}:{relay.address[1]}"
            lossy, flows = perform(fabric, _run_of("cfr"))
            found["grants"] = {"sent": relay.answers, "lost": relay.lost}
    without = KILLED + 2 * lease, STARTED
    found["lease_seconds"] = lease
    found["sopa"] = {
        "without": _mbit(sopa, *without),
        "whole": _mbit(sopa, SETTLED, SECONDS),
        "idle": sopa.cpu_idle_percent,
    }
    found["killed"] = {
        "before": _mbit(killed, SETTLED, KILLED),
        "two leases after": _mbit(killed, *without),
        "back": _mbit(killed, STARTED + 1, SECONDS),
        "slots_again_seconds": steps.again,
        "flows_that_stood_still": sum(not any(its[_at(killed, without[0]) :]) for its in killed.series.values()),
        "idle": killed.cpu_idle_percent,
    }
    found["undisturbed"] = _mbit(undisturbed, SETTLED, SECONDS)
    found["lost grants"] = {
        "mbit": _mbit(lossy, SETTLED, SECONDS),
        "retransmits": sum(flow.retransmits for flow in flows),
        "idle": lossy.cpu_idle_percent,
    }
    found["of_sopa_after_two_leases"] = round(found["killed"]["two leases after"] / found["sopa"]["without"], 3)
    found["of_goodput_with_lost_grants"] = round(found["lost grants"]["mbit"] / found["undisturbed"], 3)
    return found


class _Steps:
    """Kills the arbiter in a run, starts it again, and notes how long it takes until slots are granted."""

    def __init__(self, fabric: EmulatedFabric) -> None:
        self.again: float | None = None
        self._fabric, self._done, self._started = fabric, 0, 0.0

    def tick(self, elapsed: float) -> None:
        arbiter = self._fabric.arbiter
        assert arbiter is not None
        if self._done == 0 and elapsed >= KILLED:
            arbiter.stop(signal.SIGKILL)
            self._done = 1
        elif self._done == 1 and elapsed >= STARTED:
            arbiter.start()
            self._done, self._started = 2, time.monotonic()
        elif self._done == 2 and self.again is None:
            try:
                granted = arbiter.metrics()["sopa_arbiter_granted_cells_total"]
            except httpx.TransportError:
                return
            if granted:
                self.again = round(time.monotonic() - self._started, 2)


def _run_of(name: str) -> Run:
    scale = Scale(RATE_MBIT, SECONDS)
    return Run(TREE, WORKLOADS["permutation"].build(TREE, SEED, scale), "permutation", named(name), SEED, scale)


def _at(record: RunRecord, seconds: float) -> int:
    return round(1000 * seconds / record.series_ms)


def _mbit(record: RunRecord, since: float, until: float) -> float:
    """Return the mean of all flows' Mbit/s between two times of a run; a series ends with the last byte."""
    first, last = _at(record, since), _at(record, until)
    return round(statistics.fmean(sum(its[first:last]) / (last - first) for its in record.series.values()), 3)
