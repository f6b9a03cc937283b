"""A host leaves bad paths by itself, controller or not, and takes them again."""

from __future__ import annotations

import re
import socket
import time

from experiments.bench.measure_reaction import DST, SRC, Fault, left_after, stopped
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.label_wire import LabelWire
from experiments.emulation.traffic.udp_stream import PORT, UdpStream
from tests.helpers.sopa_lab import in_lab
from tests.helpers.waiting import eventually

WARM_SECONDS = 2.0


def agents_log(lab: SopaLab) -> str:
    assert lab.agent is not None
    return lab.agent.log.read_text()


def test_a_host_leaves_a_silent_links_paths_without_a_controller_and_takes_them_again() -> None:
    def body(lab: SopaLab) -> None:
        src, dst = lab.tree.host(SRC), lab.tree.host(DST)
        eventually(lambda: len(re.findall(r"assignment \d+ in force", agents_log(lab))) >= lab.tree.host_count)
        fault = Fault(lab, (0, 1), 2)  # down to the pod of the receiver: no switch before it can take another way
        assert (fault.link, fault.towards) == ("a2_0-c0_1", "a2_0")
        with UdpStream(lab.lab, src, dst) as stream, LabelWire(lab.lab, src, socket.IPPROTO_UDP, PORT) as wire:
            eventually(lambda: wire.next({(0, 1)}, 0.0))
            time.sleep(WARM_SECONDS)  # of probing the racks that the packets go to
            with stopped(lab):
                began, left, back = left_after(lab, fault, wire)
        assert left < 1.2, "packets were still sent over the link when it healed"
        assert back is not None, "the host does not take the path again"
        assert stream.lost(began + left + 0.01, began + 1.4) == []
        assert len(stream.lost(began, began + left + 0.01)) > 0
        log = agents_log(lab)
        assert re.search(
            rf"{SRC}: leaves (path \(0, 1\) to rack e2_1|the paths over link \S+): \d+ probes in a row lost", log
        )
        assert re.search(rf"{SRC}: takes (path \(0, 1\) to rack e2_1|the paths over link \S+) again: \d+ probes", log)

    in_lab(body)
