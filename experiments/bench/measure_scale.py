"""The bring-up of thousands of switches, which are false: Open vSwitch cannot run so many on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from experiments.bench.measuring import link_seconds, peak_mib, processor_seconds
from experiments.emulation.processes import ControllerProcess, free_ports
from topologies import FatTree

FABRICS = (24, 48)
CONNECT_SECONDS = 1.0
MAX_SECONDS = 300.0
QUIET_SECONDS = 5.0
"""After the last switch, for what follows from it."""
IDLE_SECONDS = 10.0
LINK = "a0_0-c0_1"
LIMITS = {
    "seconds": 60.0,
    "mib": 600.0,
    "paths_99_ms": 100.0,
    "idle_cores": 0.25,
    "failure_seconds": 0.5,
    "version": 1,
    "lost": 0,
}


def measure() -> dict[str, Any]:
    """Connect all switches of a fabric at once, and fail a link.

    Returns:
        By fabric: seconds until all switches had their rules, and of the controller's processor in them (which a busy machine
        changes little), versions made by then, lost channels, peak memory of the controller, the 99th percentile of ``GET
        /paths`` meanwhile, its processor time when idle, and the seconds until a failed link's rules were installed.
        ``limits``: what is asked at k=48, where the controller has one processor to itself.
    """
    with tempfile.TemporaryDirectory() as name:
        return {"limits": LIMITS, **{f"k={k}": _measure(k, Path(name) / str(k)) for k in FABRICS}}


def _measure(k: int, directory: Path) -> dict[str, Any]:
    directory.mkdir()
    openflow, rest = free_ports(2)
    tree = FatTree(k)
    cores = sorted(os.sched_getaffinity(0))
    with ControllerProcess(k, directory / "log", openflow, rest) as controller:
        os.sched_setaffinity(controller.pid, {cores[0]})
        command = [sys.executable, "-m", "experiments.emulation.false_switches", f"--k={k}", f"--port={openflow}"]
        command.append(f"--seconds={CONNECT_SECONDS}")
        began, worked = time.monotonic(), processor_seconds(controller.pid)
        switches = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(switches.pid, {cores[-1]})
        try:
            latencies = _Latencies(controller.url)
            connected = 0
            while connected < tree.switch_count and time.monotonic() < began + MAX_SECONDS:
                time.sleep(0.5)
                connected = _connected(controller)
            seconds = time.monotonic() - began
            worked = processor_seconds(controller.pid) - worked
            paths = latencies.end()
            found: dict[str, Any] = {
                "switches": tree.switch_count,
                "connected": connected,
                "seconds": round(seconds, 1),
                "processor_seconds": round(worked, 1),
            }
            found |= {"paths_99_ms": round(paths, 1), "mib": peak_mib(controller.pid)}
            time.sleep(QUIET_SECONDS)
            found["version"] = controller.fabric()["version"]
            found |= _ordered(switches, "count")
            before = processor_seconds(controller.pid)
            time.sleep(IDLE_SECONDS)
            found["idle_cores"] = round((processor_seconds(controller.pid) - before) / IDLE_SECONDS, 3)

            def set_link(up: bool) -> None:
                _ordered(switches, f"{'up' if up else 'down'} {LINK}")

            found["failure_seconds"] = round(link_seconds(controller, set_link), 3)
            found["mib"] = peak_mib(controller.pid)
        finally:
            switches.kill()
            switches.wait()
    return found


def _connected(controller: ControllerProcess) -> int:
    try:
        return int(controller.fabric()["connected"])
    except (httpx.TransportError, httpx.HTTPStatusError):  # it is too busy to answer
        return 0


def _ordered(switches: subprocess.Popen[str], order: str) -> dict[str, Any]:
    assert switches.stdin is not None
    assert switches.stdout is not None
    switches.stdin.write(f"{order}\n")
    switches.stdin.flush()
    seen: dict[str, Any] = json.loads(switches.stdout.readline())
    return {name: seen.get(name, 0) for name in ("modifications", "lost", "refused")}


class _Latencies:
    """Asks for candidate paths ten times a second, from a thread."""

    def __init__(self, url: str) -> None:
        self._url, self._ended, self._took = f"{url}/sopa/v1/paths", threading.Event(), [0.0]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._ended.wait(0.1):
                began = time.monotonic()
                with contextlib.suppress(httpx.TransportError):
                    client.get(self._url, params={"src": "10.0.0.2", "dst": "10.1.0.2"})
                self._took.append(1000 * (time.monotonic() - began))

    def end(self) -> float:
        """Return the 99th percentile in milliseconds."""
        self._ended.set()
        self._thread.join()
        return sorted(self._took)[int(0.99 * len(self._took))]
