"""Helpers of several measurements."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.emulation.processes import ControllerProcess
from topologies.lab.isolation import isolated

REFERENCE_EMPTY_NS = 39
"""What an empty tc program takes in BPF_PROG_TEST_RUN on an AMD EPYC."""


def allowed(ratio: float, empty_ns: float = 0) -> int:
    """Return the nanoseconds that a program may take more than an empty one: so many times what that takes.

    Processors whose empty program is faster than the reference's allow as much as that one: a look-up in a map is not faster
    there by as much.
    """
    return round(ratio * max(empty_ns, REFERENCE_EMPTY_NS))


def say(text: str) -> None:
    """Say on standard error how far a measurement of minutes is, and what it has found so far: one may be ended half way."""
    print(text, file=sys.stderr, flush=True)


def measured_in_lab(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the results of a function that runs in the namespaces of a lab, in a child process.

    Raises:
        RuntimeError: If the function fails. The traceback is on standard error.
        KeyboardInterrupt: If it was interrupted.
    """
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"

        def main() -> int:
            answer.write_text(json.dumps(measure()))
            return 0

        status = isolated(main)
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if status:
            raise RuntimeError(f"the measurement in the lab failed with status {status}")
        found: dict[str, Any] = json.loads(answer.read_text())
    return found


def link_seconds(controller: ControllerProcess, set_link: Callable[[bool], object], times: int = 3) -> float:
    """Fail and heal a link that many times; return the median of the seconds until all switches have its rules.

    Args:
        controller: Its ``GET /changes`` says how long each version took.
        set_link: Called with False to fail the link, with True to heal it.
    """
    took: list[float] = []
    for up in (False, True) * times:
        since = controller.fabric()["version"]
        set_link(up)
        found: list[float] = []

        def is_installed(since: int = since, found: list[float] = found) -> bool:
            changes = controller.get("/changes").json()["changes"]
            its = (each["installed_ms"] for each in changes if each["version"] > since)
            found += [milliseconds / 1000 for milliseconds in its if milliseconds is not None]
            return bool(found)

        controller.wait_until(is_installed, "a link's rules were installed", 60)
        took.append(found[0])
    return statistics.median(took)


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used, in user and kernel mode (proc(5))."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(process: int | str = "self") -> float:
    """Return the peak memory of a process in MiB (VmHWM of proc(5)). getrusage() would include the parent before exec."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 1)
