"""The bring-up of many switches: false ones, bridges of Open vSwitch, and the k=8 lab with its agents."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from experiments.bench.frame import Results, bind, cores, in_lab, link_seconds, peak_mib, processor_seconds, say, times
from experiments.emulation.processes import ControllerProcess
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.threads import Threads
from topologies import FatTree, Switch, ovsdb
from topologies.lab.network import default_rate
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

IDLE_SECONDS = 10.0

# -- false switches -------------------------------------------------------------------------------------------------------

FABRICS = (24, 48)[: 2 * times(2) - 1]
CONNECT_SECONDS = 1.0
MAX_SECONDS = 300.0
QUIET_SECONDS = 5.0
"""After the last switch, for what follows from it."""
LINK = "a0_0-c0_1"
LIMITS = {"seconds": 60.0, "mib": 600.0, "paths_99_ms": 100.0, "idle_cores": 0.25, "failure_seconds": 0.5, "version": 1, "lost": 0}


def scale() -> Results:
    """Connect all switches of a fabric at once, and fail a link. They are false: Open vSwitch cannot run so many on one machine.

    ``seconds`` until all switches had their rules, and ``processor_seconds`` of the controller in them (which a busy machine
    changes little), ``version`` made by then, the 99th percentile of ``GET /paths`` meanwhile, and ``failure_seconds`` until a
    failed link's rules were installed. ``limits``: what is asked at k=48, where the controller has one processor to itself.
    """
    with tempfile.TemporaryDirectory() as name:
        return {"limits": LIMITS, **{f"k={k}": _false_fabric(k, Path(name) / str(k)) for k in FABRICS}}


def _false_fabric(k: int, directory: Path) -> Results:
    directory.mkdir()
    tree = FatTree(k)
    processors = sorted(os.sched_getaffinity(0))
    with ControllerProcess(k, directory / "log") as controller:
        bind(controller.pid, processors[0])
        command = [sys.executable, "-m", "experiments.emulation.false_switches", f"--k={k}"]
        command += [f"--port={controller.openflow_port}", f"--seconds={CONNECT_SECONDS}"]
        began, worked = time.monotonic(), processor_seconds(controller.pid)
        switches = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(switches.pid, {processors[-1]})
        try:
            with _Latencies(controller.url) as latencies:
                connected = 0
                while connected < tree.switch_count and time.monotonic() < began + MAX_SECONDS:
                    time.sleep(0.5)
                    connected = _connected(controller)
                seconds, worked = time.monotonic() - began, processor_seconds(controller.pid) - worked
            results: Results = {
                "switches": tree.switch_count,
                "connected": connected,
                "seconds": round(seconds, 1),
                "processor_seconds": round(worked, 1),
                "paths_99_ms": round(latencies.percentile(), 1),
                "mib": peak_mib(controller.pid),
            }
            time.sleep(QUIET_SECONDS)
            results["version"] = controller.fabric()["version"]
            results |= _ordered(switches, "count")
            results["idle_cores"] = cores(controller.pid, IDLE_SECONDS)

            def set_link(up: bool) -> None:
                _ordered(switches, f"{'up' if up else 'down'} {LINK}")

            results["failure_seconds"] = link_seconds(controller, set_link)
            results["mib"] = peak_mib(controller.pid)
        finally:
            switches.kill()
            switches.wait()
    return results


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


class _Latencies(Threads):
    """Asks for candidate paths ten times a second, from a thread."""

    def __init__(self, url: str) -> None:
        super().__init__(self._run)
        self._url, self._took = f"{url}/sopa/v1/paths", [0.0]

    def _run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self.ended.wait(0.1):
                began = time.monotonic()
                with contextlib.suppress(httpx.TransportError):
                    client.get(self._url, params={"src": "10.0.0.2", "dst": "10.1.0.2"})
                self._took.append(1000 * (time.monotonic() - began))

    def percentile(self) -> float:
        """Return the 99th percentile in milliseconds."""
        return sorted(self._took)[int(0.99 * len(self._took))]


# -- Open vSwitch ---------------------------------------------------------------------------------------------------------

BRIDGES_K = 24
BRIDGES_EACH = 60
"""Of one switch daemon: the time in which it makes bridges grows with the square of their number."""
AT_ONCE = 2
BRIDGES_SECONDS = 600.0
BRIDGES_LINK = "a0_0", "c0_0"


def bridges() -> Results:
    """Build all switches of a k=24 fabric, as many as run on one machine, connect all of them at once, and fail a link.

    From the first transaction on: ``seconds`` until all switches had their rules, and the processor time in them of the controller
    and of the daemons (``switches_seconds``: they do what 720 machines would do); ``failure_seconds``: the median until a failed or
    healed link's rules were installed.
    """
    tree = FatTree(BRIDGES_K)
    switches = list(tree.switches())
    parts = [switches[first : first + BRIDGES_EACH] for first in range(0, len(switches), BRIDGES_EACH)]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        controller = ControllerProcess(tree, Path(name) / "log")
        daemons = [stack.enter_context(PrivateOvs(Path(name) / f"ovs{number}", dummy=True)) for number in range(len(parts))]
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            fabrics = list(pool.map(lambda ovs, part: DummyFabric(tree, ovs, switches=part), daemons, parts))
        built = time.monotonic() - began
        say(f"{tree.switch_count} bridges of {len(daemons)} Open vSwitch after {built:.0f} s")
        stack.enter_context(controller)
        results = {
            "switches": tree.switch_count,
            "daemons": len(daemons),
            "built_seconds": round(built, 1),
            **_connect(controller, fabrics, parts),
        }
        say(f"all switches have their rules after {results['seconds']} s")
        results["idle_cores"] = cores(controller.pid, IDLE_SECONDS)
        lower, upper = (tree.switch(end) for end in BRIDGES_LINK)
        port = tree.port(lower, upper)
        fabric = next(fabric for fabric, part in zip(fabrics, parts, strict=True) if lower in part)
        results["failure_seconds"] = link_seconds(controller, lambda up: fabric.set_port(lower, port, up))
    return results


def _connect(controller: ControllerProcess, fabrics: Sequence[DummyFabric], parts: Sequence[Collection[Switch]]) -> Results:
    processes = [controller.pid, *(fabric.ovs.pid() for fabric in fabrics)]
    worked = [processor_seconds(process) for process in processes]
    began = time.monotonic()
    for fabric, part in zip(fabrics, parts, strict=True):
        fabric.ovs.transact(_targets(fabric, part, controller.openflow))
    controller.wait_connected(fabrics[0].tree.switch_count, BRIDGES_SECONDS)
    seconds = time.monotonic() - began
    used = [processor_seconds(process) - before for process, before in zip(processes, worked, strict=True)]
    return {
        "seconds": round(seconds, 1),
        "controller_seconds": round(used[0], 1),
        "switches_seconds": round(sum(used[1:]), 1),
        "version": controller.fabric()["version"],
        "mib": peak_mib(controller.pid),
    }


def _targets(fabric: DummyFabric, switches: Collection[Switch], controller: str) -> list[dict[str, Any]]:
    """Return the database operations that give every bridge its controller."""
    operations = []
    for switch in switches:
        name = fabric.tree.name(switch)
        operations.append(ovsdb.insert("Controller", f"{name}_c", target=controller, max_backoff=1000))
        row = {"controller": ["named-uuid", f"{name}_c"]}
        operations.append({"op": "update", "table": "Bridge", "where": [["name", "==", name]], "row": row})
    return operations


# -- the lab --------------------------------------------------------------------------------------------------------------

LAB_K = 8


@in_lab
def lab() -> Results:
    """Start the lab with 80 switches, 128 hosts and 128 agents, and stop it; ``mib`` is the decrease of the available memory."""
    tree = FatTree(LAB_K)
    before, started = _available_mib(), time.monotonic()
    with SopaLab(tree, default_rate(tree)):
        up, mib = time.monotonic() - started, before - _available_mib()
    return {
        "k": LAB_K,
        "switches": tree.switch_count,
        "agents": tree.host_count,
        "up_seconds": round(up, 1),
        "limit_seconds": 120.0,
        "down_seconds": round(time.monotonic() - started - up, 1),
        "mib": round(mib),
        "limit_mib": 6144,
    }


def _available_mib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable"))
