"""The bring-up of 720 bridges of real Open vSwitch with the dummy datapath (k=24): as many as run on one machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from experiments.bench.measuring import link_seconds, peak_mib, processor_seconds, say
from experiments.emulation.processes import ControllerProcess, free_ports
from topologies import FatTree, Switch, ovsdb
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

K = 24
BRIDGES_EACH = 60
"""Of one switch daemon: the time in which it makes bridges grows with the square of their number."""
AT_ONCE = 2
CONNECT_SECONDS = 600.0
IDLE_SECONDS = 10.0
LINK = "a0_0", "c0_0"


def measure() -> dict[str, Any]:
    """Build all switches of a k=24 fabric, then connect all of them to a controller at once, and fail a link.

    Returns:
        ``daemons``: how many Open vSwitch there are; ``built_seconds``: until they had all bridges. From the first transaction
        on: ``seconds`` until all switches had their rules, the processor time in them of the controller
        (``controller_seconds``) and of the daemons (``switches_seconds``: they do what 720 machines would do), ``version`` and
        peak memory; ``idle_cores`` of the controller; ``failure_seconds``, the median until a failed or healed link's rules
        were installed.
    """
    tree = FatTree(K)
    switches = list(tree.switches())
    parts = [switches[first : first + BRIDGES_EACH] for first in range(0, len(switches), BRIDGES_EACH)]
    openflow, rest = free_ports(2)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        controller = ControllerProcess(tree, Path(name) / "log", openflow, rest)
        daemons = [
            stack.enter_context(PrivateOvs(Path(name) / f"ovs{number}", dummy=True)) for number in range(len(parts))
        ]
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            fabrics = list(pool.map(lambda ovs, part: DummyFabric(tree, ovs, switches=part), daemons, parts))
        say(f"{tree.switch_count} bridges of {len(daemons)} Open vSwitch after {time.monotonic() - began:.0f} s")
        found: dict[str, Any] = {
            "switches": tree.switch_count,
            "daemons": len(daemons),
            "built_seconds": round(time.monotonic() - began, 1),
        }
        stack.enter_context(controller)
        found |= _connect(controller, fabrics, parts)
        say(f"all switches have their rules after {found['seconds']} s")
        before = processor_seconds(controller.pid)
        time.sleep(IDLE_SECONDS)
        found["idle_cores"] = round((processor_seconds(controller.pid) - before) / IDLE_SECONDS, 3)
        lower, upper = (tree.switch(end) for end in LINK)
        port = tree.port(lower, upper)
        its = next(fabric for fabric, part in zip(fabrics, parts, strict=True) if lower in part)
        found["failure_seconds"] = round(link_seconds(controller, lambda up: its.set_port(lower, port, up)), 3)
    return found


def _connect(
    controller: ControllerProcess, fabrics: Sequence[DummyFabric], parts: Sequence[Collection[Switch]]
) -> dict[str, Any]:
    processes = [controller.pid, *(fabric.ovs.pid() for fabric in fabrics)]
    worked = [processor_seconds(process) for process in processes]
    began = time.monotonic()
    for fabric, part in zip(fabrics, parts, strict=True):
        fabric.ovs.transact(_targets(fabric, part, controller.openflow))
    controller.wait_connected(fabrics[0].tree.switch_count, CONNECT_SECONDS)
    seconds = time.monotonic() - began
    its, *theirs = (processor_seconds(process) - before for process, before in zip(processes, worked, strict=True))
    return {
        "seconds": round(seconds, 1),
        "controller_seconds": round(its, 1),
        "switches_seconds": round(sum(theirs), 1),
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
