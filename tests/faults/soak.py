"""``make soak``, and with ``--cluster`` ``make soak-cluster``: a number of faults in a lab, with everything checked after each."""

import json
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from tests.faults import cluster_plan, plan
from tests.faults.cluster_harness import FaultyCluster
from tests.faults.harness import FaultyLab
from topologies import Clos, FatTree
from topologies.fabric_file import load
from topologies.identity import PREFIX6
from topologies.lab.isolation import isolated

HOLDINGS_EVERY = 50
"""Steps between two looks at what controller, agents and kernel hold; the next is while nothing is broken."""


def run(
    lab: FaultyLab,
    steps: Sequence[plan.Step | cluster_plan.Step],
    origin: str,
    report: Path | None = None,
    logs: Path | None = None,
) -> int:
    """Do the steps in a lab (inside `isolated`); the exit status, 0 if nothing was ever wrong."""
    total, done, looked, started = sum(len(step.begun) for step in steps), 0, 0, time.monotonic()
    with lab:
        before = lab.holdings()
        for number, step in enumerate(steps, 1):
            try:
                lab.do(step)
            except AssertionError as wrong:  # `Wrong`, or what a step has waited for in vain
                _tell_wrong(lab, origin, steps[:number], wrong, logs)
                return 1
            done += len(step.begun)
            took = f"{lab.settle_seconds[-1]:.1f} s" if lab.settle_seconds else "-"
            passed = time.monotonic() - started
            print(f"{done:>5} of {total} faults, {passed:6.0f} s, settled in {took:>6}: {step}", flush=True)
            if number - looked >= HOLDINGS_EVERY and not lab.active:
                looked = number
                print(f"      {json.dumps(lab.holdings())}", flush=True)
        summary = {
            "origin": origin,
            "fabric": lab.tree.title,
            "k": lab.tree.k,
            "faults": dict(sorted(Counter(kind for step in steps for kind in step.begun).items())),
            "steps": len(steps),
            "seconds": round(time.monotonic() - started),
            "settle_median_seconds": round(statistics.median(lab.settle_seconds), 2),
            "settle_worst_seconds": round(max(lab.settle_seconds), 2),
            **lab.checked(),
            "before": before,
            "after": lab.holdings(),
        }
    text = json.dumps(summary, indent=1)
    print(text, flush=True)
    if report is not None:
        report.write_text(text + "\n")
    return 0


def _tell_wrong(lab: FaultyLab, origin: str, steps: Sequence[object], wrong: AssertionError, logs: Path | None) -> None:
    print(f"WRONG ({origin}), after step {len(steps)}:\n{wrong}\n\nTo see it again, put these lines into a file:")
    print(*(f"  {step}" for step in steps), sep="\n")
    print("and run it again with --replay FILE, and the same --k or --fabric\n")
    written = sorted(lab.its.directory.glob("*.log"))
    for log in written:
        print(f"--- {log.name}\n{log.read_text()[-4000:]}")
    switches = (lab.its.lab.ovs.directory / "ovs-vswitchd.log").read_text().splitlines()
    print("--- warnings of Open vSwitch", *[line for line in switches if "|WARN|" in line][-40:], sep="\n", flush=True)
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        for log in (*written, *lab.its.directory.glob("*.flows")):
            shutil.copy(log, logs)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--cluster", is_flag=True, help="Three controllers, relays and etcd's nodes, whose faults these are.")
@click.option("--faults", type=click.IntRange(1), default=1000, show_default=True, help="How many things break.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides which, and in which order.")
@click.option("--k", type=int, default=4, show_default=True, help="Ports of every switch.")
@click.option("--fabric", type=FILE, help="A fabric file instead of a fat-tree of --k, as in tests/faults/fabrics.")
@click.option(
    "--without", type=click.Choice(list(plan.KINDS)), multiple=True, metavar="KIND",
    help="A kind of fault to leave out; repeatable. Without `controller` and `clock` the controller is never restarted.",
)  # fmt: skip
@click.option("--replay", type=FILE, help="Replay the steps that a failing run has printed, instead of drawing faults.")
@click.option("--json", "report", type=click.Path(dir_okay=False, path_type=Path), help="Write the summary there, too.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Keep all logs there if something is wrong.")
def main(
    cluster: bool, faults: int, seed: int, k: int, fabric: Path | None, without: tuple[str, ...], replay: Path | None,
    report: Path | None, logs: Path | None,
) -> None:  # fmt: skip
    """Break and heal a lab's links, switches, controller and agents, or a cluster's parts, and check everything after each step.

    After each: exactly the pairs of hosts that the graph connects are connected, labelled and unlabelled; /paths and every
    agent's BPF maps hold exactly the graph's candidate paths; no switch holds a stale entry. Of a cluster: one leader has all
    switches, agents follow it, and at no time did a switch or an agent take a lower term or version after a higher one, or one
    that no leader had committed. It ends at the first that is wrong, with the list of what was done.
    """
    tree: Clos = FatTree(k, str(PREFIX6)) if fabric is None else load(fabric)
    parse = cluster_plan.Step.parse if cluster else plan.Step.parse
    steps: list[plan.Step | cluster_plan.Step] = []
    if replay is not None:
        steps += [parse(line) for line in replay.read_text().splitlines() if line.strip()]
    else:
        steps += cluster_plan.plan(tree, seed, faults) if cluster else plan.plan(tree, seed, faults, without)
    origin = f"seed {seed}" if replay is None else str(replay)
    files = [file and file.resolve() for file in (report, logs)]
    sys.exit(isolated(lambda: run((FaultyCluster if cluster else FaultyLab)(tree), steps, origin, *files)))


if __name__ == "__main__":
    main(prog_name="make soak")
