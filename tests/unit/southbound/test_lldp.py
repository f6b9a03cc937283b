"""LLDP: our own probes there and back, and nothing but ValueError for what is neither that nor of somebody else.

What is read of others, and why frames are refused, `scripts/formats/lldp.txt` shows.
"""

import random

from hypothesis import example, given
from hypothesis import strategies as st

from sopa_ryu.fabric.messages import Heard
from sopa_ryu.runtime.library import lldp, packet
from sopa_ryu.southbound.lldp import MARK, frame, parse
from topologies.structure import GATEWAY_MAC


@given(st.integers(0, 2**64 - 1), st.integers(1, 0xFFFFFEFF))
@example(0, 1)
@example(2**64 - 1, 0xFFFFFEFF)
def test_a_probe_tells_the_switch_and_port_that_it_left_whatever_the_padding(dpid: int, port: int) -> None:
    assert parse(frame(dpid, port)) == parse(frame(dpid, port) + bytes(40)) == Heard(dpid, port, "")


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


def outcome(data: bytes) -> Heard | None:
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
    named = b"\x02\x05\x07rack\x04\x07\x07uplink\x06\x02\0\x78\x0a\x06leaf12\x10\x08\x05\x01\xc0\0\x02\x07\0\0\0\0"
    seeds = [frame(0x020001, 3), frame(0x020001, 3)[:14] + named]
    refused = 0
    for _ in range(3000):
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
    assert 300 < refused < 2700


def test_a_probe_cut_short_is_refused_until_all_that_it_says_is_there() -> None:
    whole = frame(0x020001, 3)
    told = [size for size in range(len(whole) + 1) if outcome(whole[:size]) is not None]
    unmarked = len(whole) - 2 - (2 + len(MARK))
    assert told == [unmarked, len(whole) - 2, len(whole)]
    assert outcome(whole[:unmarked]) == Heard(None, None, "dpid:0000000000020001 port 3")
