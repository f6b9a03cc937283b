"""An experiment's runs in the simulator: independent of each other, so on all processors at once."""

from __future__ import annotations

import os
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial

import click

from experiments.campaign import Campaign, kept, line, progress_bar
from experiments.records import FlowRecord, ResultsError, RunRecord
from experiments.schemes import Scheme

from .program import SimulatorError, build
from .simulate import simulate


def run_simulations(campaign: Campaign) -> int:
    """Do every run that is missing; the exit status."""
    missing = campaign.missing()
    say, bar = progress_bar()
    build(say.print)
    done, seconds = 0, campaign.scale.seconds
    with bar, ThreadPoolExecutor(os.cpu_count()) as workers:
        whole = bar.add_task(f"{campaign.workload}, k={campaign.tree.k}", total=len(missing) * seconds)
        passed: dict[tuple[str, int], float] = {}
        reporting = threading.Lock()
        processes: list[subprocess.Popen[str]] = []

        def tick(scheme: str, seed: int, now: float) -> None:
            with reporting:  # each run has a thread of its own
                passed[scheme, seed] = min(now, seconds)
                bar.update(whole, completed=sum(passed.values()))

        def one(scheme: Scheme, seed: int) -> tuple[RunRecord, list[FlowRecord]]:
            found = simulate(
                campaign.tree,
                campaign.plans[seed],
                campaign.workload,
                scheme,
                seed,
                campaign.scale,
                campaign.queue_packets,
                partial(tick, scheme.name, seed),
                processes.append,
            )
            tick(scheme.name, seed, seconds)
            return found

        waiting: list[Future[tuple[RunRecord, list[FlowRecord]]]] = [workers.submit(one, *run) for run in missing]
        try:
            for ready in as_completed(waiting):
                record, flows = ready.result()
                campaign.results.add(record, flows)
                done += 1
                say.print(f"{line(record, flows)}; {record.options['processor_seconds']:.1f} s")
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
    click.echo(f"{text} {kept(done, len(missing))}", err=True)
    return status
