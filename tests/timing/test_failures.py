"""How soon a failure has no more effect on packets: at the switches without a controller, at the agents, and of a silent link."""

import random
import socket
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle

from experiments.bench.silence import Fault
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.label_wire import LabelWire
from experiments.emulation.traffic.udp_stream import PORT, UdpStream
from tests.helpers.sopa_lab import QUICK, in_lab, lost
from tests.helpers.waiting import eventually
from tests.timing.controls import Timer, VethPing
from tests.timing.judge import Timing
from topologies import Clos, FatTree
from topologies.lab.faults import set_silent
from topologies.lab.standstill import standing_still

SRC, DST = "h0_0_2", "h2_1_3"
TREE, PODS = FatTree(4), Clos(2, 2, 2, 4, 2)
IN_PODS = "h1_1_3"
PER_SECOND = 1000
SLOW_START_SECONDS = 1.5
"""A new BFD session uses its slow interval of 1 s at first (RFC 5880, section 6.8.3)."""
NEVER, NEVER_AFTER_SECONDS = float("inf"), 5.0


def at_rest(lab: SopaLab) -> None:
    eventually(lambda: lab.controller.fabric()["failures"], [])
    lab.controller.wait_agents(TREE.host_count)


def told(lab: SopaLab, links: list[str], fail: Callable[[str, bool], None], key: str) -> float:
    """Let a link fail and heal; return the seconds from then until the controller knows (`at`), or from that to the last agent."""
    at_rest(lab)
    name, since = links.pop(), lab.controller.fabric()["version"]
    time.sleep(SLOW_START_SECONDS)
    began = time.time()
    fail(name, True)
    try:
        while time.time() < began + NEVER_AFTER_SECONDS:
            for change in lab.controller.get("/changes").json()["changes"]:
                if change["version"] > since and name in change["failed"] and change["acknowledged_ms"] is not None:
                    return float(change["at"] - began if key == "at" else change["acknowledged_ms"] / 1000)
            time.sleep(0.02)  # between two questions
        return NEVER
    finally:
        fail(name, False)


def lost_by(lab: SopaLab, link: str) -> float:
    """Return how many datagrams a stream loses in the second after a link has been cut, while the controller stands still."""
    at_rest(lab)
    eventually(lambda: lost(lab, SRC, DST, 3), 0)
    with UdpStream(lab.lab, TREE.host(SRC), TREE.host(DST), PER_SECOND) as stream:
        time.sleep(0.3)
        began = time.time()
        try:
            with standing_still(lab.controller.pid):
                lab.lab.set_link(link, up=False)
                time.sleep(1.0)
        finally:
            ended = time.time()
            lab.lab.set_link(link, up=True)
    return len(stream.lost(began, ended - 0.1))


def test_cut_and_silent_links(timing: Timing) -> None:
    def body(lab: SopaLab) -> None:
        links = [TREE.name(link) for link in TREE.switch_links()]
        random.Random(1).shuffle(links)
        control = Timer()
        timing.at_most(
            0.1,
            partial(told, lab, links, lambda name, failed: lab.lab.set_link(name, not failed), "acknowledged"),
            what="a cut link, from PORT_STATUS until the last of 16 agents has it in force, s",
            control=control,
            tolerated=0.03,
            reaction=True,
        )
        timing.at_most(
            0.5,
            partial(told, lab, links, lambda name, failed: set_silent(lab.lab, name, name.split("-")[1], failed), "at"),
            what="one-way silent loss until the controller has a version without the link, s",
            control=control,
            tolerated=0.05,
            reaction=True,
        )
        timing.at_most(
            15,
            partial(lost_by, lab, "e0_0-a0_0"),
            what="datagrams of 1,000 a second lost by a cut uplink, the controller stopped",
            control=VethPing(),
            tolerated=0.03,
            reaction=True,
        )

    in_lab(body, TREE, bfd_ms=100, controller_options=QUICK)


def test_hosts_leave_silent_paths_without_a_controller(timing: Timing) -> None:
    def body(lab: SopaLab) -> None:
        src, dst = PODS.host(SRC), PODS.host(IN_PODS)
        faults = cycle(Fault(lab, up, 2, (SRC, IN_PODS)) for up in ((0, 0), (0, 1), (1, 0), (1, 1)))
        with UdpStream(lab.lab, src, dst, PER_SECOND), LabelWire(lab.lab, src, socket.IPPROTO_UDP, PORT) as wire:

            def all_taken() -> bool:
                since = time.time() - 0.5
                return len({label for at, label in wire.seen[-400:] if at > since}) == 4

            def left_after() -> float:
                fault = next(faults)
                with standing_still(lab.controller.pid):
                    began = time.time()
                    fault.set(True)
                    time.sleep(1.0)
                    last = wire.last(fault.labels, began)
                    fault.set(False)
                return (last or began) - began

            def sample() -> float:
                eventually(all_taken, seconds=120)
                time.sleep(2.0)  # of probing the rack that the packets go to
                return left_after()

            timing.at_most(
                0.2,
                sample,
                what="a silent link, until the last packet whose label leads over it, s",
                control=Timer(),
                tolerated=0.03,
                reaction=True,
            )

    in_lab(body, PODS, probes=True)
