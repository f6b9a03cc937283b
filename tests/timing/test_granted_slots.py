"""CFR: data leaves in granted slots on their paths, and nothing else does; two hosts send to a third one in slots of 3.2 ms."""

import time
from pathlib import Path

from tests.helpers.cfr_fabric import CLOCK_NS, cfr_fabric, flows, judge
from tests.helpers.slot_arbiter import SlotArbiter
from tests.helpers.waiting import eventually
from tests.timing.controls import Timer
from tests.timing.judge import Timing

EDGE_NS = 600_000
"""So late in its slot a packet may leave its host, at the most."""
SECONDS = 1.0


def test_data_leaves_in_granted_slots_on_their_paths(timing: Timing, tmp_path: Path) -> None:
    with (
        cfr_fabric(tmp_path) as fabric,
        SlotArbiter(fabric.arbiter_port, lease_ms=2000) as arbiter,
        fabric.agent(),
        fabric.streams() as streams,
    ):
        eventually(fabric.closed, [1.0, 1.0])
        flows(streams)

        def share_on_time() -> float:
            """Return the share of packets that left in the first part of a slot of their host, with its label."""
            wire = fabric.wire()
            time.sleep(SECONDS)
            late, elsewhere = judge(wire.close(), arbiter)
            return sum(each < EDGE_NS + CLOCK_NS for each in late) / (len(late) + elsewhere)

        def mbit() -> float:
            """Return what the slower one of both streams gets."""
            before, begin = [its.received for its in streams], time.monotonic()
            time.sleep(SECONDS)
            got = [its.received - was for its, was in zip(streams, before, strict=True)]
            return 8 * min(got) / (time.monotonic() - begin) / 1e6

        def queue() -> float:
            """Return the packets that wait for the receiver's link, in 99% of some looks."""
            seen = sorted(fabric.rack.queue() for _ in range(50))
            return float(seen[len(seen) * 99 // 100])

        control = Timer()
        timing.at_least(0.97, share_on_time, what="packets in their slots", control=control, tolerated=0.01)
        timing.at_least(0.8, mbit, what="Mbit/s of the slower stream", control=control, tolerated=0.02)
        timing.at_most(2, queue, what="packets at the receiver's link", control=control, tolerated=0.05)
