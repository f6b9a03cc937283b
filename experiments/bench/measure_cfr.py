"""CFR in the lab beside TCP without slots: goodput, queues at receivers, when packets are sent, and which share a link."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.bench.measuring import measured_in_lab, say
from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.measurement.link_capture import LinkCapture
from experiments.emulation.measurement.slot_check import SlotCheck, check, read_capture
from experiments.emulation.slot_arbiter import slot_ms
from experiments.schemes import named
from experiments.workloads import WORKLOADS, Scale
from topologies import Clos, FatTree, Switch

RATE_MBIT = 4.0
SECONDS = 10.0
SEED = 1
WITH, WITHOUT = "cfr", ("sopa", "ecmp")
MAX_QUEUE = 2
"""Packets at a receiver's port that 99% of samples are not to exceed."""
MAX_LATE_MS = 0.6


def measure() -> dict[str, Any]:
    """Run an incast and a permutation with slots and without.

    Returns:
        By workload and scheme: the sum of all flows' Mbit/s, retransmissions, the packets at receivers' ports that 99% of
        samples do not exceed, and how idle the processors were. With slots also the time since a slot's beginning that 99% of
        packets do not exceed, and the share of links' slots in which packets of several pairs of hosts passed.
    """
    return measured_in_lab(_inside)


def _inside() -> dict[str, Any]:
    tree = FatTree(4)
    found: dict[str, Any] = {"limits": {"queue_99": MAX_QUEUE, "late_ms_99": MAX_LATE_MS}}
    for scheme in (WITH, *WITHOUT):
        with EmulatedFabric(tree, named(scheme), RATE_MBIT) as fabric:
            for workload in ("incast", "permutation"):
                found[f"{workload}, {scheme}"] = _run(fabric, tree, scheme, workload)
                say(f"{workload}, {scheme}: {found[f'{workload}, {scheme}']}")
    for workload in ("incast", "permutation"):
        its = found[f"{workload}, {WITH}"]["mbit"]
        found[f"{workload}, of TCP without slots"] = {
            other: round(its / found[f"{workload}, {other}"]["mbit"], 3) for other in WITHOUT
        }
    return found


def _run(fabric: EmulatedFabric, tree: Clos, scheme: str, workload: str) -> dict[str, Any]:
    scale = Scale(RATE_MBIT, SECONDS)
    run = Run(tree, WORKLOADS[workload].build(tree, SEED, scale), workload, named(scheme), SEED, scale)
    if run.scheme.slots is None:
        return _figures(fabric, *perform(fabric, run))
    with tempfile.TemporaryDirectory() as directory:
        capture = LinkCapture(Path(directory, "links.pcap"))
        with capture:
            record, flows = perform(fabric, run)
        slots = _checked(fabric, capture.file.read_bytes(), round(1e6 * slot_ms(run.scheme.slots, RATE_MBIT)))
    return _figures(fabric, record, flows) | {
        "late_ms_99": round(slots.late_ms(0.99), 3),
        "shared_percent": round(100 * slots.shared / max(1, slots.used), 3),
        "shared": slots.shared,
        "packets": slots.packets,
    }


def _figures(fabric: EmulatedFabric, record: RunRecord, flows: list[FlowRecord]) -> dict[str, Any]:
    receivers = {fabric.tree.host(flow.dst) for flow in flows}
    ports = [
        fabric.lab.interface(edge, fabric.tree.port(edge, host))
        for host in receivers
        for edge in [fabric.tree.edge_of(host)]
    ]
    samples = max(map(len, record.queues.values()), default=1)
    lengths = sorted(length for name in ports for length in record.queues.get(name, [0] * samples))
    return {
        "mbit": round(sum(flow.mbit for flow in flows), 2),
        "least": round(min(flow.mbit for flow in flows), 3),
        "retransmits": sum(flow.retransmits for flow in flows),
        "queue_99": lengths[int(0.99 * len(lengths))],
        "idle_percent": record.cpu_idle_percent,
    }


def _checked(fabric: EmulatedFabric, capture: bytes, slot_ns: int) -> SlotCheck:
    index = socket.if_nametoindex
    zero = time.time_ns() - time.monotonic_ns()
    hosts = {index(name): address for name, address in _host_ports(fabric)}
    return check(read_capture(capture), hosts, map(index, _switch_ports(fabric)), slot_ns, zero)


def _host_ports(fabric: EmulatedFabric) -> Iterator[tuple[str, int]]:
    """Yield the interfaces of edge switches to hosts, each with the host's address."""
    tree = fabric.tree
    for host in tree.hosts():
        edge = tree.edge_of(host)
        yield fabric.lab.interface(edge, tree.port(edge, host)), int(tree.ip(host))


def _switch_ports(fabric: EmulatedFabric) -> Iterator[str]:
    for link in fabric.tree.switch_links():
        assert isinstance(link.lower, Switch)
        for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            yield fabric.lab.interface(node, fabric.tree.port(node, towards))
