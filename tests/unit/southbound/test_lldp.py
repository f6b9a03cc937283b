"""LLDP: our own probes there and back, what strangers call themselves, and nothing but ValueError for everything else."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ryu.lib.packet import ethernet, lldp, packet

from sopa_ryu.southbound.lldp import MARK, Probe, frame, parse
from topologies.structure import GATEWAY_MAC

MANDATORY = [
    lldp.ChassisID(subtype=4, chassis_id=bytes.fromhex("001b21aabbcc")),
    lldp.PortID(subtype=5, port_id=b"swp49"),
    lldp.TTL(ttl=120),
]


def written(*tlvs: lldp.LLDPBasicTLV) -> bytes:
    made = packet.Packet()
    made.add_protocol(ethernet.ethernet("01:80:c2:00:00:0e", "00:1b:21:aa:bb:cc", 0x88CC))
    made.add_protocol(lldp.lldp([*tlvs, lldp.End()]))
    made.serialize()
    return bytes(made.data)


def tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def raw(*tlvs: bytes) -> bytes:
    return bytes.fromhex("0180c200000e001b21aabbcc88cc") + b"".join(tlvs)


CHASSIS, PORT, TTL, END = tlv(1, b"\x07rack"), tlv(2, b"\x07uplink"), tlv(3, b"\0\x78"), tlv(0, b"")


@given(st.integers(0, 2**64 - 1), st.integers(1, 0xFFFFFEFF))
@example(0, 1)
@example(2**64 - 1, 0xFFFFFEFF)
def test_a_probe_tells_the_switch_and_port_that_it_left_whatever_the_padding(dpid: int, port: int) -> None:
    assert parse(frame(dpid, port)) == parse(frame(dpid, port) + bytes(40)) == Probe(dpid, port, "")


def test_a_probe_is_lldp_to_everybody_else() -> None:
    header, body = packet.Packet(frame(0x020001, 3)).protocols
    assert (header.dst, header.src, header.ethertype) == ("01:80:c2:00:00:0e", GATEWAY_MAC, 0x88CC)
    chassis, port, ttl, description, end = body.tlvs
    assert (chassis.subtype, chassis.chassis_id) == (lldp.ChassisID.SUB_LOCALLY_ASSIGNED, b"dpid:0000000000020001")
    assert (port.subtype, port.port_id) == (lldp.PortID.SUB_LOCALLY_ASSIGNED, b"3")
    assert ttl.ttl == 120
    assert description.system_description == MARK
    assert end.tlv_type == lldp.LLDP_TLV_END
    assert len(frame(0x020001, 3)) >= 60


def named(name: bytes) -> list[lldp.LLDPBasicTLV]:
    return [*MANDATORY, lldp.SystemName(system_name=name)]


def told(chassis: tuple[int, bytes], port: tuple[int, bytes]) -> list[lldp.LLDPBasicTLV]:
    kinds = lldp.ChassisID(subtype=chassis[0], chassis_id=chassis[1]), lldp.PortID(subtype=port[0], port_id=port[1])
    return [*kinds, lldp.TTL(ttl=120)]


@pytest.mark.parametrize(
    ("tlvs", "text"),
    [
        (MANDATORY, "00:1b:21:aa:bb:cc port swp49"),
        (named(b"leaf12"), "leaf12, 00:1b:21:aa:bb:cc port swp49"),
        (named(b"leaf12\0"), "leaf12, 00:1b:21:aa:bb:cc port swp49"),
        (named(b" "), "00:1b:21:aa:bb:cc port swp49"),
        (told((5, bytes([1, 192, 0, 2, 7])), (3, bytes.fromhex("001b21aabbcd"))), "192.0.2.7 port 00:1b:21:aa:bb:cd"),
        (told((5, b"\x03abc"), (7, b"1")), "03616263 port 1"),
        (told((5, b"\x02 \x01\x0d\xb8" + bytes(11) + b"\x01"), (7, b"\0\0\0\x03")), "2001:db8::1 port 00000003"),
    ],
)
def test_somebody_else_is_told_by_name_chassis_and_port(tlvs: list[lldp.LLDPBasicTLV], text: str) -> None:
    assert parse(written(*tlvs)) == Probe(None, None, text)


@pytest.mark.parametrize(
    ("chassis", "port"),
    [(b"dpid:000000000002000g", b"3"), (b"dpid:20001", b"3"), (b"dpid:0000000000020001", b"03"), (b"x", b"3")],
)
def test_our_mark_alone_does_not_make_a_probe(chassis: bytes, port: bytes) -> None:
    probe = parse(raw(tlv(1, b"\x07" + chassis), tlv(2, b"\x07" + port), TTL, tlv(6, MARK), END))
    assert probe == Probe(None, None, f"{chassis.decode()} port {port.decode()}")


def test_what_a_stranger_says_is_one_short_printable_line() -> None:
    rude = b"\n\x1b[31mroot \xe2\x80\xae<script>" * 10
    probe = parse(raw(tlv(1, b"\x07" + rude), tlv(2, b"\x07" + rude), TTL, tlv(5, rude), END))
    assert probe.text == "??[31mroot ???<script.., 0a1b5b33316d726f6f742.. port 0a1b5b33316d726f6f742.."


def test_a_tlv_that_ryu_cannot_read_does_not_hide_the_sender() -> None:
    odd = raw(CHASSIS, PORT, TTL, tlv(77, b"reserved"), tlv(8, b"\x05\x01"), tlv(127, b"\x00"), tlv(5, b"leaf"), END)
    assert lldp.lldp.parser(odd[14:])[0] is None
    assert parse(odd) == Probe(None, None, "leaf, rack port uplink")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not an Ethernet frame: 0 bytes"),
        (bytes(13), "not an Ethernet frame: 13 bytes"),
        (bytes(60), "not an LLDP frame: ethertype 0x0000"),
        (raw(), "the chassis id is missing"),
        (raw(END), "the chassis id is missing"),
        (raw(CHASSIS, PORT, END), "the time to live is missing"),
        (raw(PORT, CHASSIS, TTL, END), "TLV type 2 instead of the chassis id"),
        (raw(CHASSIS, tlv(2, b"\x07"), TTL, END), "port id of 1 bytes"),
        (raw(CHASSIS, PORT, tlv(3, b""), END), "time to live of 0 bytes"),
        (raw(CHASSIS, PORT, TTL, b"\x0c"), "truncated at 35 bytes"),
        (raw(CHASSIS, PORT, TTL, tlv(6, b"long")[:-1]), "truncated at 39 bytes"),
    ],
)
def test_what_is_malformed_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(data)


def outcome(data: bytes) -> Probe | None:
    """Return the result of parsing any bytes: a probe in its bounds or None. Any exception but ValueError fails the test."""
    try:
        probe = parse(data)
    except ValueError:
        return None
    assert (probe.dpid is None) == (probe.port is None) == (probe.text != "")
    assert len(probe.text) <= 80
    assert probe.text.isascii()
    assert probe.text == "" or probe.text.isprintable()
    return probe


def test_any_bytes_are_a_probe_or_refused() -> None:
    rng = random.Random(1)
    management, organisation = tlv(8, b"\x05\x01\xc0\0\x02\x07\x02\0\0\0\x01\0"), tlv(127, b"\0\x80\xc2\x01\0\x01")
    seeds = [frame(0x020001, 3), written(*named(b"leaf12")), raw(CHASSIS, PORT, TTL, management, organisation, END)]
    refused = 0
    for _ in range(6000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(8)):
            data[rng.randrange(14, len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        if rng.random() < 0.2:
            at = rng.randrange(len(data) + 1)
            data[at:at] = rng.randbytes(rng.randrange(600))
        refused += outcome(bytes(data)) is None
        outcome(bytes(data[:14]) + rng.randbytes(rng.randrange(80)))
        outcome(rng.randbytes(rng.randrange(80)))
    assert 600 < refused < 5400


def test_a_probe_cut_short_is_refused_until_all_that_it_says_is_there() -> None:
    whole = frame(0x020001, 3)
    assert all(outcome(whole[:size]) is None for size in range(14))
    told = [size for size in range(len(whole) + 1) if outcome(whole[:size]) is not None]
    unmarked = len(whole) - 2 - (2 + len(MARK))
    assert told == [unmarked, len(whole) - 2, len(whole)]
    assert outcome(whole[:unmarked]) == Probe(None, None, "dpid:0000000000020001 port 3")
