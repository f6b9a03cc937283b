"""The ``option`` carrier in the whole lab: what is on the wire, which way packets take, and what hosts may not do."""

from __future__ import annotations

import re
import socket
import subprocess
from collections import Counter
from itertools import pairwise

from experiments.emulation.sopa_lab import SopaLab
from flowrules.label import Carrier
from sopa_ryu.agent import edge_parser
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from tests.helpers.sopa_lab import UDP_PORT, agent_of, datagrams, hits, host_settings, in_lab, lost, run
from tests.helpers.waiting import Containing, eventually
from topologies import Failures
from topologies.lab.standstill import standing_still

OPTION = Carrier.OPTION
FORGED = bytes.fromhex("02000000000102539e0401010800")


def seen_by(lab: SopaLab, host: str) -> dict[str, int]:
    """Return the counters of the parser at a host's port."""
    number = list(map(lab.tree.name, lab.tree.hosts())).index(host)
    status = edge_parser.status(list(lab.host_ports())[number])
    assert status is not None
    return status.counters


def test_the_option_is_on_the_wire_and_the_receiving_socket_sees_none() -> None:
    def body(lab: SopaLab) -> None:
        dump = subprocess.Popen(
            ["tcpdump", "-c", "4", "-U", "-xx", "-n", "-i", "e0_0-eth1", f"udp dst port {UDP_PORT}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert dump.stderr
        while "listening" not in dump.stderr.readline():
            pass
        with inside(lab.lab.netns("h2_0_2")):
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with receiver:
            receiver.bind(("", UDP_PORT))
            receiver.settimeout(20)
            receiver.setsockopt(socket.IPPROTO_IP, 6, 1)  # IP_RECVOPTS
            words = datagrams(lab, "h0_0_2", "h2_0_2", 4, 7001)
            arrived = set()
            for _ in range(4):  # by different paths: in any order
                data, ancillary, _, _ = receiver.recvmsg(100, 100)
                arrived.add(data)
                assert all(not options for _, kind, options in ancillary if kind == 6)
        assert arrived == {b"0", b"1", b"2", b"3"}
        out, _ = dump.communicate(timeout=20)
        for word in words:
            assert word is not None
            # IPv4 header, length 24, and the word behind the addresses
            assert re.search(rf"0800 4600 .*9e04 {bytes(word).hex()}", re.sub(r"\s+0x\w+:\s+", " ", out)), out

    in_lab(body, carrier=OPTION)


def test_packets_take_the_paths_that_they_name_over_every_core_switch() -> None:
    def body(lab: SopaLab) -> None:
        src = lab.tree.host("h0_0_2")
        table = path_table(lab.tree, src, Failures(lab.tree), 1, Policy.ROUND_ROBIN)
        words = datagrams(lab, "h0_0_2", "h3_0_2", 64, 7002)
        assert set(words) == set(table.candidates(lab.tree.ip(lab.tree.host("h3_0_2"))) or ())
        assert all(a[0] != b[0] for a, b in pairwise(words) if a and b)
        assert Counter(Counter(words).values()) == {16: 4}
        eventually(lambda: seen_by(lab, "h0_0_2")["believed"], lambda value: value >= 64)
        for name in ("a0_0", "a0_1"):  # each hands 16 to each of its core switches, by the word's second hop
            sources = [rf"dl_src=00:00:00:00:00:{up:02x}|dl_src=02:53:9e:04:00:{up:02x}" for up in (0, 1)]
            eventually(lambda name=name, sources=sources: [hits(lab, name, source) for source in sources], [16, 16])

    in_lab(body, carrier=OPTION)


def test_every_kind_of_pair_is_connected_and_failed_paths_are_excluded() -> None:
    def body(lab: SopaLab) -> None:
        for dst in ("h0_0_3", "h0_1_2", "h1_0_2", "h3_1_3"):
            assert lost(lab, "h0_0_2", dst, 3) == 0
            assert lost(lab, dst, "h0_0_2", 3) == 0
        version = lab.controller.fabric()["version"]
        lab.lab.set_link("a0_0-c0_0", False)
        eventually(lambda: lab.controller.fabric()["version"], lambda value: value > version)
        lab.controller.wait_agents(16)
        assert set(datagrams(lab, "h0_0_2", "h3_0_2", 12, 7003)) == {(0, 1), (1, 0), (1, 1)}
        assert lost(lab, "h0_0_2", "h3_0_2", 8) == 0

    in_lab(body, carrier=OPTION)


def test_a_label_that_a_host_forges_is_ignored_and_counted() -> None:
    def body(lab: SopaLab) -> None:
        assert lost(lab, "h0_0_2", "h2_0_2", 1) == 0
        header = bytes.fromhex("4500001c000700004011") + b"\0\0" + bytes([10, 0, 0, 2, 10, 2, 0, 2])
        with inside(lab.lab.netns("h0_0_2")):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        before = hits(lab, "a0_1", "dl_src=02:53:9e:04:00:01")
        with raw:
            raw.bind(("h0_0_2-eth0", 0x88B5))
            # the agent's program would write a right word: so it is taken off first, and the agent does not put it back
            assert lab.agent is not None
            with standing_still(lab.agent.pid):
                run(lab, "h0_0_2", "tc", "filter", "del", "dev", "h0_0_2-eth0", "egress")
                for port in range(8):
                    raw.send(FORGED + header + (7000 + port).to_bytes(2, "big") + b"\x23\x28\x00\x08\x00\x00")
        eventually(lambda: seen_by(lab, "h0_0_2")["forged"], 8)
        assert hits(lab, "a0_1", "dl_src=02:53:9e:04:00:01") == before

    in_lab(body, carrier=OPTION)


def test_a_host_without_a_right_to_a_label_is_heard_but_chooses_no_path() -> None:
    def body(lab: SopaLab) -> None:
        assert lost(lab, "h0_0_2", "h2_0_2", 4) == 0
        refused = r"priority=35,.*dl_src=02:53:9e:04:00:00"
        eventually(lambda: hits(lab, "e0_0", refused), lambda value: value >= 4)
        hashed = hits(lab, "e0_0", "bundle")
        datagrams(lab, "h0_0_2", "h2_0_2", 8, 7004)
        eventually(lambda: hits(lab, "e0_0", "bundle") - hashed, 8)
        assert lost(lab, "h0_0_3", "h2_0_2", 4) == 0

    for carrier in Carrier:
        in_lab(body, carrier=carrier, controller_options=["--sopa-no-label=h0_0_2"])


def test_the_parser_survives_a_restart_of_the_switch() -> None:
    def body(lab: SopaLab) -> None:
        before = [edge_parser.status(port) for port in lab.host_ports()]
        lab.lab.ovs.restart()
        lab.controller.wait_connected(20)
        eventually(lambda: lost(lab, "h0_0_2", "h2_0_2", 1), 0)
        for port, was in zip(lab.host_ports(), before, strict=True):
            now = edge_parser.status(port)
            assert now is not None
            assert was is not None
            assert (now.identifier, now.mode) == (was.identifier, was.mode)
        believed = seen_by(lab, "h0_0_2")["believed"]
        assert lost(lab, "h0_0_2", "h2_0_2", 4) == 0
        assert seen_by(lab, "h0_0_2")["believed"] == believed + 4

    in_lab(body, carrier=OPTION)


def test_an_agent_of_the_other_carrier_is_a_warning_and_stays_connected() -> None:
    def body(lab: SopaLab) -> None:
        host = lab.tree.host("h0_0_2")
        before = host_settings(lab, host)
        with agent_of(lab, host):
            lab.controller.wait_agents(1)
            [agent] = lab.controller.get("/agents").json()["agents"]
            assert agent["carrier"] == "mac"
            eventually(lab.controller.log.read_text, Containing("agent of h0_0_2 writes labels by carrier mac"))
            assert lost(lab, "h0_0_2", "h2_0_2", 4) == 0
            assert seen_by(lab, "h0_0_2")["forged"] == 4  # hashed, as any unlabelled packet
        assert host_settings(lab, host) == before

    in_lab(body, carrier=OPTION, agents=False)
