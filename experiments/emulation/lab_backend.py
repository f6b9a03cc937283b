"""Runs of experiments in the lab: one fabric after the other, each for all seeds of a scheme."""

from __future__ import annotations

from functools import partial
from itertools import groupby

import click

from experiments.core.campaign import Campaign, line, progress_bar, resume_hint
from experiments.core.records import ResultsError
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.traffic.tcp_connection import TransferError

OVERHEAD_SECONDS = 6.0
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
                    campaign.tree,
                    scheme,
                    campaign.scale.rate_mbit,
                    queue_packets=campaign.queue_packets,
                    carrier=campaign.carrier,
                ) as fabric:
                    for run in runs:
                        bar.update(task, description=f"{scheme.name}, seed {run.seed}", completed=done * each)
                        record, flows = perform(fabric, run, partial(tick, done))
                        campaign.results.add(record, flows)
                        done += 1
                        busy = "" if record.valid else ": INVALID, the processors were too busy"
                        say.print(f"{line(record, flows)}; processor idle {record.cpu_idle_percent:.0f}%{busy}")
            except (TransferError, ResultsError) as error:
                click.echo(f"Error: {scheme.name}: {error}. {resume_hint(done, len(missing))}", err=True)
                return 1
            except KeyboardInterrupt:
                click.echo(f"interrupted. {resume_hint(done, len(missing))}", err=True)
                return 130
    return 0
