"""Failures under traffic: what agents and switches do about them, and that the end of a controller costs nothing."""

from __future__ import annotations

import signal
import time

import pytest

from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from tests.helpers.sopa_lab import datagrams, hits, lost
from tests.helpers.waiting import eventually
from tests.lab.conftest import NO_LABEL

SENT = 300
"""Datagrams before an event, and after all know of it: so many that every path has had some."""
FAR = ("e2_0-a2_0", "e2_0-a2_1")
"""The ways to the rack of h2_0_2."""


def carried(lab: SopaLab, core: str) -> int:
    """Return how many packets of hosts a core switch has sent down; BFD's and probes are not among them."""
    return hits(lab, core, r"table=1,.*priority=40")


def known(lab: SopaLab, *failed: str) -> None:
    """Wait until exactly these have failed, and all switches and agents know it."""
    eventually(lambda: {each["name"] for each in lab.controller.fabric()["failures"]}, set(failed))
    eventually(lambda: lab.controller.get("/changes").json()["changes"][0]["installed_ms"] is not None)
    lab.controller.wait_agents(lab.tree.host_count)


def sends(stream: UdpStream, more: int = SENT) -> None:
    """Wait until a stream has sent so many more datagrams."""
    enough = len(stream.sent_at) + more
    eventually(lambda: len(stream.sent_at), lambda value: value > enough)


def test_a_cut_link_is_told_avoided_and_used_again(lab: SopaLab) -> None:
    src, dst = "h0_0_2", "h2_0_2"
    assert (0, 1) in datagrams(lab, src, dst, 8, 7001)
    lab.lab.set_link("a2_0-c0_1", up=False)
    known(lab, "a2_0-c0_1")
    assert set(datagrams(lab, src, dst, 12, 7001)) == {(0, 0), (1, 0), (1, 1)}
    # to another pod that path is as good as ever
    assert set(datagrams(lab, src, "h1_0_2", 12, 7001)) == {(0, 0), (1, 0), (0, 1), (1, 1)}
    assert lost(lab, src, dst, 12) == 0
    lab.lab.set_link("a2_0-c0_1", up=True)
    known(lab)
    assert (0, 1) in datagrams(lab, src, dst, 8, 7001)


def test_packets_to_a_rack_without_any_path_go_unlabelled(lab: SopaLab) -> None:
    assert lab.agent is not None
    for link in FAR:
        lab.lab.set_link(link, up=False)
    known(lab, *FAR)
    assert "no path is left to 1 racks; packets for them go unlabelled" in lab.agent.log.read_text()
    assert set(datagrams(lab, "h0_0_2", "h2_0_2", 4, 7001)) == {None}
    assert None not in datagrams(lab, "h0_0_2", "h2_1_2", 4, 7001)
    for link in FAR:
        lab.lab.set_link(link, up=True)
    known(lab)
    assert "there are paths to every rack again" in lab.agent.log.read_text()
    assert None not in datagrams(lab, "h0_0_2", "h2_0_2", 4, 7001)


def test_a_drained_switch_carries_nothing_and_cuts_nobody_off(lab: SopaLab) -> None:
    for name in ("c0_0", "e2_0"):
        lab.controller.change("PUT", f"/drains/{name}").raise_for_status()
    known(lab, "c0_0", "e2_0")
    before = carried(lab, "c0_0")
    assert lost(lab, "h0_0_2", "h1_0_2", 12) == 0
    assert carried(lab, "c0_0") == before
    assert lost(lab, "h0_0_2", "h2_0_2", 4) == 0  # its only edge switch is drained
    for name in ("c0_0", "e2_0"):
        lab.controller.change("DELETE", f"/drains/{name}").raise_for_status()


@pytest.mark.parametrize("link", ["a0_1-c1_0", "e2_0-a2_1"])
def test_no_packet_is_lost_to_a_cut_link_after_the_last_acknowledgement(lab: SopaLab, link: str) -> None:
    assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
    with UdpStream(lab.lab, lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2"), per_second=500) as stream:
        eventually(lambda: len(stream.arrived), lambda value: value > SENT)
        lab.lab.set_link(link, up=False)
        known(lab, link)
        change = lab.controller.get("/changes").json()["changes"][0]
        told = change["at"] + change["acknowledged_ms"] / 1000
        sends(stream)
        end = time.time()
        eventually(lambda: stream.lost(first=told, last=end), [])
    lab.lab.set_link(link, up=True)


def test_a_controller_restart_during_failures_costs_no_packet(lab: SopaLab) -> None:
    """Neither of a host that labels nor of one that may not; agents and switches come back, and the failures are known again."""
    failed = ("a2_0-c0_1", "e0_0-a0_1")
    for link in failed:
        lab.lab.set_link(link, up=False)
    known(lab, *failed)
    epoch = lab.controller.fabric()["epoch"]
    pairs = [tuple(map(lab.tree.host, names)) for names in (("h0_0_2", "h2_0_2"), (NO_LABEL, "h2_1_2"))]
    assert [lost(lab, lab.tree.name(src), lab.tree.name(dst), 3) for src, dst in pairs] == [0, 0]
    with UdpStream(lab.lab, *pairs[0], per_second=250) as one, UdpStream(lab.lab, *pairs[1], per_second=250) as other:
        for stream in (one, other):
            sends(stream)
        lab.controller.stop(signal.SIGKILL)
        for stream in (one, other):
            sends(stream)
        lab.controller.start()
        lab.controller.wait_connected(lab.tree.switch_count)
        known(lab, *failed)
        for stream in (one, other):
            sends(stream)
            last = len(stream.sent_at)
            eventually(lambda stream=stream, last=last: stream.arrived >= set(range(last)))
    assert lab.controller.fabric()["epoch"] > epoch
    assert one.lost() == other.lost() == []
    for link in failed:
        lab.lab.set_link(link, up=True)
