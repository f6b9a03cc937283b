"""A host leaves bad paths by itself, controller or not, and takes them again."""

from __future__ import annotations

import re
import socket
import time

import pytest

from experiments.bench.measure_reaction import DST, OPTIONS, SRC, TCP_PORT, Fault, TcpFlow, scattered
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.label_wire import LabelWire
from experiments.emulation.traffic.udp_stream import PORT, UdpStream
from tests.helpers.sopa_lab import in_lab
from tests.helpers.waiting import eventually
from topologies.lab.standstill import standing_still

SLOW_BFD_MS = 5000  # it finds nothing as long as the test takes, and on a busy machine no link that is well
WARM_SECONDS = 2.0
AWAY_SECONDS = 0.5
LEAVES = re.compile(rf"{SRC}: leaves (path \(0, 1\) to rack e2_1|the paths over link \S+):")


def agents_log(lab: SopaLab) -> str:
    assert lab.agent is not None
    return lab.agent.log.read_text()


def all_probe(lab: SopaLab) -> None:
    """Wait until every host has been told what to probe."""
    eventually(lambda: len(re.findall(r"assignment \d+ in force", agents_log(lab))) >= lab.tree.host_count, seconds=90)


def has_left(wire: LabelWire) -> bool:
    """Return True once packets have not carried the bad path's label for a while."""
    return bool(wire.seen) and wire.seen[-1][0] - (wire.last({(0, 1)}, 0.0) or 0.0) > AWAY_SECONDS


def test_a_host_leaves_a_silent_links_paths_without_a_controller_and_takes_them_again() -> None:
    def body(lab: SopaLab) -> None:
        src, dst = lab.tree.host(SRC), lab.tree.host(DST)
        all_probe(lab)
        fault = Fault(lab, (0, 1), 2)  # down to the pod of the receiver: no switch before it can take another way
        assert (fault.link, fault.towards) == ("a2_0-c0_1", "a2_0")
        with UdpStream(lab.lab, src, dst) as stream, LabelWire(lab.lab, src, socket.IPPROTO_UDP, PORT) as wire:
            eventually(lambda: wire.next({(0, 1)}, 0.0))
            time.sleep(WARM_SECONDS)  # of probing the rack that the packets go to
            with standing_still(lab.controller.pid):
                began = time.time()
                fault.set(True)
                eventually(lambda: has_left(wire), seconds=60)
                left, now = wire.last({(0, 1)}, 0.0) or 0.0, time.time()
                fault.set(False)
                eventually(lambda: wire.next({(0, 1)}, now), seconds=90.0)
        while_used, after = stream.lost(began, left), stream.lost(left + 0.05, left + AWAY_SECONDS)
        assert while_used
        assert len(after) < 0.02 * sum(left + 0.05 <= at <= left + AWAY_SECONDS for at in stream.sent_at)
        log = agents_log(lab)
        assert re.search(
            rf"{SRC}: leaves (path \(0, 1\) to rack e2_1|the paths over link \S+): \d+ probes in a row lost", log
        )
        assert re.search(rf"{SRC}: takes (path \(0, 1\) to rack e2_1|the paths over link \S+) again: \d+ probes", log)

    in_lab(body, probes=True, bfd_ms=SLOW_BFD_MS)


@pytest.mark.parametrize("policy", ["cfr"])  # mcs: make bench ARGS=reaction
def test_a_host_that_sends_by_another_policy_leaves_the_paths_too_and_its_flow_goes_on(policy: str) -> None:
    def body(lab: SopaLab) -> None:
        src, dst = lab.tree.host(SRC), lab.tree.host(DST)
        all_probe(lab)
        fault = Fault(lab, (0, 1), 2)
        scattered(lab, policy)
        with LabelWire(lab.lab, src, socket.IPPROTO_TCP, TCP_PORT) as wire, TcpFlow(lab, src, dst) as flow:
            eventually(lambda: wire.next({(0, 1)}, 0.0))
            time.sleep(WARM_SECONDS)
            with standing_still(lab.controller.pid):
                granted = cells(lab)
                fault.set(True)
                eventually(lambda: LEAVES.search(agents_log(lab)), seconds=60)
                eventually(lambda: has_left(wire), seconds=60)  # slots that were written before stay as they are
                received, now = flow.received, time.time()
                eventually(lambda: flow.received > received + 50_000, seconds=60)
                assert wire.last({(0, 1)}, now) is None
                assert {label for at, label in wire.seen if at > now} - {None} >= {(0, 0), (1, 0), (1, 1)}
                assert cells(lab) > granted or lab.arbiter is None  # it goes on to grant the path, too
                fault.set(False)
                eventually(lambda: wire.next({(0, 1)}, now), seconds=90.0)
        log = agents_log(lab)
        assert re.search(rf"{SRC}: takes (path \(0, 1\) to rack e2_1|the paths over link \S+) again:", log)

    in_lab(body, probes=True, bfd_ms=SLOW_BFD_MS, **OPTIONS[policy])


def cells(lab: SopaLab) -> float:
    """The cells that the arbiter has granted, if there is one."""
    return 0.0 if lab.arbiter is None else lab.arbiter.metrics()["sopa_arbiter_granted_cells_total"]
