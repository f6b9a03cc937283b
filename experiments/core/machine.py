"""What a measurement has to say of the machine: what it is, and how busy it was."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


class CpuIdle:
    """How much of this machine's processor time was idle since the object was made."""

    def __init__(self) -> None:
        self._start = _times()

    def percent(self) -> float:
        """Idle time since then, in percent of all processors' time."""
        now = _times()
        idle, total = now[0] - self._start[0], now[1] - self._start[1]
        return 100.0 * idle / total if total else 100.0


def _times() -> tuple[int, int]:
    """Idle and total time of all processors, in clock ticks (proc(5), /proc/stat)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def describe() -> dict[str, str | int]:
    """The machine and the versions that a figure depends on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
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
