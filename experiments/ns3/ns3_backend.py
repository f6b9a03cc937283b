"""Runs of experiments in the simulator. They are independent, so all processors are used, or all workers of a scheduler."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing

import click

from experiments.core.campaign import Campaign, line, progress_bar, resume_hint
from experiments.core.records import FlowRecord, ResultsError, RunRecord
from experiments.core.run import Run
from experiments.ns3.cache import Cache, directory
from experiments.ns3.program import SimulatorError, build
from experiments.ns3.scheduled import Ended, scheduled
from experiments.ns3.simulate import simulate

Tick = Callable[[int, float], None]
"""Receives the number of a run, and the share of it that is done."""


def run_simulations(campaigns: Sequence[Campaign], scheduler: str | None = None) -> int:
    """Run every missing simulation, in the campaigns' order as processors become free, and return the exit status.

    Args:
        scheduler: The address of a Dask scheduler whose workers simulate; by default processes of this machine do.
    """
    missing = [(campaign, run) for campaign in campaigns for run in campaign.missing()]
    say, bar = progress_bar()
    progress = _Progress([weight(run) for _, run in missing])
    done = 0
    with bar, ExitStack() as stack:
        whole = bar.add_task(", ".join(dict.fromkeys(one.workload for one in campaigns)), total=1.0)

        def tick(number: int, share: float) -> None:
            bar.update(whole, completed=progress.reached(number, share))

        runs, cache = [run for _, run in missing], Cache(directory())
        try:
            if scheduler is None:
                build(say.print)
                ended = stack.enter_context(closing(_run_here(runs, cache, tick)))
            else:
                workers = stack.enter_context(scheduled(scheduler))
                ended = stack.enter_context(closing(workers.run_all(runs, cache, tick)))
            for number, (record, flows) in ended:
                tick(number, 1.0)
                campaign = missing[number][0]
                campaign.results.add(record, flows)
                done += 1
                where = f"{campaign.workload}, {campaign.tree.title}: " if len(campaigns) > 1 else ""
                took = f"{record.options['processor_seconds']:.1f} s"
                say.print(f"{where}{line(record, flows)}; {took}; {done} of {len(missing)}{progress.left()}")
        except (SimulatorError, ResultsError) as error:
            status, text = 1, f"Error: {error}."
        except KeyboardInterrupt:
            status, text = 130, "interrupted."
        else:
            return 0
    click.echo(f"{text} {resume_hint(done, len(missing))}", err=True)
    return status


def _run_here(runs: Sequence[Run], cache: Cache, tick: Tick) -> Ended:
    """Yield the number and the records of each run as it ends. Raises as `simulate`; no process is left."""
    processes: list[subprocess.Popen[str]] = []

    def one(number: int, run: Run) -> tuple[RunRecord, list[FlowRecord]]:
        seconds = run.scale.seconds
        return simulate(run, cache, lambda now: tick(number, min(1.0, now / seconds)), processes.append)

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        waiting = {workers.submit(one, number, run): number for number, run in enumerate(runs)}
        try:
            for ready in as_completed(waiting):
                yield waiting.pop(ready), ready.result()  # not kept: that of thousands of flows has tens of MB
        finally:
            workers.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()


def weight(run: Run) -> float:
    """Return the expected work of a run: the bytes to send, because time is proportional to packets."""
    link = run.scale.bytes_of()
    return float(sum(link if one.bytes is None else one.bytes for one in run.plan.transfers))


class _Progress:
    """The progress of all runs together, and the remaining time."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights
        self._shares = [0.0] * len(weights)
        self._total = sum(weights) or 1.0
        self._begin = time.monotonic()
        self._lock = threading.Lock()  # each run has a thread of its own

    def reached(self, number: int, share: float) -> float:
        """Record the progress of a run, and return that of all runs."""
        with self._lock:
            self._shares[number] = share
            return self._now()

    def left(self) -> str:
        """Return the remaining time as a suffix for messages; empty at the end."""
        with self._lock:
            now = self._now()
        seconds = (time.monotonic() - self._begin) * (1 - now) / now if now else 0.0
        if now >= 1 or seconds < 1:
            return ""
        return f", about {seconds / 60:.0f} minutes left" if seconds > 90 else f", about {seconds:.0f} s left"

    def _now(self) -> float:
        return sum(weight * share for weight, share in zip(self._weights, self._shares, strict=True)) / self._total
