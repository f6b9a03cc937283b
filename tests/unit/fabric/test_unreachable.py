"""What the controller answers to a packet that nothing leads out of the fabric for, and what it must not answer."""

import struct

import pytest
from ryu.lib.packet import icmp, ipv4, packet

from sopa_ryu.fabric.unreachable import MAX_ANSWERS_PER_SECOND, Unreachable
from tests.helpers.frames import ICMP, UDP, echo, ip, ports, tcp
from topologies import FatTree

TREE = FatTree(4)
EDGE = TREE.switch("e0_0")
PORT = 1  # of 10.0.0.2
OUTSIDE = "198.51.100.7"


def answer(frame: bytes, port: int = PORT) -> bytes | None:
    return Unreachable(TREE).answer(EDGE, port, frame, 1.0)


@pytest.mark.parametrize("size", [8, 9, 40, 1400])
@pytest.mark.parametrize("options", [b"", bytes.fromhex("9e040001")])
def test_the_answer_is_well_formed_and_in_the_name_of_the_racks_gateway(size: int, options: bytes) -> None:
    frame = tcp(dst=OUTSIDE, options=options)[: 14 + 20 + len(options)] + bytes(size)
    total = struct.pack("!H", len(frame) - 14)
    frame = frame[:16] + total + frame[18:]
    made = answer(frame[:128])
    assert made is not None
    assert made[:14].hex(":") == "02:00:0a:00:00:02:02:00:00:00:00:01:08:00"
    parsed = packet.Packet(made)
    header, message = parsed.get_protocol(ipv4.ipv4), parsed.get_protocol(icmp.icmp)
    assert (header.src, header.dst, header.proto, header.total_length) == ("10.0.0.1", "10.0.0.2", 1, len(made) - 14)
    assert (message.type, message.code) == (3, 0)
    assert made[14 + 28 :] == frame[14:128]
    for part in (made[14:34], made[34:]):  # a right checksum makes the sum 0xffff (RFC 1071)
        words = struct.unpack(f"!{(len(part) + 1) // 2}H", part + b"\0" * (len(part) % 2))
        assert sum(words) % 0xFFFF == 0


ERRORS = {kind: ip(struct.pack("!BBHI", kind, 0, 0, 0) + bytes(28), dst=OUTSIDE, proto=ICMP) for kind in (3, 4, 5, 11, 12, 41)}
NOT_ANSWERED = {
    "another sender": tcp(src="10.0.0.3", dst=OUTSIDE),
    "a sender outside": tcp(src="203.0.113.1", dst=OUTSIDE),
    "multicast": ip(ports(1, 2), dst="239.1.2.3", proto=UDP),
    "broadcast": ip(ports(1, 2), dst="255.255.255.255", proto=UDP),
    "loopback": tcp(dst="127.0.0.1"),
    "nobody": tcp(dst="0.0.0.0"),
    "within the fabric": tcp(dst="10.3.0.2"),
    "later fragment": ip(ports(1, 2), dst=OUTSIDE, fragment=0x2001),
    **{f"ICMP error {kind}": frame for kind, frame in ERRORS.items()},
    "cut short": tcp(dst=OUTSIDE)[:40],
    "no IPv4": tcp(dst=OUTSIDE)[:12] + b"\x86\xdd" + tcp(dst=OUTSIDE)[14:],
    "IPv6 in IPv4's place": tcp(dst=OUTSIDE)[:14] + b"\x65" + tcp(dst=OUTSIDE)[15:],
    "a header of 16 bytes": tcp(dst=OUTSIDE)[:14] + b"\x44" + tcp(dst=OUTSIDE)[15:],
    "nothing": b"",
}


@pytest.mark.parametrize("frame", NOT_ANSWERED.values(), ids=NOT_ANSWERED)
def test_what_must_not_be_answered_is_not(frame: bytes) -> None:
    its = Unreachable(TREE)
    assert its.answer(EDGE, PORT, frame, 1.0) is None
    assert its.outcomes["not_answerable"] == 1


@pytest.mark.parametrize("frame", [echo(1, dst=OUTSIDE), tcp(dst=OUTSIDE, fragment=0x2000), ip(bytes(8), dst=OUTSIDE, proto=47)])
def test_what_may_be_answered_is(frame: bytes) -> None:
    assert answer(frame) is not None


def test_only_hosts_ports_are_answered() -> None:
    for port in (0, 2, 3, 4, 99, 0xFFFFFFFD):  # 2 is another host's
        assert answer(tcp(dst=OUTSIDE), port) is None
    assert Unreachable(TREE).answer(TREE.switch("a0_0"), 1, tcp(dst=OUTSIDE), 1.0) is None


def test_all_racks_together_get_a_bounded_number_a_second() -> None:
    its = Unreachable(TREE)
    made = [its.answer(EDGE, PORT, tcp(dst=OUTSIDE), 5.0 + n / 1000) for n in range(900)]
    assert sum(each is not None for each in made) == MAX_ANSWERS_PER_SECOND
    assert its.outcomes["too_many"] == 900 - MAX_ANSWERS_PER_SECOND
    assert its.answer(EDGE, PORT, tcp(dst=OUTSIDE), 6.0) is not None
