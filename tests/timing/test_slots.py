"""Hosts of CFR send in their slots, so that no queue grows where four of them send to one."""

from experiments.emulation.measurement.queue_lengths import QueueLengths
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.transfers import Transfers
from experiments.schemes.scheme import Slots
from experiments.workloads import Plan, Transfer
from tests.helpers.sopa_lab import in_lab
from tests.timing.controls import Timer
from tests.timing.judge import Timing
from topologies import Clos

TREE = Clos(1, 3, 2, 0, 2)
MBIT, SECONDS = 2.0, 3.0
RECEIVER = TREE.host("h0_0_2")
INCAST = tuple(Transfer(TREE.host(name), RECEIVER) for name in ("h0_1_2", "h0_1_3", "h0_2_2", "h0_2_3"))
NEVER = float("inf")


def test_four_senders_fill_no_queue(timing: Timing) -> None:
    def body(lab: SopaLab) -> None:
        edge = TREE.edge_of(RECEIVER)
        interface = lab.lab.interface(edge, TREE.port(edge, RECEIVER))

        def waiting() -> float:
            """Return the median length of the queue at the receiver's link in packets, if at least a third of it is used."""
            queue = QueueLengths({None: [interface]})
            transfers = Transfers(TREE, Plan(INCAST, SECONDS), lab.lab.netns, 1)
            transfers.run(at=[(0.5 + 0.05 * number, queue.sample) for number in range(45)])
            queue.close()
            used = sum(result.received for result in transfers.results) * 8 / (MBIT * 1e6 * SECONDS)
            lengths = sorted(queue.series[interface])
            return lengths[len(lengths) // 2] if used > 1 / 3 else NEVER

        # TCP alone: some twenty packets for each of the flows
        timing.at_most(8, waiting, what="packets in the queue of an incast with cfr", control=Timer(), tolerated=0.05)

    in_lab(body, TREE, agent_options=["--policy=cfr"], slots=Slots(1), rate_mbit=MBIT)
