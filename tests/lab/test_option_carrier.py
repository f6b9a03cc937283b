"""The ``option`` carrier in the whole lab: what is on the wire, which way packets take, and what hosts may not do."""

from __future__ import annotations

import re
import socket
import subprocess
from collections import Counter
from itertools import pairwise

from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent import edge_parser
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from tests.helpers.sopa_lab import GONE_SECONDS, UDP_PORT, datagrams, hits, lost, run
from tests.helpers.waiting import eventually
from tests.lab.conftest import NO_LABEL
from topologies import Failures
from topologies.lab.standstill import standing_still

FORGED = bytes.fromhex("02000000000102539e0401010800")


def seen_by(lab: SopaLab, host: str) -> dict[str, int]:
    """Return the counters of the parser at a host's port."""
    number = list(map(lab.tree.name, lab.tree.hosts())).index(host)
    status = edge_parser.status(list(lab.host_ports())[number])
    assert status is not None
    return status.counters


def test_the_option_is_on_the_wire_and_the_receiving_socket_sees_none(option: SopaLab) -> None:
    dump = subprocess.Popen(
        ["tcpdump", "-c", "4", "-U", "-xx", "-n", "-i", "e0_0-eth1", f"udp dst port {UDP_PORT}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert dump.stderr
    while "listening" not in dump.stderr.readline():
        pass
    with inside(option.lab.netns("h1_0_2")):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver:
        receiver.bind(("", UDP_PORT))
        receiver.settimeout(60)
        receiver.setsockopt(socket.IPPROTO_IP, 6, 1)  # IP_RECVOPTS
        words = datagrams(option, "h0_0_2", "h1_0_2", 4, 7001)
        arrived = set()
        for _ in range(4):  # by different paths: in any order
            data, ancillary, _, _ = receiver.recvmsg(100, 100)
            arrived.add(data)
            assert all(not options for _, kind, options in ancillary if kind == 6)
    assert arrived == {b"0", b"1", b"2", b"3"}
    out, _ = dump.communicate(timeout=60)
    for word in words:
        assert word is not None
        # IPv4 header, length 24, and the word behind the addresses
        assert re.search(rf"0800 4600 .*9e04 {bytes(word).hex()}", re.sub(r"\s+0x\w+:\s+", " ", out)), out


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


def test_every_kind_of_pair_is_connected_and_failed_paths_are_excluded(option: SopaLab) -> None:
    for dst in ("h0_0_3", "h0_1_2", "h1_0_2", NO_LABEL):
        assert lost(option, "h0_0_2", dst, 3) == 0
        assert lost(option, dst, "h0_0_2", 3) == 0
    option.lab.set_link("a0_0-c0_0", False)
    eventually(lambda: len(option.controller.fabric()["failures"]), 1)
    option.controller.wait_agents(option.tree.host_count)
    assert set(datagrams(option, "h0_0_2", "h1_0_2", 12, 7003)) == {(0, 1), (1, 0), (1, 1)}
    assert lost(option, "h0_0_2", "h1_0_2", 8) == 0
    option.lab.set_link("a0_0-c0_0", True)


def test_a_label_that_a_host_forges_is_ignored_and_counted(option: SopaLab) -> None:
    assert lost(option, "h0_0_2", "h1_0_2", 1) == 0
    header = bytes.fromhex("4500001c000700004011") + b"\0\0" + bytes([10, 0, 0, 2, 10, 1, 0, 2])
    with inside(option.lab.netns("h0_0_2")):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    before, forged = hits(option, "a0_1", "dl_src=02:53:9e:04:00:01"), seen_by(option, "h0_0_2")["forged"]
    with raw:
        raw.bind(("h0_0_2-eth0", 0x88B5))
        # the agent's program would write a right word: so it is taken off first, and the agent does not put it back
        assert option.agent is not None
        with standing_still(option.agent.pid):
            run(option, "h0_0_2", "tc", "filter", "del", "dev", "h0_0_2-eth0", "egress")
            for port in range(8):
                raw.send(FORGED + header + (7000 + port).to_bytes(2, "big") + b"\x23\x28\x00\x08\x00\x00")
    eventually(lambda: seen_by(option, "h0_0_2")["forged"], forged + 8)
    assert hits(option, "a0_1", "dl_src=02:53:9e:04:00:01") == before
    eventually(lambda: datagrams(option, "h0_0_2", "h1_0_2", 1, 7005) != [None])  # the agent puts its program back


def test_a_host_without_a_right_to_a_label_is_heard_but_chooses_no_path(option: SopaLab) -> None:
    refused = r"priority=35,.*dl_src=02:53:9e:04:00:00"
    before = hits(option, "e1_1", refused)
    assert lost(option, NO_LABEL, "h0_0_2", 4) == 0
    eventually(lambda: hits(option, "e1_1", refused) > before)
    hashed = hits(option, "e1_1", "bundle")
    datagrams(option, NO_LABEL, "h0_0_2", 8, 7004)
    eventually(lambda: hits(option, "e1_1", "bundle") - hashed, lambda count: count >= 8)
    assert lost(option, "h1_1_2", "h0_0_2", 4) == 0


def test_the_parser_survives_a_restart_of_the_switch(option: SopaLab) -> None:
    before = [edge_parser.status(port) for port in option.host_ports()]
    option.lab.ovs.restart()
    option.controller.wait_connected(option.tree.switch_count)
    eventually(lambda: lost(option, "h0_0_2", "h1_0_2", 1, late=GONE_SECONDS), 0)
    for port, was in zip(option.host_ports(), before, strict=True):
        now = edge_parser.status(port)
        assert now is not None
        assert was is not None
        assert (now.identifier, now.mode) == (was.identifier, was.mode)
    believed = seen_by(option, "h0_0_2")["believed"]
    assert lost(option, "h0_0_2", "h1_0_2", 4) == 0
    assert seen_by(option, "h0_0_2")["believed"] >= believed + 4
