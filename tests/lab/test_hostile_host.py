"""A hostile root on a host, against real Open vSwitch with real BFD: no link, switch or neighbour changes state."""

from __future__ import annotations

import socket

from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.southbound.bfd import REQUIRES, SENDS_TO
from tests.helpers.hostile import Hostile
from tests.helpers.sopa_lab import hits, lost, set_bfd
from tests.helpers.waiting import eventually
from tests.lab.switches import flaps
from topologies.structure import BFD_MAC

FRAMES = 1200
SEEDS = (1, 2)
BATCH = 50


def attack(lab: SopaLab, name: str, seed: int) -> None:
    """Send the frames in batches; a ping between them shows that the switches have taken what came before."""
    host = lab.tree.host(name)
    with inside(lab.lab.netns(host)):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with wire:
        wire.bind((lab.lab.interface(host, 0), 0))
        frames = list(Hostile(lab.tree, host, seed).frames(FRAMES))
        for first in range(0, FRAMES, BATCH):
            for frame in frames[first : first + BATCH]:
                wire.send(frame)
            assert lost(lab, "h2_1_3", "h1_0_2", 1) == 0


def test_nothing_that_a_host_sends_changes_the_state_of_a_link_a_switch_or_a_neighbour(lab: SopaLab) -> None:
    assert lost(lab, "h0_0_2", "h2_1_3", 3) == 0
    before = lab.controller.fabric()
    changed = flaps(lab.lab)
    assert len(changed) == 64
    for name, seed in zip(("h0_0_2", "h3_1_3"), SEEDS, strict=True):
        attack(lab, name, seed)
    after = lab.controller.fabric()
    assert (after["version"], after["failures"]) == (before["version"], [])
    assert after["connected"] == lab.tree.switch_count
    assert flaps(lab.lab) == changed
    assert all(lab.lab.bfd_up().values())
    wiring = lab.controller.get("/wiring").json()
    assert (wiring["problems"], wiring["refused"]) == ([], 0)
    neighbours = {agent["host"]: agent["lag"] for agent in lab.controller.get("/agents").json()["agents"]}
    assert set(neighbours.values()) == {0}
    assert lost(lab, "h1_1_2", "h0_0_3") == 0
    # it was the edge switches that stopped them
    for edge in ("e0_0", "e3_1"):
        assert hits(lab, edge, f"priority=65,.*dl_dst={BFD_MAC}") > FRAMES / 30
        assert hits(lab, edge, "priority=65,.*tp_dst=") > FRAMES / 30
        assert hits(lab, edge, "priority=65,.*nw_frag=first") > FRAMES / 300


def test_neither_whole_nor_fragmented_bfd_gets_past_the_edge(lab: SopaLab) -> None:
    """Also where links have BFD without the fabric's address, as somebody else may have enabled it."""
    # the requirement first, or links would go down
    for key in (REQUIRES, SENDS_TO):
        names = [interface for interface, _ in lab.lab.fabric_interfaces()]
        lab.lab.ovs.vsctl(*(word for name in names for word in ("--", "remove", "Interface", name, "bfd", key)))
    eventually(lambda: (all(lab.lab.bfd_up().values()), lab.controller.fabric()["failures"]), (True, []))
    changed, version = flaps(lab.lab), lab.controller.fabric()["version"]
    host = lab.tree.host("h0_0_2")
    with inside(lab.lab.netns(host)):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    hostile = Hostile(lab.tree, host, 7)
    with wire:
        wire.bind((lab.lab.interface(host, 0), 0))
        for _ in range(10):
            for number in range(BATCH):
                wire.send((hostile.bfd, hostile.bfd_fragment)[number % 2]())
            assert lost(lab, "h0_0_2", "h2_1_3", 2) == 0
    assert flaps(lab.lab) == changed
    assert lab.controller.fabric()["version"] == version
    for key in (SENDS_TO, REQUIRES):
        set_bfd(lab, **{key: f'"{BFD_MAC}"'})
