"""What the controller answers to a packet that nothing leads out of the fabric for, and what it must not answer."""

import struct
from typing import Any

import pytest

from sopa_ryu.fabric.unreachable import MAX_ANSWERS_PER_SECOND, Unreachable
from sopa_ryu.runtime.library import icmp, icmpv6, ipv4, ipv6, packet
from tests.helpers.frames import ICMP, ICMPV6, LATER, SKIPPED, TCP, UDP, chained6, ip, ports, summed, tcp
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree
from topologies.identity import PREFIX6

TREE = FatTree(4, str(PREFIX6))
EDGE = TREE.switch("e0_0")
PORT = 1  # of 10.0.0.2
OUTSIDE = "198.51.100.7"
NO_NEXT, ENCRYPTED = 59, 50
ECHO, TOO_BIG, REDIRECT = (struct.pack("!BBHI", kind, 0, 0, 0) for kind in (128, 2, 137))


def answer(frame: bytes, port: int = PORT) -> bytes | None:
    return Unreachable(TREE).answer(EDGE, port, frame, 1.0)


@pytest.mark.parametrize("size", [8, 9, 40, 1400])
@pytest.mark.parametrize("options", [b"", bytes.fromhex("9e040001")])
def test_the_answer_is_well_formed_and_in_the_name_of_the_racks_gateway(size: int, options: bytes) -> None:
    frame = tcp(dst=OUTSIDE, options=options)[: 14 + 20 + len(options)] + bytes(size)
    total = struct.pack("!H", len(frame) - 14)
    frame = frame[:16] + total + frame[18:]
    made = answer(frame[:128])
    assert made[:14].hex(":") == "02:00:0a:00:00:02:02:00:00:00:00:01:08:00"
    parsed = packet.Packet(made)
    header, message = parsed.get_protocol(ipv4.ipv4), parsed.get_protocol(icmp.icmp)
    assert (header.src, header.dst, header.proto, header.total_length) == ("10.0.0.1", "10.0.0.2", 1, len(made) - 14)
    assert (message.type, message.code) == (3, 0)
    assert made[14 + 28 :] == frame[14:128]
    for part in (made[14:34], made[34:]):  # a right checksum makes the sum 0xffff (RFC 1071)
        assert summed(part) % 0xFFFF == 0


@pytest.mark.parametrize("size", [8, 9, 1192, 1193, 1400])
@pytest.mark.parametrize("header", ["", *SKIPPED])
def test_an_answer_of_ipv6_quotes_as_much_as_fits_in_1280_bytes(size: int, header: str) -> None:
    frame = chained6(bytes(size), UDP, *([SKIPPED[header]] if header else []))
    made = answer(frame[:1246])
    assert made[:14].hex(":") == "02:00:0a:00:00:02:02:00:00:00:00:01:86:dd"
    parsed = packet.Packet(made)
    its, message = parsed.get_protocol(ipv6.ipv6), parsed.get_protocol(icmpv6.icmpv6)
    assert (its.src, its.dst, its.nxt, its.payload_length) == (str(PREFIX6[1]), str(PREFIX6[2]), ICMPV6, len(made) - 54)
    assert (message.type_, message.code, made[58:62]) == (1, 0, bytes(4))
    assert made[62:] == frame[14 : 14 + 1232]
    assert summed(made[22:54] + struct.pack("!II", len(made) - 54, ICMPV6) + made[54:]) % 0xFFFF == 0


def test_what_of_ipv6_is_answered() -> None:
    """RFC 4443, section 2.4 (e): no error, no redirect, none to or from many or nobody; nor what may be an error."""
    every = list(SKIPPED.values())
    for frame in (
        chained6(ECHO, ICMPV6),
        chained6(ECHO, ICMPV6, *every),
        chained6(bytes(8), ENCRYPTED),
        chained6(bytes(8), 132),
        chained6(bytes(8), dst="64:ff9b::1"),
    ):
        assert answer(frame) is not None
        for port in (0, 2, 3, 99):
            assert answer(frame, port) is None
        for cut in (0, 14, 53, len(frame) - 1):
            assert answer(frame[:cut]) is None
        assert answer(frame[:14] + b"\x45" + frame[15:]) is None
        assert Unreachable(FatTree(4)).answer(EDGE, PORT, frame, 1.0) is None  # a fabric without IPv6
    wrong = [chained6(said, ICMPV6, *headers) for said in (TOO_BIG, REDIRECT) for headers in ([], every, every[:1] * 40)]
    wrong += [
        chained6(bytes(8), NO_NEXT),
        chained6(bytes(8), UDP, LATER),
        chained6(bytes(7)),
        chained6(bytes(8), UDP, (0, b"\0\xff" + bytes(6))),
    ]
    for dst in ("ff0e::1", "::", "::1", "fe80::1", str(PREFIX6[2]), "fd53:4f50:4100:ffff::2"):
        wrong.append(chained6(bytes(8), dst=dst))
    wrong += [chained6(bytes(8), src=src) for src in ("::", "fe80::2", "ff02::1", "2001:db8::9", PREFIX6[3])]
    for frame in wrong:
        assert answer(frame) is None, frame.hex()


@each_script(__file__, "unreachable")
def test_what_is_answered(script: Script) -> None:
    def handle(step: Step) -> str:
        """Have a packet come in, to an address outside unless ``dst`` says otherwise; some of its octets may be others."""
        its = {"dst": OUTSIDE, **step.options}
        switch, port, at, octets = its.pop("switch", "e0_0"), its.pop("port", "1"), its.pop("at", "0"), its.pop("octets", "")
        kind, size = int(its.pop("kind", "8")), int(its.pop("size", "128"))
        fields: dict[str, Any] = {name: int(text, 0) if name == "fragment" else text for name, text in its.items()}
        payloads = {"icmp": (ICMP, struct.pack("!BBHI", kind, 0, 0, 0) + bytes(28)), "gre": (47, bytes(8))}
        proto, payload = payloads.get(step.command, ({"tcp": TCP, "udp": UDP}.get(step.command), ports(1, 2)))
        frame = bytearray(ip(payload, proto=proto, **fields))
        frame[int(at) : int(at) + len(octets) // 2] = bytes.fromhex(octets)
        unreachable = Unreachable(TREE)
        made = unreachable.answer(TREE.switch(switch), int(port, 0), bytes(frame[:size]), 1.0)
        assert unreachable.outcomes["not_answerable"] == (made is None)
        return "no answer" if made is None else "answered"

    script.play(handle)


def test_all_racks_together_get_a_bounded_number_a_second() -> None:
    its = Unreachable(TREE)
    both = tcp(dst=OUTSIDE), chained6(bytes(8))
    made = [its.answer(EDGE, PORT, both[n % 2], 5.0 + n / 1000) for n in range(900)]
    assert sum(each is not None for each in made) == MAX_ANSWERS_PER_SECOND
    assert its.outcomes["too_many"] == 900 - MAX_ANSWERS_PER_SECOND
    assert its.answer(EDGE, PORT, tcp(dst=OUTSIDE), 6.0) is not None
