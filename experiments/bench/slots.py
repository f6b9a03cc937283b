"""CFR: the arbiter's library by itself, and slots in the lab beside TCP without them, with and without faults."""

from __future__ import annotations

import random
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from experiments.bench.frame import Results, in_lab, planned, say
from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.measurement.capture import LinkCapture
from experiments.emulation.measurement.slot_check import SlotCheck, check, read_capture
from experiments.emulation.slot_arbiter import DatagramRelay, slot_ms
from experiments.schemes import named
from experiments.workloads import Scale
from sopa_ryu.arbiter.allocation import Allocation
from sopa_ryu.arbiter.budgets import capacities
from sopa_ryu.arbiter.build import SOURCES, build, build_program
from sopa_ryu.arbiter.schedule import Timing
from sopa_ryu.channel.slots import PORT
from topologies import Clos, Failures, FatTree, Switch

TREE = FatTree(4)
RATE_MBIT = 4.0
SEED = 1

# -- the library ----------------------------------------------------------------------------------------------------------

PROGRAM = Path(__file__).with_name("arbiter.cc")
LIBRARY = sorted(file for file in SOURCES.glob("*.cc") if file.name != "arbiter_abi.cc")
LOAD, OVERLOAD = 0.9, 1.1
LIMIT_NS = {4: 12.0, 64: 2.0}
"""Of timeslots, for each MTU, by slots of a batch."""
LIMIT_PATH_NS, LEAST_OF_BEST = 45.0, 0.95
MTU, CELL = 1500, 64_000
MTU_US, CELL_US = 12.304, 524.0
"""What a host's link of 1 Gbit/s needs for a slot: 1,538 bytes with preamble and gap; 43 such packets for 64,000 bytes."""
FASTPASS = {
    "fastpass_published": "2.21 Tbit/s on 8 cores (Perry et al., SIGCOMM 2014): 43 ns of a core per MTU, timeslots alone",
    "fastpass_measured": "its allocator of 2013, compiled by GCC 12, on 2 busy cores: 1.04 us a slot of 128 MTUs, 8.1 ns each",
}


def arbiter() -> Results:
    """Measure timeslots, paths and both by a program in C++ (``arbiter.cc``), on one core.

    The medians over batches: what was ``carried`` of the hosts' links; ``of_best`` is the share of the most that batches could
    carry, ``without`` counts cells without a path. ``without_a_path`` has the shares of such cells where something has failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "arbiter"
        build_program(program, [PROGRAM, *LIBRARY])
        return {**_timeslots(program), **_paths(program), **_real_time(program), **_failures(), **FASTPASS}


def _timeslots(program: Path) -> Results:
    results: Results = {}
    for hosts in (256, 3456):
        for batch, limit in LIMIT_NS.items():
            figures = _run(program, "allocation", hosts, LOAD, batch, "min-max-min", 12_800)
            results[f"timeslots_{hosts}_hosts_batch_{batch}"] = {**figures, "limit_ns": limit}
    for order in ("min-max-min", "alternating", "smallest"):
        figures = _run(program, "allocation", 256, OVERLOAD, 4, order, 20_000)
        results[f"saturated_{order}"] = {**figures, "least_of_best": LEAST_OF_BEST}
    return results


def _paths(program: Path) -> Results:
    slots = {8: 1000, 16: 200, 24: 60, 48: 10}
    results: Results = {f"paths_k{k}": _run(program, "paths", k, count) for k, count in slots.items()}
    results["paths_k24"]["limit_ns"] = LIMIT_PATH_NS
    return results


def _real_time(program: Path) -> Results:
    return {
        "both_k8_mtu": {**_run(program, "whole", 8, LOAD, 4, MTU, 40_000), "slot_us": MTU_US},
        "both_k24_cells_of_64_kb": {**_run(program, "whole", 24, 0.5, 4, CELL, 2000), "slot_us": CELL_US},
    }


def _failures() -> Results:
    """Return the share of cells that had a slot and no path, by what is not there."""
    build()
    small, large = FatTree(4), FatTree(8)
    links = [large.name(link) for link in large.switch_links()]
    cases = {
        "a link above an edge switch, k=4": (small, ["e0_0-a0_0"]),
        "a link of a core switch, k=4": (small, ["a0_0-c0_1"]),
        "an aggregation switch, k=4": (small, ["a0_0"]),
        "a core switch, k=4": (small, ["c0_0"]),
        "a link of a core switch, k=8": (large, ["a0_0-c0_1"]),
        "5% of all links, k=8": (large, random.Random(3).sample(links, len(links) // 20)),
        "half of the links above aggregation switches, 8 pods": (Clos(8, 4, 4, 8, 4), []),
    }
    shares = {name: _share_without(Failures(tree, dict.fromkeys(failed, "down"))) for name, (tree, failed) in cases.items()}
    return {"without_a_path": shares}


def _share_without(failures: Failures) -> float:
    hosts, draw = failures.tree.host_count, random.Random(1)
    allocation = Allocation(capacities(failures), batch=4)
    for _ in range(300):
        arrived = int(LOAD * hosts * allocation.slots / 67 + draw.random())
        for _ in range(arrived):
            source, destination = draw.sample(range(hosts), 2)
            allocation.demand([(source, destination, draw.randrange(2, 133))])
        allocation.batch()
    cells = allocation.statistics()
    return round(cells.unplaced / (cells.granted + cells.unplaced), 4)


def _run(program: Path, *arguments: object) -> dict[str, float]:
    say(" ".join(map(str, arguments)))
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


# -- in the lab -----------------------------------------------------------------------------------------------------------

SECONDS = 10.0
WITH, WITHOUT = "cfr", ("sopa", "ecmp")
MAX_QUEUE = 2
"""Packets at a receiver's port that 99% of samples are not to exceed."""
MAX_LATE_MS = 0.6


@in_lab
def cfr() -> Results:
    """Run an incast and a permutation with slots and without.

    ``queue_99``: the packets at receivers' ports that 99% of samples do not exceed; ``late_ms_99``: the time since a slot's
    beginning that 99% of packets do not exceed; ``shared_percent`` of links' slots in which packets of several pairs of hosts
    passed.
    """
    results: Results = {"limits": {"queue_99": MAX_QUEUE, "late_ms_99": MAX_LATE_MS}}
    for scheme in (WITH, *WITHOUT):
        with EmulatedFabric(TREE, named(scheme), RATE_MBIT) as fabric:
            for workload in ("incast", "permutation"):
                name = f"{workload}, {scheme}"
                results[name] = _measured(fabric, planned(TREE, workload, scheme, SEED, Scale(RATE_MBIT, SECONDS)))
                say(f"{name}: {results[name]}")
    for workload in ("incast", "permutation"):
        mbit = results[f"{workload}, {WITH}"]["mbit"]
        results[f"{workload}, of TCP without slots"] = {
            other: round(mbit / results[f"{workload}, {other}"]["mbit"], 3) for other in WITHOUT
        }
    return results


def _measured(fabric: EmulatedFabric, run: Run) -> Results:
    if run.scheme.slots is None:
        return _figures(fabric, *perform(fabric, run))
    with tempfile.TemporaryDirectory() as directory:
        capture = LinkCapture(Path(directory, "links.pcap"))
        with capture:
            record, flows = perform(fabric, run)
        slots = _checked(fabric, capture.file.read_bytes(), round(1e6 * slot_ms(run.scheme.slots, RATE_MBIT)))
    return _figures(fabric, record, flows) | {
        "late_ms_99": round(slots.late_ms(0.99), 3),
        "shared_percent": round(100 * slots.shared / max(1, slots.used), 3),
        "shared": slots.shared,
        "packets": slots.packets,
    }


def _figures(fabric: EmulatedFabric, record: RunRecord, flows: list[FlowRecord]) -> Results:
    receivers = {fabric.tree.host(flow.dst) for flow in flows}
    ports = [fabric.lab.interface(edge, fabric.tree.port(edge, host)) for host in receivers for edge in [fabric.tree.edge_of(host)]]
    samples = max(map(len, record.queues.values()), default=1)
    lengths = sorted(length for name in ports for length in record.queues.get(name, [0] * samples))
    return {
        "mbit": round(sum(flow.mbit for flow in flows), 2),
        "least": round(min(flow.mbit for flow in flows), 3),
        "retransmits": sum(flow.retransmits for flow in flows),
        "queue_99": lengths[int(0.99 * len(lengths))],
        "idle_percent": record.cpu_idle_percent,
    }


def _checked(fabric: EmulatedFabric, capture: bytes, slot_ns: int) -> SlotCheck:
    index = socket.if_nametoindex
    zero = time.time_ns() - time.monotonic_ns()
    hosts = {index(name): address for name, address in _host_ports(fabric)}
    return check(read_capture(capture), hosts, map(index, _switch_ports(fabric)), slot_ns, zero)


def _host_ports(fabric: EmulatedFabric) -> Iterator[tuple[str, int]]:
    """Yield the interfaces of edge switches to hosts, each with the host's address."""
    tree = fabric.tree
    for host in tree.hosts():
        edge = tree.edge_of(host)
        yield fabric.lab.interface(edge, tree.port(edge, host)), int(tree.ip(host))


def _switch_ports(fabric: EmulatedFabric) -> Iterator[str]:
    for link in fabric.tree.switch_links():
        assert isinstance(link.lower, Switch)
        for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            yield fabric.lab.interface(node, fabric.tree.port(node, towards))


# -- with faults ----------------------------------------------------------------------------------------------------------

FAULTS_SECONDS = 18.0
KILLED, STARTED = 6.0, 12.0
SETTLED = 2.0
"""Seconds from a run's beginning that do not count: TCP's slow start."""
LOST = 0.05
FAULTS_LIMITS = {"of_sopa_after_two_leases": 0.95, "slots_again_seconds": 1.0, "of_goodput_with_lost_grants": 0.94}


@in_lab
def cfr_faults() -> Results:
    """Kill the arbiter under a permutation and start it again; run the same with 5% of the grants lost. Mbit/s are a flow's."""
    results: Results = {"limits": FAULTS_LIMITS}
    with EmulatedFabric(TREE, named("sopa"), RATE_MBIT) as fabric:
        sopa, _ = perform(fabric, planned(TREE, "permutation", "sopa", SEED, Scale(RATE_MBIT, FAULTS_SECONDS)))
    say("sopa: done; now the arbiter is killed and started again, then a run without faults, then one without some grants")
    run = planned(TREE, "permutation", "cfr", SEED, Scale(RATE_MBIT, FAULTS_SECONDS))
    scheme = run.scheme
    assert scheme.slots is not None
    lease = Timing.of(slot_ms(scheme.slots, RATE_MBIT)).lease_ms / 1000
    with EmulatedFabric(TREE, scheme, RATE_MBIT) as fabric:
        steps = _Steps(fabric)
        killed, _ = perform(fabric, run, steps.tick)
        undisturbed, _ = perform(fabric, run)
        with DatagramRelay(("127.0.0.1", PORT), LOST, SEED) as relay:
            fabric.arbiter_at = f"{relay.address[0]}:{relay.address[1]}"
            lossy, flows = perform(fabric, run)
            results["grants"] = {"sent": relay.answers, "lost": relay.lost}
    without = KILLED + 2 * lease, STARTED
    results["lease_seconds"] = lease
    results["sopa"] = {
        "without": _mbit(sopa, *without),
        "whole": _mbit(sopa, SETTLED, FAULTS_SECONDS),
        "idle": sopa.cpu_idle_percent,
    }
    results["killed"] = {
        "before": _mbit(killed, SETTLED, KILLED),
        "two leases after": _mbit(killed, *without),
        "back": _mbit(killed, STARTED + 1, FAULTS_SECONDS),
        "slots_again_seconds": steps.again,
        "flows_that_stood_still": sum(not any(series[_at(killed, without[0]) :]) for series in killed.series.values()),
        "idle": killed.cpu_idle_percent,
    }
    results["undisturbed"] = _mbit(undisturbed, SETTLED, FAULTS_SECONDS)
    results["lost grants"] = {
        "mbit": _mbit(lossy, SETTLED, FAULTS_SECONDS),
        "retransmits": sum(flow.retransmits for flow in flows),
        "idle": lossy.cpu_idle_percent,
    }
    results["of_sopa_after_two_leases"] = round(results["killed"]["two leases after"] / results["sopa"]["without"], 3)
    results["of_goodput_with_lost_grants"] = round(results["lost grants"]["mbit"] / results["undisturbed"], 3)
    return results


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


def _at(record: RunRecord, seconds: float) -> int:
    return round(1000 * seconds / record.series_ms)


def _mbit(record: RunRecord, since: float, until: float) -> float:
    """Return the mean of all flows' Mbit/s between two times of a run; a series ends with the last byte."""
    first, last = _at(record, since), _at(record, until)
    return round(statistics.fmean(sum(series[first:last]) / (last - first) for series in record.series.values()), 3)
