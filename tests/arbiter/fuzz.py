"""``make fuzz ARGS=arbiter``: batches of the arbiter's library on fabrics of all kinds, each cell checked."""

import argparse
import sys
from collections import Counter

from sopa_ryu.arbiter.build import build
from tests.arbiter.checker import Conflict
from tests.arbiter.scenarios import Scenario

BATCH_CELLS = 20_000
"""Cells after which a scenario ends, and the next one begins."""
MAX_STEPS = 200


def fuzz(packets: int, seed: int) -> Counter[str]:
    """Check so many cells; return the numbers of cells by kind. A `Conflict` names its scenario."""
    counted: Counter[str] = Counter()
    number = seed * 1_000_000
    while counted["checked"] < packets:
        scenario = Scenario(number)
        for step in range(MAX_STEPS):
            try:
                scenario.step()
            except Conflict as conflict:
                raise Conflict(f"seed {seed}, scenario {number} ({scenario}), step {step}: {conflict}") from conflict
            if scenario.checker.granted > min(BATCH_CELLS, packets - counted["checked"]):
                break
        its = scenario.statistics()
        for name in ("checked", f"{scenario.order}", f"{scenario.paths}"):
            counted[name] += its.granted
        counted[f"{scenario.paths} without a path"] += its.unplaced
        counted["slots"] += its.slots
        counted["fabrics"] += 1
        number += 1
    return counted


def main() -> None:
    options = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    options.add_argument("--packets", type=int, default=1_000_000, help="cells (default %(default)s)")
    options.add_argument("--seed", type=int, default=1, help="decides everything (default %(default)s)")
    its = options.parse_args()
    build()
    try:
        counted = fuzz(its.packets, its.seed)
    except Conflict as conflict:
        sys.exit(str(conflict))
    print(f"{counted['checked']} cells, seed {its.seed}: no conflict")
    print(", ".join(f"{name} {count}" for name, count in sorted(counted.items())))


if __name__ == "__main__":
    main()
