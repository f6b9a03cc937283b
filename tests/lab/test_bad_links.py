"""Bad links in the lab: one direction loses what its counter says, or is slow; nothing of it is left afterwards."""

from __future__ import annotations

import socket
import struct
from itertools import takewhile

import pytest

from experiments.core.draws import Kind, hits, stream
from experiments.emulation.bad_links import BadLinks, Count
from sopa_ryu.agent.kernel.netns import inside
from tests.lab.test_lab_faults import in_lab, run
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


def sent(lab: Lab, source: str, destination: str) -> list[int]:
    """Send numbered datagrams from one host to another; return the numbers that arrive, in order."""
    with inside(lab.netns(destination)):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(lab.netns(source)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address, got = (str(lab.tree.ip(lab.tree.host(destination))), 9), []
    with receiver, sender:
        receiver.bind(address)
        for number in range(DATAGRAMS):
            sender.sendto(struct.pack("!I", number), address)
            receiver.settimeout(0.01 if number % 20 == 19 else 0.0)  # no more in flight than a queue holds
            try:
                while True:
                    got.append(struct.unpack("!I", receiver.recv(64))[0])
            except (TimeoutError, BlockingIOError):
                pass
        receiver.settimeout(1.0)
        try:
            while True:
                got.append(struct.unpack("!I", receiver.recv(64))[0])
        except TimeoutError:
            return got


def test_a_grey_link_loses_what_its_counter_says_in_one_direction() -> None:
    def body(lab: Lab) -> None:
        here, there = "h0_0_2", "h1_0_2"
        learned(lab, here, there)
        assert sent(lab, here, there) == sent(lab, there, here) == list(range(DATAGRAMS))
        with BadLinks(lab) as bad:
            bad.set_loss(LINK, "c0_0", 0.1, seed=3)
            got, back = sent(lab, here, there), sent(lab, there, here)
            lost = list(takewhile(lambda number: number < DATAGRAMS, hits(stream(3, LINK, "c0_0", Kind.LOSS), 0.1)))
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
