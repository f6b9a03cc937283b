"""Runs of an experiment in the lab: the transfers of a workload over the fabric of a scheme, with all measurements."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby

import click

from experiments.core.campaign import Campaign, line, progress_bar, resume_hint
from experiments.core.machine import CpuIdle, describe
from experiments.core.records import FlowRecord, ResultsError, RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import DRAIN_SECONDS, EmulatedFabric
from experiments.emulation.measurement.capture import Capture, TracedFlow
from experiments.emulation.measurement.queue_lengths import QueueLengths
from experiments.emulation.measurement.tcp_statistics import tcp_counters
from experiments.emulation.traffic.transfers import SERIES_SECONDS, TransferError, TransferResult, Transfers
from experiments.workloads import BadLink
from sopa_ryu.agent.kernel.netns import cookie, inside
from topologies import Host, Level

QUEUE_SECONDS = 0.05
MAX_SERIES = 64
"""Maximum number of flows of a run whose throughput over time is recorded."""
MIN_IDLE_PERCENT = 10.0
"""Minimum idle time of the processors. Below it, results are limited by the machine instead of the scheme."""


def perform(
    fabric: EmulatedFabric, run: Run, tick: Callable[[float], object] = lambda _seconds: None
) -> tuple[RunRecord, list[FlowRecord]]:
    """Configure the hosts, execute a run, and restore the hosts, as `Transfers.run` calls ``tick``.

    Raises `TransferError`, `ProcessError` or `LabError` if something does not start.
    """
    fabric.prepare(run.seed, run.plan.core_rate)
    try:
        return _LabRun(fabric, run).perform(tick)
    finally:
        fabric.finish()


class _LabRun:
    def __init__(self, fabric: EmulatedFabric, run: Run) -> None:
        self.fabric, self.run, self.plan, self.tree = fabric, run, run.plan, run.tree
        self._events: list[tuple[float, str]] = []
        self._begin = 0.0
        self._failed_at: float | None = None
        self._bad_at = {one: one.after for one in self.plan.bad}
        self._cookies: dict[Host, int] = {}

    def perform(self, tick: Callable[[float], object]) -> tuple[RunRecord, list[FlowRecord]]:
        fabric, lab, scheme = self.fabric, self.fabric.lab, self.run.scheme
        family = self.tree.families[self.plan.family == 6]
        multipath, congestion = scheme.subflows > 0, fabric.congestion
        transfers = Transfers(
            self.tree, self.plan, lab.netns, self.run.seed, multipath=multipath, family=family, congestion=congestion
        )
        traced = [transfers.results[number] for number in self.plan.traced]
        capture = Capture(
            self.tree,
            lab.netns,
            lambda host: lab.interface(host, 0),
            [TracedFlow(one.number, one.transfer.src, one.transfer.dst, one.source_port) for one in traced],
        )
        queues = QueueLengths(fabric.ports())
        self._cookies = {host: self._cookie(host) for host in self.tree.hosts()}
        failing = self.plan.failed if self.plan.fail_after is None else ()
        try:
            for name in failing:
                fabric.fail(name, True)
            if failing:
                fabric.await_settled(failing)
            hosts = [lab.netns(host) for host in self.tree.hosts()]
            version, marked_before = fabric.version(), fabric.marked()
            before, core_before = tcp_counters(hosts), lab.port_packets(Level.CORE)
            idle = CpuIdle()
            capture.start()
            self._begin = time.time()
            transfers.run(self._actions(queues), tick)
            percent = idle.percent()
            counters = tcp_counters(hosts)
            counters.subtract(before)
            counters.update(fabric.mcs_packets())
            truth = [{**one.record(), "at": self._bad_at[one], **fabric.bad_links.truth(one)} for one in self.plan.bad]
            capture.stop()
            time.sleep(DRAIN_SECONDS)
            core = {name: count - core_before[name] for name, count in lab.port_packets(Level.CORE).items()}
            marked = {name: count - marked_before[name] for name, count in fabric.marked().items()}
            self._events += fabric.changes_since(version, self._begin) + fabric.paths_left_since(self._begin)
        finally:
            capture.stop()
            queues.close()
            if self.plan.bad:
                fabric.bad_links.heal(self.plan.bad)
            for name in self.plan.failed:
                fabric.fail(name, False)
            if self.plan.failed:
                fabric.await_settled()
        valid = percent >= MIN_IDLE_PERCENT
        flows = [self._flow(one, valid) for one in transfers.results if one.started is not None]
        entered = counters["TcpExtTCPSackRecovery"] + counters["TcpExtTCPRenoRecovery"]
        # Not every kernel runs the program each time (docs/platform.md, chapter 4).
        counters["FastRetransmitsOfUnknownFlows"] = entered - sum(flow.fast_retransmits for flow in flows)
        subflows = sum(one.sender.subflows for one in transfers.results if one.sender)
        series = {str(one.number): [round(mbit, 3) for mbit in one.series] for one in transfers.results if one.series}
        record = RunRecord(
            scheme=scheme.name,
            seed=self.run.seed,
            valid=valid,
            cpu_idle_percent=round(percent, 1),
            machine=describe(),
            command=shlex.join(["sopa", *sys.argv[1:]]),
            options={**self.fabric.options(), "subflows_seen": subflows},
            counters={name: count for name, count in sorted(counters.items()) if count},
            core_packets=core,
            marked={name: count for name, count in marked.items() if count},
            queue_ms=1000 * QUEUE_SECONDS,
            queues={name: lengths for name, lengths in queues.series.items() if any(lengths)},
            cwnd={str(one.number): one.cwnd for one in transfers.results if one.cwnd},
            arrivals={str(flow.number): capture.arrivals(flow, self._begin) for flow in capture.flows},
            series_ms=1000 * SERIES_SECONDS,
            series=series if len(transfers.results) <= MAX_SERIES else {},
            failed_at=self._failed_at,
            events=sorted(self._events),
            collective=self.run.collective(flows),
            bad=truth,
        )
        return record, flows

    def _cookie(self, host: Host) -> int:
        with inside(self.fabric.lab.netns(host)):
            return cookie()

    def _actions(self, queues: QueueLengths) -> list[tuple[float, Callable[[], None]]]:
        actions: list[tuple[float, Callable[[], None]]] = [
            (number * QUEUE_SECONDS, queues.sample) for number in range(round(self.plan.seconds / QUEUE_SECONDS))
        ]
        if self.plan.fail_after is not None:
            actions.append((self.plan.fail_after, self._fail))
        actions += [(one.after, partial(self._make_bad, one)) for one in self.plan.bad]
        return actions

    def _make_bad(self, one: BadLink) -> None:
        self.fabric.bad_links.begin(one, self.run.seed)
        self._bad_at[one] = round(time.time() - self._begin, 3)
        self._events.append((self._bad_at[one], str(one)))

    def _fail(self) -> None:
        for name in self.plan.failed:
            self._failed_at = round(time.time() - self._begin, 3)
            self._events.append((self._failed_at, f"{name} fails"))
            self.fabric.fail(name, True)

    def _flow(self, one: TransferResult, valid: bool) -> FlowRecord:
        assert one.started is not None
        sender, receiver = one.sender, one.receiver
        return self.run.flow_record(
            "lab",
            one.number,
            bytes=one.received,
            seconds=round(one.seconds, 6),
            mbit=round(one.mbit, 6),
            completed=one.completed,
            start=round(one.started, 6),
            packets=receiver.data_in if receiver else 0,
            reordered=receiver.out_of_order if receiver else 0,
            retransmits=sender.retransmits if sender else 0,
            spurious=sender.spurious if sender else 0,
            fast_retransmits=self._fast_retransmits(one),
            timeouts=sender.timeouts if sender else 0,
            rtt_ms=sender.rtt_us / 1000 if sender else 0.0,
            valid=valid,
        )

    def _fast_retransmits(self, one: TransferResult) -> int:
        """Return the fast retransmits of a connection. Ports of subflows are unknown: with subflows, those of the host."""
        host = one.transfer.src
        port = None if self.fabric.scheme.subflows else one.source_port
        return self.fabric.fast_recoveries.entered(self._cookies[host], self.tree.ip(host), port)


OVERHEAD_SECONDS = 7.0
"""Duration of a run besides its traffic, for the progress bar: start and end of agents."""


def run_in_lab(campaign: Campaign) -> int:
    """Run everything that is missing, inside `topologies.lab.isolation.isolated`, and return the exit status."""
    missing = campaign.missing()
    seconds = campaign.scale.seconds
    each, done = seconds + OVERHEAD_SECONDS, 0
    say, bar = progress_bar()

    def tick(before: int, now: float) -> None:
        bar.update(task, completed=before * each + min(now, seconds))

    with bar:
        task = bar.add_task("", total=len(missing) * each)
        for scheme, runs in groupby(missing, key=lambda run: run.scheme):
            bar.update(task, description=f"{scheme.name}: starting the fabric")
            try:
                with EmulatedFabric(
                    campaign.tree, scheme, campaign.scale.rate_mbit, queue_packets=campaign.queue_packets, carrier=campaign.carrier
                ) as fabric:
                    for run in runs:
                        bar.update(task, description=f"{scheme.name}, seed {run.seed}", completed=done * each)
                        record, flows = perform(fabric, run, partial(tick, done))
                        campaign.results.add(record, flows)
                        done += 1
                        busy = "" if record.valid else ": INVALID, the processors were too busy"
                        say.print(f"{line(record, flows)}, processor idle {record.cpu_idle_percent:.0f}%{busy}")
            except (TransferError, ResultsError) as error:
                click.echo(f"Error: {scheme.name}: {error}. {resume_hint(done, len(missing))}", err=True)
                return 1
            except KeyboardInterrupt:
                click.echo(f"interrupted. {resume_hint(done, len(missing))}", err=True)
                return 130
    return 0
