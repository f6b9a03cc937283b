"""Bad links in the lab: one direction loses what its counter says, or is slow; nothing of it is left afterwards."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Collection
from contextlib import suppress
from itertools import takewhile

import pytest

from experiments import schemes
from experiments.core.draws import Kind, hits, stream
from experiments.core.run import Run
from experiments.emulation.bad_links import BadLinks, Count
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.workloads import Scale, named
from sopa_ryu.agent.kernel.netns import inside
from tests.lab.test_lab_faults import in_lab, run
from topologies import FatTree
from topologies.lab.isolation import isolated
from topologies.lab.network import Lab

pytestmark = pytest.mark.lab

LINK, DATAGRAMS = "a0_0-c0_0", 400


def learned(lab: Lab, *hosts: str) -> None:
    """Let all switches forward as bridges do, and hosts know their gateway's address: a k=2 fabric has no loop."""
    for switch in lab.tree.switches():
        lab.ovs.ofctl("add-flow", lab.tree.name(switch), "actions=NORMAL")
    for own, other in (hosts, hosts[::-1]):
        gateway, mac = lab.tree.gateway(lab.tree.host(own)), lab.tree.mac(lab.tree.host(other))
        enter = ("nsenter", f"--net={lab.netns(own)}")
        run(
            *enter,
            "ip",
            "neighbour",
            "replace",
            str(gateway),
            "lladdr",
            str(mac),
            "dev",
            f"{own}-eth0",
            "nud",
            "permanent",
        )


def sent(lab: Lab, source: str, destination: str, lost: Collection[int] = ()) -> list[int]:
    """Send numbered datagrams from one host to another, some of which get lost; return the numbers that arrive, in order."""
    with inside(lab.netns(destination)):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(lab.netns(source)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address, got = (str(lab.tree.ip(lab.tree.host(destination))), 9), list[int]()
    with receiver, sender:
        receiver.bind(address)
        receiver.settimeout(20)
        for first in range(0, DATAGRAMS, 20):  # no more in flight than a queue holds
            batch = range(first, first + 20)
            for number in batch:
                sender.sendto(struct.pack("!I", number), address)
            waiting = {*batch} - {*lost}
            with suppress(TimeoutError):
                while not waiting <= {*got}:
                    got.append(struct.unpack("!I", receiver.recv(64))[0])
        receiver.settimeout(0.5)
        with suppress(TimeoutError):  # what should have been lost
            while True:
                got.append(struct.unpack("!I", receiver.recv(64))[0])
    return got


def test_a_grey_link_loses_what_its_counter_says_in_one_direction() -> None:
    def body(lab: Lab) -> None:
        here, there = "h0_0_2", "h1_0_2"
        learned(lab, here, there)
        assert sent(lab, here, there) == sent(lab, there, here) == list(range(DATAGRAMS))
        with BadLinks(lab) as bad:
            bad.set_loss(LINK, "c0_0", 0.1, seed=3)
            lost = list(takewhile(lambda number: number < DATAGRAMS, hits(stream(3, LINK, "c0_0", Kind.LOSS), 0.1)))
            got, back = sent(lab, here, there, lost), sent(lab, there, here)
            assert sorted({*range(DATAGRAMS)} - {*got}) == lost
            assert back == list(range(DATAGRAMS))
            assert bad.lost(LINK, "c0_0") == Count(DATAGRAMS, len(lost))
            assert 10 < len(lost) < 80
            bad.set_rate("a0_0-c0_0", "a0_0", 0.25)
            assert _rate("c0_0-eth1") == "5Mbit"
            lab.net.get("c0_0").stop(deleteIntfs=False)
            lab.net.get("c0_0").start([])  # Open vSwitch has cleared its interfaces' queueing disciplines
            assert (_rate("c0_0-eth1"), _rate("c0_0-eth2")) == ("5Mbit", "20Mbit")
        assert _rate("c0_0-eth1") == _rate("a0_0-eth2") == "20Mbit"
        assert "bad_link" not in run("tc", "filter", "show", "dev", "a0_0-eth2", "egress")
        with BadLinks(lab) as bad, pytest.raises(ValueError, match="above 0 and at most 1"):
            bad.set_rate(LINK, "c0_0", 0.0)

    in_lab(body, k=2, rate_mbit=20, bfd=False)


def _rate(interface: str) -> str:
    return run("tc", "qdisc", "show", "dev", interface, "root").split(" rate ")[1].split()[0]


def test_a_lab_without_rates_has_no_slow_link() -> None:
    def body(lab: Lab) -> None:
        with BadLinks(lab) as bad, pytest.raises(ValueError, match="start it with one"):
            bad.set_rate(LINK, "c0_0", 0.25)

    in_lab(body, k=2, bfd=False)


def test_a_run_has_the_truth_of_its_grey_link_and_heals_it() -> None:
    tree = FatTree(2)
    scale = Scale(4.0, 3.0)
    plan = named("grey-link+loss=20").build(tree, 1, scale)

    def main() -> int:
        with EmulatedFabric(tree, schemes.named("ecmp"), scale.rate_mbit) as fabric:
            run = Run(tree, plan, "grey-link+loss=20", schemes.named("ecmp"), 1, scale)
            record, flows = perform(fabric, run)
            [truth], [bad] = record.bad, plan.bad
            assert (truth["link"], truth["towards"], truth["transfers"]) == (bad.link, bad.towards, list(bad.transfers))
            draws = hits(stream(1, bad.link, bad.towards, Kind.LOSS), 0.2)
            assert truth["lost"] == len(list(takewhile(lambda number: number < truth["packets"], draws)))
            assert truth["packets"] > 0
            assert truth["at"] >= bad.after
            assert [truth["at"], str(bad)] in [list(event) for event in record.events]
            assert sum(flow.retransmits for flow in flows) > 0
            filters = subprocess.run(
                ["tc", "filter", "show", "dev", "a0_0-eth2", "egress"], capture_output=True, text=True
            )
            assert "bad_link" not in filters.stdout
        return 0

    assert isolated(main) == 0
