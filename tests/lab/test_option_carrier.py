"""The ``option`` carrier in the whole lab: which way packets take, and what hosts may not do (on the wire: tests/bpf)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent import edge_parser
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from tests.helpers.sopa_lab import GONE_SECONDS, datagrams, hits, lost, without
from tests.helpers.waiting import eventually
from tests.lab.conftest import NO_LABEL
from topologies import Failures


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


def test_every_kind_of_pair_is_connected_and_failed_paths_are_excluded(option: SopaLab) -> None:
    for dst in ("h0_0_3", "h0_1_2", "h1_0_2", NO_LABEL):
        assert lost(option, "h0_0_2", dst, 3) == 0
        assert lost(option, dst, "h0_0_2", 3) == 0
    with without(option, "a0_0-c0_0"):
        assert set(datagrams(option, "h0_0_2", "h1_0_2", 12, 7003)) == {(0, 1), (1, 0), (1, 1)}
        assert lost(option, "h0_0_2", "h1_0_2", 8) == 0


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
