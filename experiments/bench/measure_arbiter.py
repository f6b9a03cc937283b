"""How fast the arbiter's library allocates slots and finds paths, and how many of the cells that could be sent it grants."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sopa_ryu.arbiter.allocation import Allocation
from sopa_ryu.arbiter.budgets import capacities
from sopa_ryu.arbiter.build import SOURCES, build, build_program
from topologies import Clos, Failures, FatTree

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


def measure() -> dict[str, Any]:
    """Measure timeslots, paths and both by a program in C++ (``arbiter.cc``), on one core.

    Returns:
        By measurement the medians over batches: ``ns_per_cell``, ``us_per_slot``, what was ``carried`` of the hosts' links;
        ``of_best`` is the share of the most that batches could carry, ``without`` counts cells without a path. Beside them the
        limits, and the figures of Fastpass. ``without_a_path`` has the shares of such cells where something has failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "arbiter"
        build_program(program, [PROGRAM, *LIBRARY])
        return {**_timeslots(program), **_paths(program), **_real_time(program), **_failures(), **FASTPASS}


def _timeslots(program: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for hosts in (256, 3456):
        for batch, limit in LIMIT_NS.items():
            its = _run(program, "allocation", hosts, LOAD, batch, "min-max-min", 12_800)
            found[f"timeslots_{hosts}_hosts_batch_{batch}"] = {**its, "limit_ns": limit}
    for order in ("min-max-min", "alternating", "smallest"):
        its = _run(program, "allocation", 256, OVERLOAD, 4, order, 20_000)
        found[f"saturated_{order}"] = {**its, "least_of_best": LEAST_OF_BEST}
    return found


def _paths(program: Path) -> dict[str, Any]:
    slots = {8: 1000, 16: 200, 24: 60, 48: 10}
    found: dict[str, Any] = {f"paths_k{k}": _run(program, "paths", k, count) for k, count in slots.items()}
    found["paths_k24"]["limit_ns"] = LIMIT_PATH_NS
    return found


def _real_time(program: Path) -> dict[str, Any]:
    return {
        "both_k8_mtu": {**_run(program, "whole", 8, LOAD, 4, MTU, 40_000), "slot_us": MTU_US},
        "both_k24_cells_of_64_kb": {**_run(program, "whole", 24, 0.5, 4, CELL, 2000), "slot_us": CELL_US},
    }


def _failures() -> dict[str, Any]:
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
    shares = {
        name: _share_without(Failures(tree, dict.fromkeys(failed, "down"))) for name, (tree, failed) in cases.items()
    }
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
    its = allocation.statistics()
    return round(its.unplaced / (its.granted + its.unplaced), 4)


def _run(program: Path, *arguments: object) -> dict[str, float]:
    print(" ".join(map(str, arguments)), file=sys.stderr)
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
