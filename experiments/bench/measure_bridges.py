"""The bring-up of 720 bridges of one real Open vSwitch with the dummy datapath (k=24): as many as this runs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.bench.measuring import link_seconds, peak_mib, processor_seconds
from experiments.emulation.processes import ControllerProcess, free_ports
from topologies import FatTree, ovsdb
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

K = 24
CONNECT_SECONDS = 600.0
IDLE_SECONDS = 10.0
LINK = "a0_0", "c0_0"


def measure() -> dict[str, Any]:
    """Build all switches of a k=24 fabric, then connect all of them to a controller in one transaction, and fail a link.

    Returns
    -------
    dict
        ``built_seconds``: until the switch daemon had all bridges. From the transaction on: ``seconds`` until all switches had
        their rules, the processor time of both processes in them (``controller_seconds``, ``switches_seconds``: the daemon does
        what 720 machines would do), ``version`` and peak memory; ``idle_cores`` of the controller; ``failure_seconds``, the
        median until a failed or healed link's rules were installed.
    """
    tree = FatTree(K)
    openflow, rest = free_ports(2)
    with tempfile.TemporaryDirectory() as name:
        controller = ControllerProcess(tree, Path(name) / "log", openflow, rest)
        with PrivateOvs(Path(name) / "ovs", dummy=True) as ovs:
            began = time.monotonic()
            fabric = DummyFabric(tree, ovs)
            found: dict[str, Any] = {"switches": tree.switch_count, "built_seconds": round(time.monotonic() - began, 1)}
            with controller:
                found |= _connect(controller, fabric)
                before = processor_seconds(controller.pid)
                time.sleep(IDLE_SECONDS)
                found["idle_cores"] = round((processor_seconds(controller.pid) - before) / IDLE_SECONDS, 3)
                lower, upper = (tree.switch(end) for end in LINK)
                port = tree.port(lower, upper)
                seconds = link_seconds(controller, lambda up: fabric.set_port(lower, port, up))
                found["failure_seconds"] = round(seconds, 3)
    return found


def _connect(controller: ControllerProcess, fabric: DummyFabric) -> dict[str, Any]:
    processes = controller.pid, fabric.ovs.pid()
    worked = [processor_seconds(process) for process in processes]
    began = time.monotonic()
    fabric.ovs.transact(_targets(fabric, controller.openflow))
    controller.wait_connected(fabric.tree.switch_count, CONNECT_SECONDS)
    seconds = time.monotonic() - began
    its, theirs = (processor_seconds(process) - before for process, before in zip(processes, worked, strict=True))
    return {
        "seconds": round(seconds, 1),
        "controller_seconds": round(its, 1),
        "switches_seconds": round(theirs, 1),
        "version": controller.fabric()["version"],
        "mib": peak_mib(controller.pid),
    }


def _targets(fabric: DummyFabric, controller: str) -> list[dict[str, Any]]:
    """Return the database operations that give every bridge its controller."""
    operations = []
    for switch in fabric.tree.switches():
        name = fabric.tree.name(switch)
        operations.append(ovsdb.insert("Controller", f"{name}_c", target=controller, max_backoff=1000))
        row = {"controller": ["named-uuid", f"{name}_c"]}
        operations.append({"op": "update", "table": "Bridge", "where": [["name", "==", name]], "row": row})
    return operations
