"""The eBPF programs of MCS, packet by packet: which packets they change, what they write, and a connection's first and last one."""

from __future__ import annotations

import struct
import time
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.kernel.own_traffic import OwnTraffic
from tests.bpf.mcs_both import CAPACITY, DPORT, MSS, SPORT, Both, option_of, received, sent, tcp_frame, tcp_header
from tests.bpf.mcs_frames import ACK, FIN, L4, LINK, PLACEHOLDER, RESERVED, RST, SYN, Kind, option
from tests.bpf.mcs_programs import Programs
from tests.bpf.mcs_reference import Mco, Verdict, plus
from tests.helpers.frames import ETHERNET, FAR, HERE, INTER_POD, UDP, ip, ports, table, word_of

OTHER = IPv4Address("10.2.1.4")


@pytest.mark.parametrize(
    "frame",
    [
        sent(room=b""), sent(room=option(Mco(0, 0, 0, 0, 1, 1))), sent(room=bytes([253, 15]) + bytes(14)),
        sent(room=bytes([254, 16]) + bytes(14)), sent(room=PLACEHOLDER + b"\x01" * 4), sent(flags=SYN), sent(flags=FIN | ACK),
        sent(flags=RST | ACK), sent().replace(IPv4Address(FAR).packed, OTHER.packed), ip(sent()[L4:], options=b"\x01" * 4),
        ip(sent()[L4:], vlan=5), ip(sent()[L4:], fragment=0x2000), ip(sent()[L4:], fragment=0x0001), ip(sent()[L4:], proto=UDP),
        ip(ports(1, 2)), ip(b""), sent(payload=10)[:-11], sent()[: L4 + 19], ETHERNET + b"\x08\x06" + bytes(28),
        ETHERNET + b"\x86\xdd" + b"\x60" + bytes(60),
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
        (received().replace(IPv4Address(FAR).packed, OTHER.packed), "mco_unknown"),
        (received()[: L4 + 30], None),
        (ip(received()[L4:], src=FAR, dst=HERE, options=b"\x01" * 4), None),
        (ip(received()[L4:], src=FAR, dst=HERE, fragment=0x2000), None),
    ],
)
def test_what_is_no_mco_of_a_known_host_passes_as_it_is(both: Both, frame: bytes, reason: str | None) -> None:
    assert both.into(frame) == frame
    assert both.programs.counters() == ({} if reason is None else {reason: 1})


@pytest.mark.parametrize("channels", [0, 1, 17, 255])
def test_without_settings_nothing_is_touched(programs: Programs, channels: int) -> None:
    programs.set(channels)
    assert programs.egress(sent()) == (Verdict.PASS, sent())
    assert programs.ingress(received()) == received()
    assert programs.known_keys() == []


@pytest.mark.parametrize("channels", [2, 3, 8, 16])
def test_a_channel_is_the_next_candidate_path_from_the_flows_own_on(both: Both, channels: int) -> None:
    both.use(channels=channels)
    outs = [both.sent(sent()) for _ in range(2 * channels)]
    assert [option_of(out).channel for out in outs] == 2 * list(range(channels))
    taken = [INTER_POD.index(word_of(out) or (9, 9)) for out in outs]
    assert taken[:channels] == [(taken[0] + channel) % len(INTER_POD) for channel in range(channels)]


def test_channels_of_a_path_that_the_host_leaves_take_another_at_once_and_say_which_rack_is_used(both: Both) -> None:
    own = OwnTraffic(None, both.programs.busy)
    assert {word_of(both.sent(sent())) for _ in range(8)} == set(INTER_POD)
    assert own.busy() == [(2, 1)]
    left = INTER_POD[1:]
    both.swap(sets=(*table().sets[:2], left))
    outs = [both.sent(sent()) for _ in range(8)]
    assert [option_of(out).channel for out in outs] == list(range(8))  # with the weights and numbers that they had
    assert {word_of(out) for out in outs} == set(left)
    assert own.sent_again() == []
    own.close()


def test_without_a_path_to_the_host_the_mco_goes_and_the_switches_hash(both: Both) -> None:
    both.swap(destinations=(0, 1, 2, 2, 2, -1, 2, 2))
    out = both.sent(sent())
    assert word_of(out) is None
    assert option_of(out).channel == 0


@pytest.mark.parametrize("port", [0, 3, 65535])
def test_ports_wrap(both: Both, port: int) -> None:
    both.use(Kind.PORTS, channels=16)
    frame = sent()[:L4] + struct.pack("!H", port) + sent()[L4 + 2 :]
    assert [struct.unpack_from("!H", both.sent(frame), L4)[0] for _ in range(16)] == [
        port - c & 0xFFFF for c in range(16)
    ]
    both.into(received(source_port=port, mco=Mco(0, 0, 0, 15, 4000, 0)))
    assert {key.remote_port for key in both.programs.known_keys()} == {DPORT, plus(port, 15) & 0xFFFF}


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


def test_a_burst_without_a_length_in_its_header_is_as_long_as_it_is(both: Both) -> None:
    frame = bytearray(sent(payload=3000))
    frame[LINK + 2 : LINK + 4] = b"\0\0"
    both.sent(bytes(frame), gso_size=MSS, gso_segments=3)
    assert both.its.nlsn[0] == 4000
