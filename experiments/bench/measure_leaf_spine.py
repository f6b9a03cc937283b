"""A leaf-spine fabric of 32 leaves, 4 spines and 1,536 hosts: its rules, its cold start, and requests for candidate paths."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from experiments.bench.measure_cold_start import cold_start
from experiments.emulation.processes import ControllerProcess, free_ports
from flowrules.switch_rules import fabric_rules
from topologies import Clos, FatTree

LEAF_SPINE = Clos(pods=1, edges=32, aggregations=4, cores=0, hosts=48)
BASELINE = FatTree(16)  # 1,024 hosts
REQUESTS = 500
SEED = 1


def measure() -> dict[str, Any]:
    """Measure both fabrics in the same way.

    Returns:
        ``rules_seconds``, ``cold_start_seconds`` (last connect to last barrier, dummy datapath), ``paths_median_ms`` of ``GET
        /paths`` over one connection; with the prefix ``k16_`` those of the baseline.
    """
    ours, baseline = _measured(LEAF_SPINE), _measured(BASELINE)
    limits = {"limit_rules_seconds": 1.0, "limit_cold_start_seconds": 2.0, "limit_paths_ms": 1.0}
    return {**ours, **limits, **{f"k16_{name}": value for name, value in baseline.items()}}


def _measured(tree: Clos) -> dict[str, Any]:
    started = time.perf_counter()
    rules = [its for _, its in fabric_rules(tree)]
    seconds = time.perf_counter() - started
    return {
        "switches": tree.switch_count,
        "hosts": tree.host_count,
        "flows": sum(len(its.flows) for its in rules),
        "rules_seconds": round(seconds, 3),
        "cold_start_seconds": cold_start(tree)["seconds"],
        "paths_median_ms": round(_paths_ms(tree), 2),
    }


def _paths_ms(tree: Clos) -> float:
    """Return the median time of a request for the candidate paths of two random hosts."""
    draw, hosts, taken = random.Random(f"{SEED} bench leaf-spine"), list(tree.hosts()), []
    openflow, rest = free_ports(2)
    # without switches and before settling nothing counts as failed: every answer has all paths
    with (
        tempfile.TemporaryDirectory() as directory,
        ControllerProcess(tree, Path(directory) / "log", openflow, rest, options=["--sopa-settle=3600"]),
        closing(HTTPConnection("127.0.0.1", rest)) as client,  # httpx takes as long as the controller
    ):
        for _ in range(REQUESTS):
            src, dst = draw.sample(hosts, 2)
            started = time.perf_counter()
            client.request("GET", f"/sopa/v1/paths?src={tree.ip(src)}&dst={tree.ip(dst)}")
            answer = client.getresponse()
            assert answer.status == HTTPStatus.OK
            answer.read()
            taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)
