"""Hosts of CFR send in their slots, so that no queue grows where four of them send to one."""

from __future__ import annotations

from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer
from tests.timing.controls import Timer
from tests.timing.judge import Timing
from topologies import Clos
from topologies.lab.isolation import isolated

TREE = Clos(2, 2, 2, 4, 2)
RATE, SECONDS = 2.0, 4.0
RECEIVER = TREE.host("h0_0_2")
INCAST = tuple(Transfer(TREE.host(name), RECEIVER) for name in ("h0_1_2", "h1_0_2", "h1_0_3", "h1_1_3"))


def test_four_senders_fill_no_queue(timing: Timing) -> None:
    def main() -> int:
        cfr = named("cfr+slot=1")
        with EmulatedFabric(TREE, cfr, RATE) as fabric:

            def waiting() -> float:
                """Return the median length of the queue at the receiver's link in packets."""
                run = Run(TREE, Plan(INCAST, SECONDS), "test", cfr, 1, Scale(RATE, SECONDS))
                record, flows = perform(fabric, run)
                assert all(flow.bytes > 0 for flow in flows)
                assert record.options["slot_ms"] == 6.4
                edge = TREE.edge_of(RECEIVER)
                lengths = sorted(record.queues.get(fabric.lab.interface(edge, TREE.port(edge, RECEIVER)), [0]))
                return lengths[len(lengths) // 2]

            # TCP alone: some twenty packets for each of the flows
            timing.at_most(
                8, waiting, what="packets in the queue of an incast with cfr", control=Timer(), tolerated=0.05
            )
        return 0

    assert isolated(main) == 0
