"""``make soak``: a number of faults, each checked, and the resources of controller, agents and kernel before and after."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from tests.faults.harness import FaultyLab, Wrong
from tests.faults.plan import KINDS, Step, plan
from topologies import Clos, FatTree
from topologies.fabric_file import load
from topologies.lab.isolation import isolated

HOLDINGS_EVERY = 50
"""Steps between two looks at what controller, agents and kernel hold; the next is while nothing is broken."""


def run(tree: Clos, steps: Sequence[Step], origin: str, report: Path | None = None) -> int:
    """Do the steps in a lab of their own (inside `isolated`); the exit status, 0 if nothing was ever wrong."""
    total, done, started = sum(len(step.begin) for step in steps), 0, time.monotonic()
    kinds: Counter[str] = Counter()
    looked = 0
    with FaultyLab(tree) as lab:
        before = lab.holdings()
        for number, step in enumerate(steps, 1):
            try:
                lab.do(step)
            except Wrong as wrong:
                _tell_wrong(lab, origin, steps[:number], wrong)
                return 1
            done += len(step.begin)
            kinds.update(fault.kind for fault in step.begin)
            took = f"{lab.settle_seconds[-1]:.1f} s" if lab.settle_seconds else "-"
            print(
                f"{done:>5} of {total} faults, {time.monotonic() - started:6.0f} s, settled in {took:>6}: {step}",
                flush=True,
            )
            if number - looked >= HOLDINGS_EVERY and not lab.active:
                looked = number
                print(f"      {json.dumps(lab.holdings())}", flush=True)
        after = lab.holdings()
        summary = {
            "origin": origin,
            "fabric": tree.title,
            "k": tree.k,
            "faults": dict(kinds),
            "steps": len(steps),
            "seconds": round(time.monotonic() - started),
            "packets": lab.packets,
            "repeated": lab.repeated,
            "settle_median_seconds": round(statistics.median(lab.settle_seconds), 2),
            "settle_worst_seconds": round(max(lab.settle_seconds), 2),
            "before": before,
            "after": after,
        }
    print(json.dumps(summary, indent=1))
    if report is not None:
        report.write_text(json.dumps(summary, indent=1) + "\n")
    return 0


def _tell_wrong(lab: FaultyLab, origin: str, steps: Sequence[Step], wrong: Wrong) -> None:
    print(f"WRONG ({origin}), after step {len(steps)}:\n{wrong}\n\nTo see it again, put these lines into a file:")
    for step in steps:
        print(f"  {step}")
    print("and run: make soak ARGS='--replay FILE', with the same --k or --fabric\n")
    for log in sorted(lab.its.directory.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text()[-4000:]}")
    switches = (lab.its.lab.ovs.directory / "ovs-vswitchd.log").read_text().splitlines()
    print("--- warnings of Open vSwitch", *[line for line in switches if "|WARN|" in line][-40:], sep="\n")
    sys.stdout.flush()


@click.command()
@click.option("--faults", type=click.IntRange(1), default=1000, show_default=True, help="How many things break.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides which, and in which order.")
@click.option("--k", type=int, default=4, show_default=True, help="Ports of every switch.")
@click.option("--fabric", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="A fabric file instead of a fat-tree of --k, as in tests/faults/fabrics.")  # fmt: skip
@click.option(
    "--without",
    type=click.Choice(list(KINDS)),
    multiple=True,
    metavar="KIND",
    help="A kind of fault to leave out; repeatable. Without `controller` and `clock` the controller is never restarted.",
)
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Replay the steps that a failing run has printed, instead of drawing faults.")  # fmt: skip
@click.option("--json", "report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the summary to FILE, too.")  # fmt: skip
def main(
    faults: int,
    seed: int,
    k: int,
    fabric: Path | None,
    without: tuple[str, ...],
    replay: Path | None,
    report: Path | None,
) -> None:
    """Break and heal a lab's links, switches, controller and agents, and check everything after each step.

    After each: exactly the pairs of hosts that the graph connects are connected, labelled and unlabelled; /paths and every
    agent's BPF maps hold exactly the graph's candidate paths; no switch holds a stale entry. It ends at the first that is
    wrong, with the list of what was done.
    """
    tree = FatTree(k) if fabric is None else load(fabric)
    if replay is not None:
        steps, origin = [Step.parse(line) for line in replay.read_text().splitlines() if line.strip()], str(replay)
    else:
        steps, origin = list(plan(tree, seed, faults, without)), f"seed {seed}"
    resolved = report.resolve() if report else None
    sys.exit(isolated(lambda: run(tree, steps, origin, resolved)))


if __name__ == "__main__":
    main(prog_name="make soak")
