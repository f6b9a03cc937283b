"""The ``id`` carrier: one label for a burst at the host, and a candidate path for each of its packets at the edge switch's port."""

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.counters import Handling
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.label import edge_spreader
from sopa_ryu.agent.label.edge_spreader import Spreader
from sopa_ryu.agent.label.spray import Spray
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import Label, PathTable, WayOut
from sopa_ryu.cli import main
from tests.bpf.labelling import labelling
from tests.bpf.test_own_traffic import again, segment
from tests.helpers.frames import INTER_POD, SAME_RACK, UDP, ip, ports, table, tcp, word_of
from tests.helpers.veth import ALL, frames, raw_socket, transfer, veth_pair

MANY = tuple((up1, up2) for up2 in range(5) for up1 in range(7))
SPREADS = table()._replace(spreads=True)
ENDED = bytes.fromhex("02530004")  # how the address of a label begins that is none any more


@pytest.fixture
def host(make_labeller: Callable[..., Labeller]) -> Labeller:
    labeller = make_labeller(carrier=Carrier.ID, spray=Spray.of("tcp"))
    labeller.swap(SPREADS)
    return labeller


@pytest.fixture
def port() -> Iterator[Spreader]:
    with Spreader(()) as made:
        yield made


def numbered(frame: bytes, ident: int) -> bytes:
    return frame[:18] + struct.pack("!H", ident % (1 << 16)) + frame[20:]


def sent(host: Labeller, frame: bytes, segments: int = 0) -> Label | None:
    return word_of(host.run(frame, gso_segments=segments).data)


def test_each_packet_of_a_burst_has_the_candidate_of_its_number_and_all_have_as_many(host: Labeller, port: Spreader) -> None:
    draw = random.Random("spread")
    for paths in (INTER_POD, MANY, INTER_POD[:3] * 5, INTER_POD[1:3]):
        its = table(inter_pod=paths, seed=draw.randrange(1 << 32))._replace(spreads=True)
        host.swap(its)
        port.swap(its)
        for sport in range(41000, 41020):
            ident, seen, burst_base = draw.choice((0, 65_500, draw.randrange(1 << 16))), Counter[Label | None](), set()
            while seen.total() < len(paths) * 20:
                segments = min(draw.choice((1, 2, 44)), len(paths) * 20 - seen.total())
                burst = host.run(tcp(sport=sport, ident=ident % (1 << 16)), gso_segments=segments).data
                up1, base = word_of(burst) or (0, 0)
                assert (up1, base != 0xFF) == (0xFF, True)
                burst_base.add(base)
                for each in range(ident, ident + segments):
                    label = word_of(port.run(numbered(burst, each)).data)
                    assert label == paths[(base + each % (1 << 16)) % len(paths)]
                    seen[label] += 1
                ident += segments
            assert len(burst_base) == 1
            if ident < 1 << 16:
                assert {seen[path] for path in paths} == {seen.total() // len(paths) * paths.count(path) for path in paths}
    assert host.counters()["cut"] == host.counters()["gso"] == 0


OWN_LABEL = {
    "datagram": (ip(ports(4000, 5001), proto=UDP), SPREADS),
    "fragment": (tcp(fragment=0x2000), SPREADS),
    "within the rack": (tcp(dst=SAME_RACK), SPREADS),
    "a path is avoided": (tcp(), table()),
    "to a gateway": (tcp(dst="192.0.2.9"), SPREADS._replace(ways_out=(WayOut(bytes.fromhex("02000a030102"), INTER_POD),))),
}


@pytest.mark.parametrize(("frame", "its"), OWN_LABEL.values(), ids=OWN_LABEL)
def test_what_the_port_cannot_spread_has_a_label_of_its_own(host: Labeller, frame: bytes, its: PathTable) -> None:
    host.swap(its)
    assert sent(host, frame) in {*INTER_POD, (0xFF, 0xFF)}


def test_a_flow_whose_identifications_stand_is_labelled_packet_by_packet_until_they_count_again(host: Labeller) -> None:
    stood = host.counters()["ids_stand"]
    labels = [sent(host, tcp(sport=43000, ident=0)) or (0, 0) for _ in range(12)]
    assert [up1 == 0xFF for up1, _ in labels] == [True] * 4 + [False] * 8
    assert Counter(labels[4:]) == dict.fromkeys(INTER_POD, 2)
    assert host.counters()["ids_stand"] - stood == 8
    assert all((sent(host, tcp(sport=43000, ident=ident)) or (0, 0))[0] == 0xFF for ident in (1, 2, 0, 9))


@pytest.mark.parametrize("tag", [None, 0x6005])
def test_a_packet_whose_path_the_port_does_not_know_is_hashed_by_the_switch_and_counted(
    port: Spreader, tag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(frame: bytes) -> bytes:
        return frame[:6] + bytes.fromhex("02539e04ff07") + frame[12:]

    def outcome(frame: bytes) -> tuple[Handling, bytes]:
        before = port.counted.by_reason()
        data = port.run(asking(frame)).data
        [counted] = (why for why, packets in port.counted.by_reason().items() if packets != before[why])
        assert data[:6] + data[12:] == frame[:6] + frame[12:]
        return counted, data[6:12]

    frame = tcp(vlan=tag)
    assert outcome(frame) == (Handling.NO_TABLE, ENDED + b"\xff\x07")
    port.swap(table()._replace(destinations=(0, 1, 2, 2, 2, -1, 2, 2)))
    for other, why in (
        (frame, Handling.NO_PATH),
        (tcp(vlan=tag, dst="192.0.2.9"), Handling.OUTSIDE),
        (tcp(vlan=tag, dst="10.200.0.2"), Handling.OUTSIDE),
        (frame[:30], Handling.MALFORMED),
        (frame.replace(b"\x08\x00\x45", b"\x08\x06\x45"), Handling.MALFORMED),
    ):
        assert outcome(other) == (why, ENDED + b"\xff\x07"), why
    port.swap(table())
    assert outcome(frame)[0] is Handling.LABELLED
    monkeypatch.setattr(edge_spreader, "LEASE_SECONDS", -1.0)
    port.confirm()
    assert outcome(frame) == (Handling.OUTDATED, ENDED + b"\xff\x07")
    for label in ("0100", "01ff", "ffff"):
        ordinary = frame[:6] + bytes.fromhex("02539e04" + label) + frame[12:]
        assert port.run(ordinary).data == ordinary


def test_what_is_sent_again_of_a_burst_counts_against_the_path_of_its_packet(port: Spreader) -> None:
    port.swap(SPREADS)
    with Labeller("lo", carrier=Carrier.ID) as host:
        host.swap(SPREADS)
        burst = host.run(numbered(segment(1000, 10 * 300), 500), gso_segments=10).data
        taken = [word_of(port.run(numbered(burst, 500 + n)).data) for n in range(10)]
        assert len(set(taken)) == 4
        for n in (0, 3, 9):
            host.run(numbered(segment(1000 + n * 300, 300), 600 + n))
        assert [(its.rack, its.label) for its in again(host)] == [((2, 1), taken[n]) for n in (0, 3, 9)]


def test_on_the_wire_bursts_are_not_cut_by_the_agent_and_their_packets_take_the_paths_in_turn(tmp_path: Path) -> None:
    data = bytes(3_000_000)
    with veth_pair() as pair, labelling(pair, tmp_path, Carrier.ID, paths=SPREADS) as host:
        with Spreader((Interface("peer0", pair.peer),)) as spreader, raw_socket(pair.peer, "peer0", ALL) as wire:
            spreader.swap(SPREADS)
            spreader.attach()
            assert transfer(pair, data) == data
            labels = [word_of(frame) for frame in frames(wire, 0.5) if frame[26:30] == bytes([10, 0, 0, 2])]
            assert set(labels) == set(INTER_POD)
            status = CliRunner().invoke(main, ["parser", "status", "--iface", f"peer0@{pair.peer}"])
            assert (status.exit_code, "outdated" in status.output) == (0, True)
            packets = spreader.counted.by_reason()[Handling.LABELLED]
        turns = [INTER_POD.index(label) for label in labels if label]
        assert sum((b - a) % 4 == 1 for a, b in pairwise(turns)) > 0.9 * len(turns)  # what was sent again begins anew
        assert host.counters()["cut"] == 0
        assert packets > 2 * host.counters()["spread"] > 100


def test_a_parser_and_a_spreader_take_each_others_place_and_other_programs_keep_theirs() -> None:
    with veth_pair() as pair:
        name = f"peer0@{pair.peer}"
        assert CliRunner().invoke(main, ["parser", "attach", "--iface", name]).exit_code == 0
        with Spreader((Interface("peer0", pair.peer),)) as spreader:
            spreader.attach()
            assert "labelled" in CliRunner().invoke(main, ["parser", "status", "--iface", name]).output
        assert CliRunner().invoke(main, ["parser", "status", "--iface", name]).exit_code == 1
