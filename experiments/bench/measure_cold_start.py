"""The time in which a controller installs a k=16 fabric on Open vSwitch (dummy datapath)."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.emulation.processes import ControllerProcess, free_ports
from flowrules.switch_rules import fabric_rules
from sopa_ryu import manager
from topologies import Clos, FatTree
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

K = 16
_SUMMARY = re.compile(
    r"have their rules: (\d+) flow-mods and group-mods; to the last barrier ([\d.]+) s from the first connect, ([\d.]+) s"
)


def measure() -> dict[str, Any]:
    """Start the controller, then all switches, and read the time of the last barrier reply from its log.

    Returns:
        ``seconds`` from the last connect to the last barrier, the number of ``messages``, and their rate since the first
        connect. ``encode_per_second`` is the baseline: the rate at which Ryu builds and serialises these messages without a
        switch.
    """
    tree = FatTree(K)
    return {"k": K, **cold_start(tree), "limit_seconds": 5.0, "encode_per_second": _encode_rate(tree)}


def cold_start(tree: Clos) -> dict[str, Any]:
    """Start a controller, then all switches of a fabric; return the ``seconds`` and what else its log says of them."""
    with tempfile.TemporaryDirectory() as directory:
        openflow, rest = free_ports(2)
        controller = ControllerProcess(tree, Path(directory) / "controller.log", openflow, rest)
        # the controller first, so that switches connect immediately instead of after their retry intervals
        with controller, PrivateOvs(Path(directory) / "ovs", dummy=True) as ovs:
            started = time.monotonic()
            DummyFabric(tree, ovs, controller.openflow)
            built = time.monotonic() - started
            controller.wait_connected(tree.switch_count, 120)
            found = _SUMMARY.search(controller.log.read_text())
    assert found is not None
    messages, whole, seconds = int(found[1]), float(found[2]), float(found[3])
    return {
        "switches": tree.switch_count,
        "ovs_built_seconds": round(built, 1),
        "messages": messages,
        "seconds": seconds,
        "seconds_from_first_connect": whole,
        "messages_per_second": round(messages / whole),
    }


def _encode_rate(tree: Clos) -> int:
    manager.make_ryu_importable()
    from sopa_ryu.southbound import openflow

    class Datapath:
        """The attributes that messages of Ryu need for serialisation."""

        ofproto = openflow.OPENFLOW
        ofproto_parser = openflow.PARSER

    datapath = Datapath()
    rules = [flow for _, its in fabric_rules(tree) for flow in its.flows]
    started = time.perf_counter()
    for flow in rules:
        message = openflow.flow_mod(datapath, flow, 1)
        message.set_xid(1)
        message.serialize()
    return round(len(rules) / (time.perf_counter() - started))
