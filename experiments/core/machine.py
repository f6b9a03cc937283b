"""The machine of a measurement: its description, and the idle share of its processors."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


class CpuIdle:
    """The idle share of the processor time since construction."""

    def __init__(self) -> None:
        self._start = _times()

    def percent(self) -> float:
        """Return the idle time since construction in percent of the time of all processors."""
        now = _times()
        idle, total = now[0] - self._start[0], now[1] - self._start[1]
        return 100.0 * idle / total if total else 100.0


def busy_seconds() -> float:
    """Return the time that all processors together have not been idle since the machine started, in seconds."""
    idle, total = _times()
    return (total - idle) / os.sysconf("SC_CLK_TCK")


def _times() -> tuple[int, int]:
    """Return the idle and total time of all processors in clock ticks (proc(5), /proc/stat)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def describe() -> dict[str, str | int]:
    """Return the processor, kernel and program versions that results depend on."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cpus": os.cpu_count() or 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "open_vswitch": _version("ovs-vswitchd", "--version"),
        "iperf3": _version("iperf3", "--version"),
    }


def _version(*command: str) -> str:
    try:
        first = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "not installed"
    return next((word for word in first.split() if word[:1].isdigit()), first)
