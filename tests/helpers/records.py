"""Records of runs and flows, and directories of results, for tests of what is made of them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.core.records import FlowRecord, Results, RunRecord, RunSettings

THESE = RunSettings("permutation", "emulation", 4, 20.0, 10.0, {"queue": 100})


def a_flow(scheme: str = "sopa", seed: int = 1, flow: int = 0, mbit: float = 10.0, **others: Any) -> FlowRecord:
    """A flow of a run; what is not given is of no interest."""
    its: dict[str, Any] = {name: getattr(THESE, name) for name in ("workload", "backend", "k", "rate_mbit")}
    its |= {"scheme": scheme, "seed": seed, "flow": flow, "src": "h0_0_2", "dst": "h0_1_2", "mbit": mbit}
    its |= {"bytes": int(mbit * 1.25e6), "seconds": 10.0, "size": None, "completed": True, "start": 0.0, "kind": ""}
    its |= dict.fromkeys(("reordered", "retransmits", "spurious", "fast_retransmits", "timeouts"), 0)
    return FlowRecord(**its | {"packets": 1000, "rtt_ms": 2.0, "valid": True} | others)


def a_run(scheme: str = "sopa", seed: int = 1, **others: Any) -> RunRecord:
    """Return the record of a run; fields that are not given are empty."""
    return replace(RunRecord(scheme, seed, True, 60.0, {}, "sopa experiment", {}, {}, {}), **others)


def results_in(directory: Path) -> Results:
    results = Results(directory)
    results.open(THESE)
    return results


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
