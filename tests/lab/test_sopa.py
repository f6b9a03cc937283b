"""The whole system with real packets: labels of both carriers, switches that obey them, failures under traffic, a hostile host."""

import signal
import time
from collections import Counter
from itertools import pairwise

import pytest

from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from sopa_ryu.agent.label import edge_parser
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from tests.helpers.hostile import denied, frame
from tests.helpers.sopa_lab import GONE_SECONDS, UDP_PORT, datagrams, hits, known, lost, revalidated, run, without
from tests.helpers.veth import raw_socket
from tests.helpers.waiting import eventually
from tests.lab.conftest import NO_LABEL, SEED
from tests.lab.switches import flaps
from topologies import Failures, Level
from topologies.structure import BFD_MAC


def test_every_packet_carries_exactly_the_path_that_the_seed_decides(lab: SopaLab) -> None:
    src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_1_3")
    table = path_table(lab.tree, src, Failures(lab.tree), SEED, Policy.ROUND_ROBIN)
    before = lab.lab.port_packets(Level.CORE)
    for port in (7001, 7002):
        key = FlowKey.of(str(lab.tree.ip(src)), str(lab.tree.ip(dst)), 17, port, UDP_PORT)
        assert datagrams(lab, "h0_0_2", "h2_1_3", 40, port) == [table.choose(key, n) for n in range(40)]

    def spread() -> dict[str, int]:
        now = lab.lab.port_packets(Level.CORE)
        return {name: now[name] - before[name] for name in now}

    # and the switches obey: 80 packets, 20 over each core switch (ICMP errors come back unevenly, if at all)
    eventually(spread, lambda counts: min(counts.values()) >= 20)


def test_a_host_whose_address_is_not_the_plans_is_learned_from_its_arp(lab: SopaLab) -> None:
    for mac in ("06:aa:bb:cc:dd:ee", "06:00:00:00:00:77", str(lab.tree.mac(lab.tree.host("h2_0_2")))):
        revalidated(lab)  # or a request with the former address, not yet counted, is what is learned (docs/platform.md)
        run(lab, "h2_0_2", "ip", "link", "set", "h2_0_2-eth0", "address", mac)
        run(lab, "h2_0_2", "ip", "neigh", "flush", "all")  # so that it sends ARP
        eventually(lambda: lost(lab, "h2_0_2", "h1_1_2", 1, late=GONE_SECONDS), 0)
        revalidated(lab)
        assert lost(lab, "h2_0_2", "h0_0_2", 3) == 0
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0


def sends(stream: UdpStream) -> None:
    """Wait until a stream has sent so many more datagrams that every path has had some."""
    enough = len(stream.sent_at) + 300
    eventually(lambda: len(stream.sent_at), lambda value: value > enough)


@pytest.mark.parametrize("link", ["a0_1-c1_0", "e2_0-a2_1"])
def test_no_packet_is_lost_to_a_cut_link_after_the_last_acknowledgement(lab: SopaLab, link: str) -> None:
    assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
    with UdpStream(lab.lab, lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2"), per_second=500) as stream:
        sends(stream)
        with without(lab, link):
            change = lab.controller.get("/changes").json()["changes"][0]
            told = change["at"] + change["acknowledged_ms"] / 1000
            sends(stream)
            end = time.time()
            eventually(lambda: stream.lost(first=told, last=end), [])


def test_a_controller_restart_during_failures_costs_no_packet(lab: SopaLab) -> None:
    """Neither of a host that labels nor of one that may not; agents and switches come back, and the failures are known again."""
    pairs = [tuple(map(lab.tree.host, names)) for names in (("h0_0_2", "h2_0_2"), (NO_LABEL, "h2_1_2"))]
    epoch, failed = lab.controller.fabric()["epoch"], ("a2_0-c0_1", "e0_0-a0_1")
    with without(lab, *failed):
        assert [lost(lab, lab.tree.name(src), lab.tree.name(dst), 3) for src, dst in pairs] == [0, 0]
        one, other = (UdpStream(lab.lab, *pair, per_second=250) for pair in pairs)
        with one, other:
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


def test_nothing_that_a_host_sends_changes_the_state_of_a_link_a_switch_or_a_neighbour(lab: SopaLab) -> None:
    src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_1_3")
    before, changed = lab.controller.fabric(), flaps(lab.lab)
    assert len(changed) == 64
    frames = [frame(flow) for flow in denied(lab, src, dst)]
    stopped = ("dl_dst=" + BFD_MAC, "tp_dst=", "nw_frag=first")
    counts = [hits(lab, "e0_0", f"priority=65,.*{which}") for which in stopped]
    with raw_socket(lab.lab.netns(src), "h0_0_2-eth0", 0) as wire:
        for number, each in enumerate(frames):
            wire.send(each)
            if number % 50 == 0:  # a socket of a switch that has no processor takes only so many
                assert lost(lab, "h0_0_2", "h2_1_3", 1) == 0
    # it is the edge switch that stops them
    for which, count in zip(stopped, counts, strict=True):
        eventually(lambda which=which, count=count: hits(lab, "e0_0", f"priority=65,.*{which}") > count)
    after = lab.controller.fabric()
    assert (after["version"], after["failures"]) == (before["version"], [])
    assert after["connected"] == lab.tree.switch_count
    assert flaps(lab.lab) == changed
    assert all(lab.lab.bfd_up().values())
    wiring = lab.controller.get("/wiring").json()
    assert (wiring["problems"], wiring["refused"]) == ([], 0)
    assert {agent["lag"] for agent in lab.controller.get("/agents").json()["agents"]} == {0}


# the carrier ``option``: on the wire it is shown by tests/bpf/test_option_wire.py


def seen_by(lab: SopaLab, host: str) -> dict[str, int]:
    """Return the counters of the parser at a host's port."""
    number = list(map(lab.tree.name, lab.tree.hosts())).index(host)
    status = edge_parser.status(list(lab.host_ports())[number])
    assert status is not None
    return status.counters


def test_packets_take_the_paths_that_they_name_over_every_core_switch(option: SopaLab) -> None:
    src = option.tree.host("h0_0_2")
    table = path_table(option.tree, src, Failures(option.tree), 1, Policy.ROUND_ROBIN)

    def taken() -> list[list[int]]:
        """Return what each aggregation switch has handed to each of its core switches, by the word's second hop."""
        sources = [rf"dl_src=00:00:00:00:00:{up:02x}|dl_src=02:53:9e:04:00:{up:02x}" for up in (0, 1)]
        return [[hits(option, name, source) for source in sources] for name in ("a0_0", "a0_1")]

    before, believed = taken(), seen_by(option, "h0_0_2")["believed"]
    words = datagrams(option, "h0_0_2", "h1_0_2", 64, 7002)
    assert set(words) == set(table.candidates(option.tree.ip(option.tree.host("h1_0_2"))) or ())
    assert all(a[0] != b[0] for a, b in pairwise(words) if a and b)
    assert Counter(Counter(words).values()) == {16: 4}
    eventually(lambda: seen_by(option, "h0_0_2")["believed"], believed + 64)
    eventually(taken, [[count + 16 for count in counts] for counts in before])


def test_the_parser_survives_a_restart_of_the_switch(option: SopaLab) -> None:
    def attached() -> list[tuple[int, object]]:
        return [(its.identifier, its.mode) for its in map(edge_parser.status, option.host_ports()) if its is not None]

    before = attached()
    option.lab.ovs.restart()
    option.controller.wait_connected(option.tree.switch_count)
    eventually(lambda: lost(option, "h0_0_2", "h1_0_2", 1, late=GONE_SECONDS), 0)
    assert attached() == before
    assert len(before) == option.tree.host_count
    believed = seen_by(option, "h0_0_2")["believed"]
    assert lost(option, "h0_0_2", "h1_0_2", 4) == 0
    assert seen_by(option, "h0_0_2")["believed"] >= believed + 4
