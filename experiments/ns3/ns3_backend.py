"""Runs of experiments in the simulator. They are independent, so all processors are used."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import click

from experiments.core.campaign import Campaign, line, progress_bar, resume_hint
from experiments.core.records import FlowRecord, ResultsError, RunRecord
from experiments.core.run import Run
from experiments.ns3.cache import Cache, directory
from experiments.ns3.program import SimulatorError, build
from experiments.ns3.simulate import simulate


def run_simulations(campaigns: Sequence[Campaign]) -> int:
    """Run every missing simulation, in the campaigns' order as processors become free, and return the exit status."""
    missing = [(campaign, run) for campaign in campaigns for run in campaign.missing()]
    say, bar = progress_bar()
    build(say.print)
    cache = Cache(directory())
    progress = _Progress([weight(run) for _, run in missing])
    done = 0
    with bar, ThreadPoolExecutor(os.cpu_count()) as workers:
        whole = bar.add_task(", ".join(dict.fromkeys(one.workload for one in campaigns)), total=1.0)
        processes: list[subprocess.Popen[str]] = []

        def tick(number: int, share: float) -> None:
            bar.update(whole, completed=progress.reached(number, share))

        def one(number: int, run: Run) -> tuple[RunRecord, list[FlowRecord]]:
            seconds = run.scale.seconds
            found = simulate(run, cache, lambda now: tick(number, min(1.0, now / seconds)), processes.append)
            tick(number, 1.0)
            return found

        waiting: dict[Future[tuple[RunRecord, list[FlowRecord]]], Campaign] = {
            workers.submit(one, number, run): campaign for number, (campaign, run) in enumerate(missing)
        }
        try:
            for ready in as_completed(waiting):
                campaign = waiting[ready]
                record, flows = ready.result()
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
        finally:
            workers.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
    click.echo(f"{text} {resume_hint(done, len(missing))}", err=True)
    return status


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
