"""The eBPF programs of MCS, packet by packet: frame, verdict and state are the reference's, and these are what docs/mcs.md says."""

from __future__ import annotations

import multiprocessing
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import count
from multiprocessing.connection import Connection as Pipe
from typing import Any

import pytest

from tests.bpf.mcs_frames import (
    ACK,
    CE,
    FIN,
    L4,
    LINK,
    MCO_BYTES,
    NOP,
    PLACEHOLDER,
    RESERVED,
    RST,
    SYN,
    Kind,
    Wire,
    mco_of,
    option,
    parse,
    summed,
)
from tests.bpf.mcs_fuzz import fuzz
from tests.bpf.mcs_programs import ACCEPTS, NEVER_US, Programs, pack
from tests.bpf.mcs_reference import (
    FRESH,
    MAX_CHANNELS,
    MAX_WEIGHT,
    ONE,
    PATIENCE_US,
    Block,
    Connection,
    Host,
    Key,
    Mco,
    Scale,
    Verdict,
    plus,
)
from tests.helpers.frames import ETHERNET, FAR, HERE, INTER_POD, UDP, ip, ports, table, word_of

LAST = 0xFFFFFFFF
MSS = 1448
CAPACITY = 64
SPORT, DPORT = 40000, 5001
KEY = Key(int(IPv4Address(HERE)), int(IPv4Address(FAR)), SPORT, DPORT)
TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(8)
BLOCKS: tuple[Block, ...] = ((5000, 6000), (7000, 8000), (9000, 9500), (9600, 9700))
D_SACK: Block = (100, 200)


# -- frames -----------------------------------------------------------------------------------------------------------


def tcp_sum(frame: bytes) -> int:
    """Return what a TCP segment with its pseudo-header sums up to: 0xffff if its checksum is right."""
    data = frame[L4:]
    total = summed(frame[26:34]) + 6 + len(data) + summed(data + bytes(len(data) % 2))
    return total % 0xFFFF or 0xFFFF


def tcp_frame(header: bytes, payload: int, source: str, destination: str, tos: int = 0) -> bytes:
    """Return a frame with right checksums."""
    frame = bytearray(ip(header + bytes(payload), src=source, dst=destination))
    frame[15] = tos
    struct.pack_into("!H", frame, LINK + 10, 0xFFFF - (summed(frame[LINK:L4]) % 0xFFFF or 0xFFFF))
    struct.pack_into("!H", frame, L4 + 16, 0xFFFF - tcp_sum(bytes(frame)) % 0xFFFF)
    return bytes(frame)


def tcp_header(
    sport: int, dport: int, seq: int, ack: int, flags: int, window: int, options: bytes, reserved: int
) -> bytes:
    length = 20 + len(options)
    return struct.pack("!HHIIBBHHH", sport, dport, seq, ack, length // 4 << 4 | reserved, flags, window, 0, 0) + options


def sack(blocks: tuple[Block, ...]) -> bytes:
    data = b"".join(struct.pack("!II", *block) for block in blocks)
    return b"\x01\x01\x05" + bytes([2 + len(data)]) + data if blocks else b""


def sent(
    seq: int = 1000, ack: int = 4000, payload: int = 0, flags: int = ACK, *,
    blocks: tuple[Block, ...] = (), room: bytes = PLACEHOLDER, before: bytes = TIMESTAMPS, tos: int = 0, window: int = 500,
) -> bytes:  # fmt: skip
    """A frame of this host's TCP."""
    header = tcp_header(SPORT, DPORT, seq, ack, flags, window, before + sack(blocks) + room, 0)
    return tcp_frame(header, payload, HERE, FAR, tos)


def received(
    seq: int = 4000, ack: int = 1000, payload: int = 0, flags: int = ACK, *,
    mco: Mco | None = None, version: int = 1, reserved: int = RESERVED, tos: int = 0, window: int = 60_000,
    source_port: int = DPORT, before: bytes = TIMESTAMPS,
) -> bytes:  # fmt: skip
    """A frame of the other host's programs."""
    its = mco or Mco(0, 0, 0, 0, seq, 0)
    header = tcp_header(source_port, SPORT, seq, ack, flags, window, before + option(its, version), reserved)
    return tcp_frame(header, payload, FAR, HERE, tos)


def option_of(frame: bytes) -> Mco:
    """Return the MCO that a frame has been given."""
    its = parse(frame)
    assert its is not None
    assert its.scattered
    found = mco_of(its.header)
    assert found is not None
    assert found[1] == 1
    return found[0]


# -- program and reference ----------------------------------------------------------------------------------------------


class Both:
    """The programs and the reference; whatever is done to both has the same outcome."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        host = Host(capacity=CAPACITY, patience_us=NEVER_US, clock_us=count(1).__next__)
        self.wire = Wire(host, {int(IPv4Address(FAR))}, table=table())

    def use(
        self,
        kind: Kind = Kind.PATHS,
        channels: int = 8,
        filtering: bool = True,
        regulating: bool = True,
        patience_us: int = NEVER_US,
    ) -> None:
        """Write other settings."""
        host = self.wire.host
        host.patience_us = patience_us
        self.wire.kind, host.channels, host.filtering, host.regulating = kind, channels, filtering, regulating
        self.programs.set(channels, kind, filtering=filtering, regulating=regulating, patience_us=patience_us)

    def swap(self, **changed: Any) -> None:
        """Put a path table in force."""
        self.wire.table = table()._replace(**changed)
        self.programs.swap(self.wire.table)

    def begin(self, its: Connection) -> None:
        """Have the connection be in that state."""
        self.wire.host.connections[KEY] = its
        self.programs.set_connection(KEY, its)

    def out(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> tuple[Verdict, bytes]:
        """Send a frame."""
        wanted = self.wire.egress(frame, gso_size, gso_segments)
        got = self.programs.egress(frame, gso_size, gso_segments)
        assert (got[0], got[1].hex()) == (wanted[0], wanted[1].hex())
        self.compare()
        return got

    def sent(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> bytes:
        """Send a frame that is not dropped."""
        verdict, out = self.out(frame, gso_size, gso_segments)
        assert verdict is Verdict.PASS
        return out

    def into(self, frame: bytes, gso_segments: int = 0) -> bytes:
        """Receive a frame."""
        wanted, got = self.wire.ingress(frame, 0, gso_segments), self.programs.ingress(frame, 0, gso_segments)
        assert got.hex() == wanted.hex()
        self.compare()
        return got

    def compare(self) -> None:
        connections = self.wire.host.connections
        assert sorted(self.programs.known_keys()) == sorted(connections)
        for key, its in connections.items():
            found = self.programs.connection(key)
            assert found.gap_since is None or its.gap_since is not None
            assert replace(found, gap_since=its.gap_since) == its
            assert self.programs.state(key) == pack(its)

    @property
    def its(self) -> Connection:
        """The connection's state."""
        return self.programs.connection(KEY)


@pytest.fixture(scope="module")
def loaded(objects: None) -> Iterator[Programs]:
    """The programs, loaded once."""
    with Programs(CAPACITY) as made:
        yield made


@pytest.fixture
def programs(loaded: Programs) -> Programs:
    """The programs as if just loaded, with a path table and a host that runs MCS."""
    loaded.reset()
    loaded.add_peer(FAR)
    loaded.swap(table())
    return loaded


@pytest.fixture
def both(programs: Programs) -> Iterator[Both]:
    """Programs and reference; in the end both have counted the same."""
    made = Both(programs)
    yield made
    assert programs.counters() == +made.wire.counters


# -- which packets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        sent(room=b""),
        sent(room=option(Mco(0, 0, 0, 0, 1, 1))),
        sent(room=bytes([253, 15]) + bytes(14)),
        sent(room=bytes([254, 16]) + bytes(14)),
        sent(room=PLACEHOLDER + b"\x01" * 4),
        sent(flags=SYN),
        sent(flags=FIN | ACK),
        sent(flags=RST | ACK),
        sent().replace(IPv4Address(FAR).packed, IPv4Address("10.2.1.4").packed),
        ip(sent()[L4:], options=b"\x01" * 4),
        ip(sent()[L4:], vlan=5),
        ip(sent()[L4:], fragment=0x2000),
        ip(sent()[L4:], fragment=0x0001),
        ip(sent()[L4:], proto=UDP),
        ip(ports(1, 2)),
        ip(b""),
        sent(payload=10)[:-11],
        sent()[: L4 + 19],
        ETHERNET + b"\x08\x06" + bytes(28),
        ETHERNET + b"\x86\xdd" + b"\x60" + bytes(60),
    ],
    ids=[
        "no-placeholder", "filled", "other-length", "other-kind", "not-last", "syn", "first-is-fin", "first-is-rst", "other-host",
        "ip-options", "vlan", "first-fragment", "last-fragment", "udp", "no-tcp", "empty", "cut", "cut-header", "arp", "ipv6",
    ],
)  # fmt: skip
def test_all_else_leaves_byte_for_byte(both: Both, frame: bytes) -> None:
    assert both.sent(frame) == frame
    assert both.programs.counters() == {"unscattered": 1}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (received(reserved=0), None),
        (received(version=0), "mco_malformed"),
        (received(version=2), "mco_malformed"),
        (received(before=b"")[: L4 + 20] + bytes([254]) + received(before=b"")[L4 + 21 :], "mco_malformed"),
        (tcp_frame(tcp_header(DPORT, SPORT, 1, 1, ACK, 9, b"", RESERVED), 0, FAR, HERE), "mco_malformed"),
        (received().replace(IPv4Address(FAR).packed, IPv4Address("10.2.1.4").packed), "mco_unknown"),
        (received()[: L4 + 30], None),
        (ip(received()[L4:], src=FAR, dst=HERE, options=b"\x01" * 4), None),
        (ip(received()[L4:], src=FAR, dst=HERE, fragment=0x2000), None),
    ],
    ids=["no-mark", "placeholder", "version-2", "kind", "no-option", "other-host", "cut", "ip-options", "fragment"],
)
def test_what_is_no_mco_of_a_known_host_passes_as_it_is(both: Both, frame: bytes, reason: str | None) -> None:
    assert both.into(frame) == frame
    assert both.programs.counters() == ({} if reason is None else {reason: 1})


def test_to_a_host_that_is_leaving_nothing_is_scattered_and_what_it_scatters_is_taken(both: Both) -> None:
    far = int(IPv4Address(FAR))
    both.sent(sent(payload=10))
    both.programs.add_peer(FAR, ACCEPTS)
    both.wire.peers, both.wire.leaving = set(), {far}
    assert both.sent(sent(payload=10)) == sent(payload=10)
    both.into(received(payload=10, mco=Mco(0, 1, 0, 3, 4000, 0)))
    assert (both.its.rb, both.its.fv[0]) == (1 << 3, FRESH)
    both.sent(sent(flags=RST))
    assert both.programs.known_keys() == []


@pytest.mark.parametrize("channels", [0, 1, 17, 255])
def test_without_settings_nothing_is_touched(programs: Programs, channels: int) -> None:
    programs.set(channels)
    assert programs.egress(sent()) == (Verdict.PASS, sent())
    assert programs.ingress(received()) == received()
    assert programs.known_keys() == []


# -- what is written ----------------------------------------------------------------------------------------------------


def test_the_placeholder_is_filled_in_where_it_is(both: Both) -> None:
    frame = sent(seq=7000, payload=100, tos=0xB8)
    out = both.sent(frame)
    assert option_of(out) == Mco(rcb=0, rb=0, rp=0, channel=0, gsn=7000, lsn=7000)
    assert out[L4 + 12] == frame[L4 + 12] | RESERVED
    assert word_of(out) in INTER_POD
    assert out[LINK + 1] == 0xB8 | 2  # ECT(0)
    assert summed(out[LINK:L4]) % 0xFFFF == 0
    assert tcp_sum(out) == 0xFFFF
    assert len(out) == len(frame)
    assert (out[:6], out[12:15], out[L4 + 18 : L4 + 32], out[-100:]) == (
        frame[:6], frame[12:15], frame[L4 + 18 : L4 + 32], frame[-100:],
    )  # fmt: skip


@pytest.mark.parametrize(("payload", "flags", "tos", "wanted"), [
    (1, ACK, 0, 2), (0, ACK, 0, 0), (0, FIN | ACK, 0, 2), (1, ACK, 1, 1), (1, ACK, 2, 2), (1, ACK, 3, 3), (1, ACK, 0xFC, 0xFE),
])  # fmt: skip
def test_what_takes_sequence_numbers_may_be_marked(both: Both, payload: int, flags: int, tos: int, wanted: int) -> None:
    both.sent(sent())  # a FIN begins no connection
    assert both.sent(sent(payload=payload, flags=flags, tos=tos))[LINK + 1] == wanted


def test_what_was_received_is_told_once(both: Both) -> None:
    both.into(received(seq=4000, payload=100, mco=Mco(0, 0, 0, 9, 4000, 0)))
    both.into(received(seq=4100, payload=2 * MSS, mco=Mco(0, 0, 0, 2, 4100, 0)), gso_segments=3)
    both.into(received(seq=9000, payload=100, tos=CE, mco=Mco(0, 0, 0, 15, 9000, 0)))
    both.into(received(seq=9100, tos=CE, mco=Mco(0, 0, 0, 1, 9100, 0)))  # no data, no news
    first, second = (option_of(both.sent(sent(ack=4000))) for _ in "12")
    assert (first.rcb, first.rb, first.rp) == (1 << 15, 1 << 15 | 1 << 9 | 1 << 2, 4)
    assert (second.rcb, second.rb, second.rp) == (0, 0, 0)


def test_received_packets_stop_at_255(both: Both) -> None:
    for number in range(3):
        both.into(received(seq=4000 + number, payload=1), gso_segments=100)
    assert option_of(both.sent(sent())).rp == 255


@pytest.mark.parametrize("channels", [2, 3, 8, 16])
def test_a_channel_is_the_next_candidate_path_from_the_flows_own_on(both: Both, channels: int) -> None:
    both.use(channels=channels)
    outs = [both.sent(sent()) for _ in range(2 * channels)]
    assert [option_of(out).channel for out in outs] == 2 * list(range(channels))
    taken = [INTER_POD.index(word_of(out) or (9, 9)) for out in outs]
    assert taken[:channels] == [(taken[0] + channel) % len(INTER_POD) for channel in range(channels)]


def test_without_a_path_to_the_host_the_mco_goes_and_the_switches_hash(both: Both) -> None:
    both.swap(destinations=(0, 1, 2, 2, 2, -1, 2, 2))
    out = both.sent(sent())
    assert word_of(out) is None
    assert option_of(out).channel == 0


def test_a_port_of_channel_c_is_c_lower_and_the_receiver_puts_it_back(both: Both) -> None:
    both.use(Kind.PORTS)
    for channel in range(8):
        out = both.sent(sent(payload=10))
        assert struct.unpack_from("!HH", out, L4) == (SPORT - channel, DPORT)
        assert word_of(out) is None
        assert tcp_sum(out) == 0xFFFF
    for channel in range(16):
        back = both.into(received(source_port=DPORT - channel, mco=Mco(0, 0, 0, channel, 4000, 0)))
        assert struct.unpack_from("!HH", back, L4) == (DPORT, SPORT)
        assert tcp_sum(back) == 0xFFFF
    assert both.programs.known_keys() == [KEY]


@pytest.mark.parametrize("port", [0, 3, 65535])
def test_ports_wrap(both: Both, port: int) -> None:
    both.use(Kind.PORTS, channels=16)
    frame = sent()[:L4] + struct.pack("!H", port) + sent()[L4 + 2 :]
    assert [struct.unpack_from("!H", both.sent(frame), L4)[0] for _ in range(16)] == [
        port - c & 0xFFFF for c in range(16)
    ]
    both.into(received(source_port=port, mco=Mco(0, 0, 0, 15, 4000, 0)))
    assert {key.remote_port for key in both.programs.known_keys()} == {DPORT, plus(port, 15) & 0xFFFF}


# -- algorithm 1: order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [0, LAST - 2 * MSS, 1 << 31])
def test_overtaken_packets_are_no_loss_and_a_gap_in_a_channel_is(both: Both, origin: int) -> None:
    def data(number: int, channel: int, local: int) -> None:
        seq = plus(origin, number * MSS)
        both.into(received(seq=seq, payload=MSS, mco=Mco(0, 0, 0, channel, seq, plus(origin, local * MSS))))

    for number, channel, local in ((1, 1, 0), (0, 0, 0), (3, 3, 0), (2, 2, 0), (5, 1, 1)):
        data(number, channel, local)
        assert not both.its.loss
    data(8, 0, 2)
    assert (both.its.loss, both.its.rsn, both.its.expected[0]) == (True, plus(origin, 8 * MSS), plus(origin, 3 * MSS))


def test_a_segment_of_a_super_packet_has_the_local_number_that_follows(both: Both) -> None:
    mco = Mco(0, 0, 0, 5, 4000, LAST - 1000)
    for number in range(3):
        both.into(received(seq=4000 + number * MSS, payload=MSS, mco=mco))
    assert not both.its.loss
    assert both.its.expected[5] == plus(LAST - 1000, 3 * MSS)


@pytest.mark.parametrize("blocks", [BLOCKS[:1], BLOCKS[:2]])
def test_a_duplicate_ack_that_reports_reordering_is_not_sent(both: Both, blocks: tuple[Block, ...]) -> None:
    before = TIMESTAMPS if len(blocks) == 1 else b""
    both.sent(sent(ack=4000))
    state = both.its
    frame = sent(ack=4000, blocks=blocks, before=before)
    assert both.out(frame) == (Verdict.DROP, frame)
    assert replace(both.its, gap_since=None) == state
    both.begin(Connection(lan=4000, loss=True, rsn=6000))
    assert option_of(both.sent(frame)).channel == 0
    assert both.its.loss
    both.sent(sent(ack=6001))
    assert not both.its.loss


@pytest.mark.parametrize(
    "frame",
    [
        sent(ack=4000),
        sent(ack=4000, window=900),
        sent(ack=4000, blocks=(D_SACK,)),
        sent(ack=4000, payload=1, blocks=(D_SACK,)),
        sent(ack=4000, flags=0, blocks=BLOCKS[:1]),
    ],
    ids=["keepalive", "window-update", "d-sack", "d-sack-with-data", "no-ack"],
)
def test_other_duplicates_pass_with_what_they_say(both: Both, frame: bytes) -> None:
    both.sent(sent(ack=4000))
    out = both.sent(frame)
    assert option_of(out)
    assert out[L4 + 20 : -MCO_BYTES - 1] == frame[L4 + 20 : -MCO_BYTES - 1]


@pytest.mark.parametrize(
    ("ack", "payload", "flags"),
    [(3999, 0, ACK), (4001, 0, ACK), (4000, 1, ACK), (4001, MSS, ACK), (4000, 0, ACK | FIN)],
    ids=["old", "new", "data", "new-data", "fin"],
)
def test_sack_that_reports_reordering_is_blanked(both: Both, ack: int, payload: int, flags: int) -> None:
    both.sent(sent(ack=4000))
    frame = sent(ack=ack, blocks=BLOCKS[:1], payload=payload, flags=flags)
    out = both.sent(frame)
    assert out[L4 + 32 : L4 + 44] == bytes([NOP]) * 12
    assert tcp_sum(out) == 0xFFFF
    both.begin(Connection(lan=3000, loss=True, rsn=6000))
    assert both.sent(frame)[L4 + 32 : L4 + 44] == sack(BLOCKS[:1])


def test_an_ack_that_was_lost_is_sent_again_when_its_data_comes_again(both: Both) -> None:
    both.into(received(seq=4000, payload=100))
    both.sent(sent(ack=4100))
    duplicate = sent(ack=4100, blocks=BLOCKS[:1])
    assert both.out(duplicate)[0] is Verdict.DROP
    both.into(received(seq=4000, payload=100))
    assert both.its.lan == 4000
    assert both.out(duplicate)[0] is Verdict.PASS
    assert both.out(duplicate)[0] is Verdict.DROP


@pytest.mark.parametrize("patience_us", [10_000_000, 0])
def test_what_is_missing_for_long_is_lost_though_no_channel_shows_a_gap(both: Both, patience_us: int) -> None:
    both.use(patience_us=patience_us or PATIENCE_US)
    both.programs.set(patience_us=patience_us)  # 0: the default
    now_us = time.monotonic_ns() // 1000 & LAST
    both.wire.host.clock_us = lambda: now_us
    both.begin(Connection(lan=4000, gap_since=now_us - 11_000_000 & LAST))
    both.sent(sent(ack=4000, blocks=BLOCKS[:1]))
    assert (both.its.loss, both.its.rsn) == (True, BLOCKS[0][1])
    both.sent(sent(ack=BLOCKS[0][1] + 1))
    assert not both.its.loss


def test_a_gap_begins_with_the_first_packet_behind_it_and_each_gap_anew(both: Both) -> None:
    both.use(patience_us=60_000_000)
    both.wire.host.clock_us = lambda: time.monotonic_ns() // 1000 & LAST
    for ack, blocks, gap in (
        (4000, (), False), (4000, BLOCKS, True), (4500, BLOCKS, True), (4600, (), False), (4700, BLOCKS, True),
        (4600, (), True), (4800, (D_SACK, *BLOCKS), False),
    ):  # fmt: skip
        both.out(sent(ack=ack, blocks=blocks[:1]))
        assert (both.its.gap_since is not None) == gap
        assert not both.its.loss


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("first", [(), (D_SACK,)], ids=["sack", "d-sack"])
@pytest.mark.parametrize("payload", [0, 100], ids=["ack", "data"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_where_sack_has_left_no_room(
    both: Both, count: int, payload: int, first: tuple[Block, ...], loss: bool
) -> None:
    before = b"" if count == 4 else TIMESTAMPS
    blocks = (*first, *BLOCKS)[:count]
    both.begin(Connection(lan=3000, loss=loss, rsn=20_000))
    frame = sent(ack=4000, blocks=blocks, room=b"", before=before, payload=payload)
    out = both.sent(frame)
    at, end = L4 + 20 + len(before), len(frame) - payload - MCO_BYTES
    if not loss and not first:
        assert option_of(out).channel == 0
        assert out[at:end] == bytes([NOP]) * (4 + 8 * count - MCO_BYTES)
    elif count == 2:
        assert out == frame
        assert both.its.cc == 7
    else:
        assert option_of(out).channel == 0
        assert out[at:end] == sack(blocks[: count - 2])
    assert both.its.lan == 4000
    assert tcp_sum(out) == 0xFFFF


def test_a_full_header_of_no_connection_or_with_room_for_a_placeholder_passes_as_it_is(both: Both) -> None:
    crowded = sent(blocks=BLOCKS[:3], room=b"")
    assert both.sent(crowded) == crowded
    both.sent(sent())
    for frame in (
        sent(blocks=BLOCKS[:2], room=b"", before=b""),
        sent(blocks=BLOCKS[:3], room=b"", flags=0),
        sent(blocks=BLOCKS[:1], room=b"\x01" * 16),
    ):
        assert both.sent(frame) == frame


@pytest.mark.parametrize("flags", [0, ACK])
def test_sack_blocks_that_look_like_a_placeholder_are_none(both: Both, flags: int) -> None:
    looks = ((0xFD100000, 0xFD100503), (0xFD101000, 0xFD102000))
    both.sent(sent(ack=0xFD000000))
    frame = sent(ack=0xFD000001, blocks=((0xFD090000, 0xFD0A0000), *looks), room=b"", flags=flags)
    out = both.sent(frame)
    if not flags:
        assert out == frame
    else:
        assert out[L4 + 32 : L4 + 44] == bytes([NOP]) * 12
        assert option_of(out).channel == 1


# -- algorithms 2 to 5, from any state ------------------------------------------------------------------------------------


def any_connection(draw: random.Random, channels: int) -> Connection:
    """Return a state that no sequence of packets might lead to."""
    numbers = [draw.getrandbits(32) for _ in range(MAX_CHANNELS)]
    mask = (1 << channels) - 1

    def some(high: int) -> list[int]:
        values = [draw.choice((0, draw.randrange(high + 1))) for _ in range(channels)]
        return values + [0] * (MAX_CHANNELS - channels)

    fv = some(FRESH)[:channels] + [FRESH] * (MAX_CHANNELS - channels)
    return Connection(
        channels, numbers, nsn=draw.getrandbits(32), msn=draw.choice((999, 1000, 1001, draw.getrandbits(32))),
        ws=draw.choice((draw.getrandbits(30), 3000, 1 << 30)), fv=fv, skv=some(7), wv=some(MAX_WEIGHT),
        cb=draw.choice((0, draw.getrandbits(16) & mask)), ab=draw.choice((mask, 0, draw.getrandbits(16) & mask)),
        cc=draw.randrange(channels), alpha=draw.randrange(ONE + 1), slow_start=draw.random() < 0.5,
        mss=draw.choice((536, 1448, 9000, 65495)),
        scale=draw.choice((None, 0, 7, 14)), expected=[draw.choice((None, number, 0)) for number in numbers],
        lan=draw.choice((None, 3000, 4000, 5000, draw.getrandbits(32))), rsn=draw.choice((3999, 4000, draw.getrandbits(32))),
        rb=draw.getrandbits(16), rcb=draw.getrandbits(16), rp=draw.choice((0, 3, 255)), loss=draw.random() < 0.3,
        closed_out=draw.random() < 0.1, closed_in=draw.random() < 0.1,
    )  # fmt: skip


@pytest.mark.parametrize("channels", [2, 3, 5, 8, 11, 16])
def test_channels_are_chosen_by_weight_from_any_state(both: Both, channels: int) -> None:
    draw = random.Random(channels)
    both.use(channels=channels)
    for _ in range(60):
        both.begin(any_connection(draw, channels))
        for _ in range(20):
            if KEY not in both.wire.host.connections:
                break
            both.sent(sent(seq=draw.getrandbits(32), ack=9000, payload=draw.choice((0, 10, MSS))))


@pytest.mark.parametrize("channels", [2, 3, 5, 8, 11, 16])
def test_weights_windows_and_freshness_follow_from_any_state(both: Both, channels: int) -> None:
    draw = random.Random(channels)
    both.use(channels=channels)
    for _ in range(300):
        both.begin(any_connection(draw, channels))
        for ack in (draw.choice((999, 1000, 1001, 1002)), draw.getrandbits(32)):
            seq = draw.getrandbits(32)
            mco = Mco(
                draw.choice((0, draw.getrandbits(16))), draw.choice((0, draw.getrandbits(16))), draw.randrange(256),
                draw.randrange(16), draw.choice((seq, plus(seq, -MSS))), draw.getrandbits(32),
            )  # fmt: skip
            both.into(
                received(
                    seq, ack, draw.choice((0, 1, MSS)), mco=mco, tos=draw.randrange(4), window=draw.getrandbits(16)
                )
            )


def test_a_dead_channel_is_left_after_three_round_trips_and_taken_again_with_its_first_packet(both: Both) -> None:
    alive = 0xFF & ~(1 << 3)
    seq, chosen = 1000, []
    for _ in range(5):
        for _ in range(8):
            chosen.append(option_of(both.sent(sent(seq=seq, payload=MSS))).channel)
            seq += MSS
        both.into(received(ack=seq, mco=Mco(0, alive, 0, 0, 4000, 0)))
    assert [chosen[8 * turn :][:8].count(3) for turn in range(5)] == [1, 1, 1, 0, 0]
    both.into(received(ack=seq, mco=Mco(0, 1 << 3, 0, 0, 4000, 0)))
    assert 3 in [option_of(both.sent(sent(seq=seq))).channel for _ in range(8)]


def test_a_marked_channel_gets_an_eighth_of_the_packets(both: Both) -> None:
    seq = 1000
    for _ in range(3):
        both.sent(sent(seq=seq, payload=2))
        seq += 2
        both.into(received(ack=seq, mco=Mco(1 << 2, 0xFF, 0, 0, 4000, 0)))
        seq += 1
    assert both.its.wv[:8] == [0, 0, 3, 0, 0, 0, 0, 0]
    chosen = [option_of(both.sent(sent(seq=seq))).channel for _ in range(8 * 7 + 1)]
    assert (chosen.count(2), chosen.count(1)) == (1, 8)


def test_a_mark_of_a_channel_that_this_host_does_not_have_is_none(both: Both) -> None:
    both.use(channels=4)
    both.sent(sent(payload=10))
    both.into(received(ack=1010, mco=Mco(0xFFF0, 0xFFF0, 0, 0, 4000, 0)))
    assert (both.its.cb, both.its.slow_start, both.its.ab) == (0, True, 0xF)


def test_the_window_is_lowered_after_the_first_mark_and_never_raised(both: Both) -> None:
    both.sent(sent(flags=SYN, room=b"", before=b"\x03\x03\x08\0"))
    both.into(received(flags=SYN | ACK, reserved=0, before=b"\x03\x03\x02\0"))
    both.sent(sent(payload=MSS))
    assert both.its.scale == 2
    unmarked = received(ack=1000 + MSS, window=60_000)
    assert both.into(unmarked) == unmarked
    both.sent(sent(seq=9000, payload=MSS))
    out = both.into(received(ack=9000 + MSS, window=60_000, mco=Mco(1, 1, 0, 0, 4000, 0)))
    (window,) = struct.unpack_from("!H", out, L4 + 14)
    assert window == both.its.ws >> 2
    assert 2 * MSS <= both.its.ws < 14_600
    assert tcp_sum(out) == 0xFFFF
    small = received(ack=9000 + MSS, window=10)
    assert both.into(small) == small
    both.use(regulating=False)
    assert both.into(unmarked) == unmarked


@pytest.mark.parametrize("scale", [0, 7, 14])
@pytest.mark.parametrize("mss", [536, 65_495])
def test_a_window_is_neither_zero_nor_above_the_header_s_16_bits(both: Both, mss: int, scale: int) -> None:
    for ws in (2 * mss, 1 << 30):
        both.begin(Connection(slow_start=False, ws=ws, mss=mss, scale=scale))
        (window,) = struct.unpack_from("!H", both.into(received(window=65_535)), L4 + 14)
        assert window == min(65_535, max(1, ws >> scale))


def test_without_the_filter_duplicate_acks_pass_with_their_blocks(both: Both) -> None:
    both.use(filtering=False)
    both.sent(sent(ack=4000))
    frame = sent(ack=4000, blocks=BLOCKS[:1])
    assert both.sent(frame)[L4 + 32 : L4 + 44] == sack(BLOCKS[:1])


# -- connections ----------------------------------------------------------------------------------------------------------


def syn(options: bytes, outwards: bool, flags: int = SYN) -> bytes:
    header = tcp_header(*((SPORT, DPORT) if outwards else (DPORT, SPORT)), 1, 1, flags, 9, options, 0)
    return tcp_frame(header, 0, *((HERE, FAR) if outwards else (FAR, HERE)))


@pytest.mark.parametrize(
    ("here", "there", "scale"),
    [
        (b"\x03\x03\x08\0", b"\x03\x03\x02\0", 2),
        (b"\x02\x04\x05\xb4\x04\x02\x08\x0a" + bytes(8) + b"\x01\x03\x03\x07", b"\x01\x03\x03\x00", 0),
        (b"\x03\x03\x08\0", b"\x03\x03\x0f\0", 14),
        (b"\x03\x03\x08\0", b"\x02\x04\x05\xb4", 0),
        (b"", b"\x03\x03\x02\0", 0),
        (b"\x03\x03\x08\0", b"\0\x03\x03\x07", 0),
        (b"\x03\x03\x08\0", b"\x05\x00\x03\x03\x07\0\0\0", 0),
        (b"\x03\x03\x08\0", None, None),
        (None, b"\x03\x03\x08\0", None),
    ],
    ids=[
        "both",
        "linux",
        "15",
        "remote-has-none",
        "own-has-none",
        "behind-end",
        "broken",
        "remote-unseen",
        "own-unseen",
    ],
)
def test_the_scale_of_the_remotes_window_comes_from_both_syns(
    both: Both, here: bytes | None, there: bytes | None, scale: int | None
) -> None:
    if here is not None:
        both.sent(syn(here, outwards=True))
    if there is not None:
        both.into(syn(there, outwards=False, flags=SYN | ACK))
    both.sent(sent())
    assert both.its.scale == scale
    known = both.wire.host.scales.get(KEY, Scale())
    assert both.programs.scale(KEY).of_remote_window == known.of_remote_window == scale


def test_any_packet_but_fin_and_rst_begins_a_connection_in_either_direction(both: Both) -> None:
    for flags in (FIN, FIN | ACK, RST, RST | ACK):
        both.sent(sent(flags=flags))
        both.into(received(flags=flags))
        assert both.programs.known_keys() == []
    both.into(received(ack=LAST))
    assert (both.its.nsn, both.its.msn, both.its.lan) == (LAST, LAST, None)
    both.sent(sent(flags=RST))
    both.sent(sent(seq=77, ack=5))
    assert (both.its.nsn, both.its.nlsn, both.its.lan) == (77, [77] * MAX_CHANNELS, 5)


@pytest.mark.parametrize(
    "frame",
    [sent(flags=RST), sent(flags=RST | ACK, room=b""), sent(flags=RST | ACK, room=b"", before=b"")],
    ids=["with-placeholder", "without", "without-options"],
)
def test_a_reset_of_this_host_ends_the_connection(both: Both, frame: bytes) -> None:
    both.sent(sent())
    assert both.sent(frame) == frame
    assert both.programs.known_keys() == []


@pytest.mark.parametrize("reserved", [0, RESERVED])
def test_a_reset_of_the_other_host_ends_the_connection(both: Both, reserved: int) -> None:
    both.sent(sent())
    frame = received(flags=RST | ACK, reserved=reserved)
    assert both.into(frame) == frame
    assert both.programs.known_keys() == []


@pytest.mark.parametrize("closing", ["out-first", "in-first"])
def test_the_acknowledgement_of_the_second_fin_ends_the_connection(both: Both, closing: str) -> None:
    both.sent(sent())
    steps: list[Callable[[], object]] = [
        lambda: both.sent(sent(flags=FIN | ACK)),
        lambda: both.into(received(flags=FIN | ACK)),
    ]
    for step in steps if closing == "out-first" else steps[::-1]:
        assert both.programs.known_keys() == [KEY]
        step()
    assert both.programs.known_keys() == [KEY]
    if closing == "out-first":
        assert option_of(both.sent(sent(ack=4001)))
    else:
        both.into(received(ack=1001))
    assert both.programs.known_keys() == []


def test_a_half_open_connection_goes_on(both: Both) -> None:
    both.sent(sent())
    both.into(received(flags=FIN | ACK))
    for number in range(20):
        assert option_of(both.sent(sent(seq=1000 + number, payload=1)))
        both.into(received(ack=1000 + number))
    assert both.its.closed_in


def test_an_ack_that_is_filtered_does_not_end_the_connection(both: Both) -> None:
    both.begin(Connection(lan=4000, closed_in=True, closed_out=True))
    assert both.out(sent(ack=4000, blocks=BLOCKS[:1]))[0] is Verdict.DROP
    assert both.programs.known_keys() == [KEY]
    both.sent(sent(ack=4001))
    assert both.programs.known_keys() == []


def test_without_room_connections_are_not_scattered_until_there_is_some(both: Both) -> None:
    frames = [sent()[:L4] + struct.pack("!H", port) + sent()[L4 + 2 :] for port in range(CAPACITY + 1)]
    for frame in frames[:CAPACITY]:
        assert both.sent(frame) != frame
    assert both.sent(frames[CAPACITY]) == frames[CAPACITY]
    unknown = received()
    assert both.into(unknown) == unknown
    assert both.programs.counters()["no_connection"] == 2
    both.sent(frames[0][: L4 + 13] + bytes([RST]) + frames[0][L4 + 14 :])
    assert both.sent(frames[CAPACITY]) != frames[CAPACITY]


def test_the_clean_up_removes_what_was_silent_since(programs: Programs) -> None:
    begun = time.monotonic_ns()
    frames = [sent()[:L4] + struct.pack("!H", port) + sent()[L4 + 2 :] for port in range(50)]
    for frame in frames:
        programs.egress(frame)
    between = time.monotonic_ns()
    assert programs.sweep(begun) == (0, 50)
    for frame in frames[:10]:
        programs.egress(frame)
    programs.ingress(
        received(source_port=DPORT).replace(struct.pack("!HH", DPORT, SPORT), struct.pack("!HH", DPORT, 49))
    )
    assert programs.sweep(between) == (39, 11)
    assert {key.local_port for key in programs.known_keys()} == {*range(10), 49}
    assert all(programs.seen_ns(key) > between for key in programs.known_keys())


def test_super_packets_teach_the_segment_size(both: Both) -> None:
    both.sent(sent(payload=3000), gso_size=MSS, gso_segments=3)
    assert both.its.mss == MSS
    assert both.its.nlsn[0] == 4000
    both.sent(sent(payload=2000))
    assert both.its.mss == 2000
    assert both.programs.counters()["gso"] == 1


def test_a_burst_without_a_length_in_its_header_is_as_long_as_it_is(both: Both) -> None:
    frame = bytearray(sent(payload=3000))
    frame[LINK + 2 : LINK + 4] = b"\0\0"
    both.sent(bytes(frame), gso_size=MSS, gso_segments=3)
    assert both.its.nlsn[0] == 4000


# -- two processors -------------------------------------------------------------------------------------------------------


def two_processors() -> list[int]:
    processors = sorted(range(os.cpu_count() or 1))[:2]
    assert len(processors) == 2
    return processors


def on_two_processors(work: Callable[[int], None]) -> None:
    """Run ``work(0)`` and ``work(1)`` at the same time, each on a processor of its own."""
    processors = two_processors()
    begin = threading.Barrier(2)
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            os.sched_setaffinity(0, {processors[number]})
            begin.wait()
            work(number)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_two_processors_that_send_lose_no_byte(programs: Programs) -> None:
    """By processes: threads of one interpreter are hardly ever in the kernel together."""
    each, size, begun = 30_000, 100, 1000
    frame = sent(seq=begun, payload=size)
    programs.egress(sent(seq=begun))

    def send(number: int, begin: Pipe) -> None:
        os.sched_setaffinity(0, {number})
        begin.recv()
        for _ in range(each):
            programs.egress(frame)

    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(2)]  # no barrier: it needs /dev/shm, which a guest does not have
    senders = [
        context.Process(target=send, args=(number, begin))
        for number, (_, begin) in zip(two_processors(), pipes, strict=True)
    ]
    for sender in senders:
        sender.start()
    for start, _ in pipes:
        start.send(None)
    for sender in senders:
        sender.join()
    assert [sender.exitcode for sender in senders] == [0, 0]
    its = programs.connection(KEY)
    assert sum(local - begun for local in its.nlsn[:8]) == 2 * each * size
    assert {local - begun for local in its.nlsn[:8]} == {2 * each * size // 8}


def test_two_processors_that_send_use_no_local_number_twice(programs: Programs) -> None:
    each, size, begun = 2000, 100, 1000
    outs: tuple[list[bytes], list[bytes]] = ([], [])
    programs.egress(sent(seq=begun))
    frames = [sent(seq=begun + number * size, payload=size) for number in range(2 * each)]

    def send(number: int) -> None:
        outs[number].extend(programs.egress(frame)[1] for frame in frames[number::2])

    on_two_processors(send)
    assert programs.connection(KEY).nsn == begun + 2 * each * size
    taken = [option_of(out) for out in (*outs[0], *outs[1])]
    assert len({(mco.channel, mco.lsn) for mco in taken}) == 2 * each
    assert {sum(mco.channel == channel for mco in taken) for channel in range(8)} == {2 * each // 8}


def test_two_processors_that_receive_lose_no_packet(programs: Programs) -> None:
    programs.egress(sent())
    told = 0
    for _ in range(100):
        on_two_processors(lambda number: programs.ingress(received(payload=10), repeat=100) and None)
        told += option_of(programs.egress(sent())[1]).rp
    assert told == 100 * 2 * 100


def test_two_processors_that_receive_lose_no_growth_of_the_window(programs: Programs) -> None:
    programs.egress(sent(payload=MSS))
    begun, repeat = programs.connection(KEY).ws, 100_000
    on_two_processors(
        lambda number: programs.ingress(received(mco=Mco(0, 0, 2, number, 4000, 0)), repeat=repeat) and None
    )
    assert programs.connection(KEY).ws == begun + 2 * repeat * MSS


def test_one_processor_sends_while_another_receives(programs: Programs) -> None:
    programs.egress(sent())
    each, told = 3000, 0

    def work(number: int) -> None:
        nonlocal told
        for turn in range(each):
            if number:
                programs.ingress(received(payload=10, mco=Mco(0, 0, 2, 1, 4000, 0)), repeat=3)
            else:
                told += option_of(programs.egress(sent(seq=1000 + turn, payload=1))[1]).rp

    begun = programs.connection(KEY).ws
    on_two_processors(work)
    its = programs.connection(KEY)
    assert its.ws == begun + 3 * each * 536
    assert sum(local - 1000 for local in its.nlsn[:8]) == each
    assert told + its.rp <= 3 * each


# -- random packets -------------------------------------------------------------------------------------------------------


def test_random_packets_have_the_same_outcome() -> None:
    done = fuzz(packets=20_000, seed=1)
    assert done.packets == 20_000
    # a fuzz that reaches only refusals proves nothing
    rare = {"ack_filtered", "window_lowered", "no_connection", "mco_unknown", "mco_malformed", "no_path"}
    assert all(done.counted[reason] > 20 for reason in {"scattered", "labelled", "mco_taken", *rare}), done.counted
