"""``make soak-cluster``: faults of controllers, relays and etcd's nodes in a lab, with everything checked after each."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from tests.faults.cluster_harness import FaultyCluster
from tests.faults.cluster_plan import Step, plan
from tests.faults.harness import Wrong
from topologies import Clos, FatTree
from topologies.lab.isolation import isolated

LOG_LINES = 30


def run(tree: Clos, steps: Sequence[Step], origin: str, report: Path | None = None, logs: Path | None = None) -> int:
    """Do the steps in a lab of their own (inside `isolated`); the exit status, 0 if nothing was ever wrong."""
    total, done, started = sum(len(step.faults) for step in steps), 0, time.monotonic()
    kinds: Counter[str] = Counter()
    with FaultyCluster(tree) as lab:
        for number, step in enumerate(steps, 1):
            try:
                lab.run(step)
            except Wrong as wrong:
                _tell_wrong(lab, origin, steps[:number], wrong)
                if logs is not None:
                    logs.mkdir(parents=True, exist_ok=True)
                    for log in (*lab.its.directory.glob("*.log"), *lab.its.directory.glob("*.flows")):
                        shutil.copy(log, logs)
                return 1
            done += len(step.faults)
            kinds.update(f"{fault.kind} {fault.role}" for fault in step.faults)
            print(
                f"{done:>5} of {total} faults, {time.monotonic() - started:6.0f} s, settled in {lab.settle_seconds[-1]:4.1f} s: "
                f"{step}",
                flush=True,
            )
        summary = {
            "origin": origin,
            "k": tree.k,
            "faults": dict(sorted(kinds.items())),
            "seconds": round(time.monotonic() - started),
            "settle_median_seconds": round(statistics.median(lab.settle_seconds), 1),
            "settle_worst_seconds": round(max(lab.settle_seconds), 1),
            **lab.histories(),
        }
    text = json.dumps(summary, indent=1)
    print(text, flush=True)
    if report is not None:
        report.write_text(text + "\n")
    return 0


def _tell_wrong(lab: FaultyCluster, origin: str, steps: Sequence[Step], wrong: Wrong) -> None:
    """Print what is wrong, what was done, and the end of all logs."""
    print(f"WRONG after {steps[-1]} ({origin}):\n{wrong}\n", flush=True)
    print("what was done (replay it with --replay FILE):", flush=True)
    for step in steps:
        print(f"{step}")
    for name, part in lab.cluster.parts.items():
        print(f"--- {name} {lab.cluster.state(name)}\n{part.log_tail(LOG_LINES)}")
    if lab.its.agent is not None:
        print(f"--- agents\n{lab.its.agent.log_tail(LOG_LINES)}", flush=True)


@click.command()
@click.option("--faults", type=click.IntRange(1), default=500, show_default=True, help="How many faults.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides all of them.")
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Replay the steps that a failing run has printed, instead of drawing faults.")  # fmt: skip
@click.option("--json", "report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the summary to FILE, too.")  # fmt: skip
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Keep all logs in DIR if something is wrong; otherwise they go with the lab.")  # fmt: skip
def main(faults: int, seed: int, replay: Path | None, report: Path | None, logs: Path | None) -> None:
    """Kill, stop and cut off controllers, relays and etcd's nodes of a k=4 lab while links fail, and check everything.

    Clocks go back, a disk is full, Open vSwitch is restarted under a leader that stands still. After each step one leader has all
    switches and agents follow it. At no time did a switch or an agent take a lower term or version after a higher one, or one
    that no leader had committed. It ends at the first that is wrong, with the list of what was done.
    """
    tree = FatTree(4)
    if replay is not None:
        steps, origin = [Step.parse(line) for line in replay.read_text().splitlines() if line.strip()], str(replay)
    else:
        steps, origin = list(plan(tree, seed, faults)), f"seed {seed}"
    resolved, kept = report and report.resolve(), logs and logs.resolve()
    sys.exit(isolated(lambda: run(tree, steps, origin, resolved, kept)))


if __name__ == "__main__":
    main(prog_name="make soak-cluster")
